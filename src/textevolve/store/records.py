"""What runs found: one row for each record, which can be filtered, sorted and paged.

The journal is what a run goes on from; records are made from it, and can be made from it again.
Every function takes a connection; those that change something are called inside a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.engine import Connection

from textevolve.store.dialects import insert_into
from textevolve.store.documents import (
    bytes_to_text,
    pack,
    text_to_bytes,
    unpack_json_bytes,
    whole,
)
from textevolve.store.tables import records

PAGE = 200
"""How many records are read at once."""

PACK_FROM = 2_048
"""Bytes from which a record is compressed: there is one for each case and not for each call, and it
repeats names, so that a third is left of it for 0.1 ms."""

RecordOrder: TypeAlias = Literal["position", "score", "-score"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as the store knows it; `body` is its JSON. `score`: in [0, 1], None where there is
    none. `status`: scored, failed or skipped. `revision`: grows with each change of the run's
    records; 0 before it is kept."""

    key: str
    position: int
    case: str
    score: float | None
    status: str
    reason: str
    body: bytes
    variant: str = ""
    passed: bool | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Which records are wanted: those of a `status`, those `below` a score, those of a `case`, of
    a `variant`, and those that `passed` or did not."""

    statuses: tuple[str, ...] = ()
    below: float | None = None
    case: str | None = None
    variant: str | None = None
    passed: bool | None = None


Place: TypeAlias = tuple[float | None, int, str]
"""Where a record stands in an order: its score, its position and its key."""


def keep_records(connection: Connection, run_id: str, found: Sequence[Kept]) -> None:
    # The time goes on where records were dropped, so that no revision is used twice.
    before = max(newest_revision(connection, run_id), int(time.time() * 1000))
    rows = [
        {
            "run_id": run_id,
            "key": text_to_bytes(one.key),
            "position": one.position,
            "case_id": text_to_bytes(one.case),
            "score": one.score,
            "status": one.status,
            "reason": text_to_bytes(one.reason),
            "body": pack(one.body, PACK_FROM),
            "variant": text_to_bytes(one.variant),
            "passed": one.passed,
            "revision": revision,
        }
        for revision, one in enumerate(found, before + 1)
    ]
    statement = insert_into(connection, records)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in ("run_id", "key")}
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["run_id", "key"],
            set_=changed,
            # One that is found again as it was, as when a run is gone on with, is no change.
            where=(records.c.body != statement.excluded.body) | records.c.revision.is_(None),
        ),
        rows,
    )


def drop_records(connection: Connection, run_id: str) -> None:
    connection.execute(delete(records).where(records.c.run_id == run_id))


def read_behind(
    connection: Connection,
    run_id: str,
    wanted: Found,
    order: RecordOrder = "position",
    after: Place | None = None,
    limit: int = PAGE,
) -> list[Kept]:
    """The next records behind a place, of those that are wanted: as quick at the end of a large
    run as at its beginning."""
    query = _ordered(_select(run_id).where(*_conditions(wanted)), order).limit(limit)
    if after is not None:
        query = query.where(_behind(order, after))
    return _read(connection, query)


def _behind(order: RecordOrder, after: Place) -> ColumnElement[bool]:
    score, position, key = after
    own = records.c.key > text_to_bytes(key)
    behind = (records.c.position > position) | ((records.c.position == position) & own)
    if order == "position":
        return behind
    if score is None:
        return records.c.score.is_(None) & behind
    further = records.c.score > score if order == "score" else records.c.score < score
    return further | ((records.c.score == score) & behind) | records.c.score.is_(None)


def read_changes(connection: Connection, run_id: str, revision: int, limit: int) -> list[Kept]:
    """The records that were kept after a revision, in the order in which they were."""
    newer = _select(run_id).where(records.c.revision > revision)
    return _read(connection, newer.order_by(records.c.revision).limit(limit))


def newest_revision(connection: Connection, run_id: str) -> int:
    newest = select(func.max(records.c.revision)).where(records.c.run_id == run_id)
    return connection.execute(newest).scalar_one() or 0


def _select(run_id: str) -> Any:
    return select(*COLUMNS).where(records.c.run_id == run_id)


def _ordered(query: Any, order: RecordOrder) -> Any:
    by_score: dict[RecordOrder, ColumnElement[Any]] = {
        "score": records.c.score.asc().nulls_last(),
        "-score": records.c.score.desc().nulls_last(),
    }
    ordered = [by_score[order]] if order in by_score else []
    return query.order_by(*ordered, records.c.position, records.c.key)


def _read(connection: Connection, query: Any) -> list[Kept]:
    return [row_to_kept(row) for row in connection.execute(query)]


COLUMNS = (
    records.c.run_id,
    records.c.key,
    records.c.position,
    records.c.case_id,
    records.c.score,
    records.c.status,
    records.c.reason,
    records.c.body,
    records.c.variant,
    records.c.passed,
    records.c.revision,
)
"""What `row_to_kept` reads."""


def row_to_kept(row: Sequence[Any]) -> Kept:
    """
    Raises:
        StoreError: it is damaged.
    """
    run_id, key, position, case, score, status, reason, body, variant, passed, revision = row
    with whole(f"run {run_id}: record {position}"):
        return Kept(
            bytes_to_text(key),
            position,
            bytes_to_text(case),
            score,
            status,
            bytes_to_text(reason),
            unpack_json_bytes(body),
            bytes_to_text(variant or b""),
            passed,
            revision or 0,
        )


def _conditions(wanted: Found) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.statuses:
        conditions.append(records.c.status.in_(wanted.statuses))
    if wanted.below is not None:
        conditions.append(records.c.score < wanted.below)
    if wanted.case is not None:
        conditions.append(records.c.case_id == text_to_bytes(wanted.case))
    if wanted.variant is not None:
        conditions.append(records.c.variant == text_to_bytes(wanted.variant))
    if wanted.passed is not None:
        conditions.append(records.c.passed == wanted.passed)
    return conditions


def count_records(connection: Connection, run_id: str) -> Mapping[str, int]:
    query = (
        select(records.c.status, func.count())
        .where(records.c.run_id == run_id)
        .group_by(records.c.status)
    )
    return {row[0]: row[1] for row in connection.execute(query)}
