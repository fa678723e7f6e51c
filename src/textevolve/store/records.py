"""Records of runs: one row for each record, which can be filtered, sorted, paged and counted.

A run is resumed from the journal; records are derived from it, and can be rebuilt. The index
`records_in_order` has the columns that pages use, so a run of any size is paged without reading its
records. Every function takes a connection; functions that write are called inside a transaction.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.engine import Connection, Row

from textevolve.mappings import drop_none, map_values
from textevolve.portions import take_portion
from textevolve.store.dialects import is_postgres
from textevolve.store.documents import (
    DAMAGES,
    bytes_to_text,
    intact,
    pack,
    text_to_bytes,
    unpack_json_bytes,
)
from textevolve.store.resource_rows import delete_where, match
from textevolve.store.tables import records

PAGE = 200
"""The most records that are read at once; large ones are read a few at a time."""

PACK_FROM = 2_048
"""The number of bytes from which a record is compressed: to a third, in 0.1 ms. It is less than for
calls, since there are fewer records, and they repeat the names of their fields."""

RecordOrder: TypeAlias = Literal["position", "score", "-score"]
"""The order of records: by position, by score, or by score in descending order. Records without a
score come last in both orders by score."""

By: TypeAlias = Literal["key", "case"]
"""The content of a row of a run's page: one record, or all records of a case."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record, the result of a run for a case. `key`: identifies it within the run.
    `position`: the index of its case. `case`: the id of its case. `score`: in [0, 1]; None if it
    has none. `status`: scored, failed or skipped; `reason`: why it has no score. `body`: the whole
    record as JSON. `variant`: the compared variant, empty without variants. `passed`: the verdict;
    None without one. `cluster`: the name that dependent records share; empty if only those of one
    case are dependent. `revision`: the number of the change of the run's records that stored it; 0
    before it is stored."""

    key: str
    position: int
    case: str
    score: float | None
    status: str
    reason: str
    body: bytes
    variant: str = ""
    passed: bool | None = None
    cluster: str = ""
    revision: int = 0
    trials: ClassVar[tuple[int, int]] = (0, 0)  # those of a search are in its body


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A filter of records. `statuses`: empty: all. `below`: a score below this one. `case`,
    `variant`, `passed`: of the record; None: any."""

    statuses: tuple[str, ...] = ()
    below: float | None = None
    case: str | None = None
    variant: str | None = None
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class VariantScore:
    """The scores of a variant: their mean, and the share that passed of its records with a verdict;
    None if there are no scores or verdicts."""

    mean: float | None
    passed: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a run. `statuses`: the number of records by status. `scores`: the scores of
    each variant, in the order in which the variants first appeared; a run without variants has one
    with an empty name. `revision`: the latest revision of its records."""

    statuses: Mapping[str, int]
    scores: Mapping[str, VariantScore]
    revision: int

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(name for name in self.scores if name)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())


Place: TypeAlias = tuple[int, str]
"""The place of a record in the order by position: its position and its key."""


def keep_records(connection: Connection, run_id: str, new_records: Sequence[StoredRecord]) -> None:
    # The clock keeps revisions unique even after records were dropped.
    before = max(newest_revision(connection, run_id), int(time.time() * 1000))
    rows = [
        (
            run_id,
            text_to_bytes(record.key),
            record.position,
            text_to_bytes(record.case),
            record.score,
            record.status,
            text_to_bytes(record.reason),
            pack(record.body, PACK_FROM),
            revision,
            text_to_bytes(record.variant),
            record.passed,
            text_to_bytes(record.cluster) or None,
        )
        for revision, record in enumerate(new_records, before + 1)
    ]
    # The driver takes the values as they are, at a third of the cost.
    statement = _KEEP.replace("?", "%s") if is_postgres(connection) else _KEEP
    connection.exec_driver_sql(statement, rows)


COLUMNS = tuple(records.c.keys())
"""The columns of a row of `records`, in the order of the table."""
# An equal record, as when a run is resumed, is no change.
_KEEP = (
    f"INSERT INTO records ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    " ON CONFLICT (run_id, key) DO UPDATE SET"
    f" {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[2:])}"
    " WHERE records.body <> excluded.body OR records.revision IS NULL"
)


def drop_records(connection: Connection, run_id: str) -> None:
    delete_where(connection, records, run_id=run_id)


def read_behind(
    connection: Connection,
    run_id: str,
    criteria: RecordFilter,
    order: RecordOrder = "position",
    after: Place | None = None,
    limit: int | None = None,
) -> list[StoredRecord]:
    """Return the next records, at most `limit` (None: a portion of bounded size), that match the
    criteria, in the order by position from behind a place on; it is as fast at the end of a large
    run as at its beginning."""
    query = _ordered(_select(run_id).where(*_conditions(criteria)), order).limit(limit or PAGE)
    if after is not None:
        position, key = after
        later = (records.c.position > position) | (records.c.key > text_to_bytes(key))
        # In this form an index leads to the place; else all records before it would be read again.
        query = query.where(records.c.position >= position, later)
    if limit is not None:
        return _read(connection, query)

    kept = (row_to_kept(row) for row in connection.execute(query))
    return take_portion(kept, PAGE, lambda record: len(record.body))


def read_columns(connection: Connection, run_id: str) -> list[StoredRecord]:
    """Return all records of a run in their order, with only what figures are computed from, which
    one index has: keys, reasons and bodies are empty."""
    names = ("case_id", "score", "status", "variant", "passed", "cluster")
    query = _select(run_id).with_only_columns(*(records.c[name] for name in names))
    with intact(f"run {run_id}: a record"):
        return [_row_to_score(row) for row in connection.execute(_ordered(query, "position"))]


def _row_to_score(row: Sequence[Any]) -> StoredRecord:
    case, score, status, variant, passed, cluster = row
    return StoredRecord(
        "",
        0,
        bytes_to_text(case),
        score,
        status,
        "",
        b"",
        bytes_to_text(variant or b""),
        passed,
        bytes_to_text(cluster or b""),
    )


def read_changes(
    connection: Connection, run_id: str, revision: int, limit: int
) -> list[StoredRecord]:
    """Return the records, at most `limit`, that were stored after a revision, in the order of
    storing."""
    newer = _select(run_id).where(records.c.revision > revision)
    return _read(connection, newer.order_by(records.c.revision).limit(limit))


def newest_revision(connection: Connection, run_id: str) -> int:
    newest = select(func.max(records.c.revision)).where(records.c.run_id == run_id)
    return connection.execute(newest).scalar_one() or 0


def _select(run_id: str) -> Any:
    return select(records).where(records.c.run_id == run_id)


def _ordered(query: Any, order: RecordOrder) -> Any:
    by_score: dict[RecordOrder, ColumnElement[Any]] = {
        "score": records.c.score.asc().nulls_last(),
        "-score": records.c.score.desc().nulls_last(),
    }
    ordered = [by_score[order]] if order in by_score else []
    return query.order_by(*ordered, records.c.position, records.c.key)


def _read(connection: Connection, query: Any) -> list[StoredRecord]:
    return [row_to_kept(row) for row in connection.execute(query)]


_COLUMN_OF = {"key": records.c.key, "case": records.c.case_id}


def row_to_kept(row: Sequence[Any]) -> StoredRecord:
    """Convert a row into a record.

    Raises:
        StoreError: the row is damaged.
    """
    # Columns are taken by their places, since runs have many rows.
    run_id, key, position, case, score, status, reason, body, revision, variant, passed, cluster = (
        row
    )

    try:
        return StoredRecord(
            bytes_to_text(key),
            position,
            bytes_to_text(case),
            score,
            status,
            bytes_to_text(reason),
            unpack_json_bytes(body),
            bytes_to_text(variant or b""),
            passed,
            bytes_to_text(cluster or b""),
            revision or 0,
        )
    except DAMAGES:
        # Only a damaged row pays for the words that name it.
        with intact(f"run {run_id}: record {position}"):
            raise


def _conditions(criteria: RecordFilter) -> list[ColumnElement[bool]]:
    texts = drop_none({"case_id": criteria.case, "variant": criteria.variant})
    equal: dict[str, Any] = {**map_values(text_to_bytes, texts)}
    if criteria.statuses:
        equal["status"] = list(criteria.statuses)
    if criteria.passed is not None:
        equal["passed"] = criteria.passed
    below = [] if criteria.below is None else [records.c.score < criteria.below]
    return [*match(records, equal), *below]


def count_records(connection: Connection, run_id: str) -> Mapping[str, int]:
    query = select(records.c.status, func.count()).where(records.c.run_id == run_id)
    return {row[0]: row[1] for row in connection.execute(query.group_by(records.c.status))}


def count_standing(connection: Connection, run_ids: Sequence[str]) -> dict[str, Standing]:
    """Return the progress of these runs by their ids."""
    score = records.c.score
    groups = (records.c.variant, records.c.status, records.c.passed)
    sums = func.count().label("number"), func.sum(score).label("scores")
    query = select(records.c.run_id, *groups, *sums, func.count(score).label("scored"))
    query = query.where(records.c.run_id.in_(run_ids)).group_by(records.c.run_id, *groups)
    rows = connection.execute(query.order_by(func.min(records.c.position))).all()

    return {
        # The newest revision is one look into the index for each run.
        run_id: _sum_up(
            [row for row in rows if row.run_id == run_id], newest_revision(connection, run_id)
        )
        for run_id in run_ids
    }


def _sum_up(groups: Sequence[Any], revision: int) -> Standing:
    statuses: Counter[str] = Counter()
    variants: dict[str, list[Row[Any]]] = {}
    for group in groups:
        statuses[group.status] += group.number
        variants.setdefault(bytes_to_text(group.variant or b""), []).append(group)
    return Standing(statuses, map_values(_score, variants), revision)


def _score(groups: Sequence[Row[Any]]) -> VariantScore:
    scored = sum(group.scored for group in groups)
    total = sum(group.scores or 0.0 for group in groups)
    # Records without a verdict count neither as passed nor as failed.
    judged = sum(group.number for group in groups if group.passed is not None)
    passed = sum(group.number for group in groups if group.passed)

    return VariantScore(total / scored if scored else None, passed / judged if judged else None)


def find_rows(
    connection: Connection,
    run_id: str,
    criteria: RecordFilter,
    by: By,
    order: RecordOrder,
    start: int,
    size: int,
) -> list[bytes]:
    """Return the rows of a page: keys of records, or ids of cases, as stored. In an order by score
    a case has the place of its lowest score, or of its highest one if the order is descending."""
    query = _select(run_id).where(*_conditions(criteria)).with_only_columns(_COLUMN_OF[by])
    if by == "key":  # without a group, so that the index alone gives the order
        query = _ordered(query, order)
    else:
        score = records.c.score
        best = func.max(score).desc() if order == "-score" else func.min(score).asc()
        by_score = [] if order == "position" else [best.nulls_last()]
        query = query.group_by(records.c.case_id).order_by(*by_score, func.min(records.c.position))

    return list(connection.execute(query.limit(size).offset(start)).scalars())


def count_rows(connection: Connection, run_id: str, criteria: RecordFilter, by: By) -> int:
    number = func.count(_COLUMN_OF[by].distinct() if by == "case" else _COLUMN_OF[by])
    query = select(number).where(records.c.run_id == run_id, *_conditions(criteria))
    return connection.execute(query).scalar_one()


def read_rows(
    connection: Connection, run_id: str, by: By, rows: Sequence[bytes]
) -> dict[bytes, list[StoredRecord]]:
    """Return the records of each of these rows (keys or ids of cases, as stored), by the row, in
    the rows' order."""
    query = _ordered(_select(run_id).where(_COLUMN_OF[by].in_(rows)), "position")
    groups: dict[bytes, list[StoredRecord]] = {row: [] for row in rows}
    for row in connection.execute(query):
        groups[row.key if by == "key" else row.case_id].append(row_to_kept(row))

    return groups


def read_place(connection: Connection, run_id: str, position: int, by: By) -> list[StoredRecord]:
    """Return the records at a position of a run; with `by` = "case", all records of their cases."""
    here = _select(run_id).where(records.c.position == position)
    if by == "case":
        cases = here.with_only_columns(records.c.case_id)
        here = _select(run_id).where(records.c.case_id.in_(cases))
    return _read(connection, _ordered(here, "position"))


def find_neighbours(
    connection: Connection, run_id: str, place: int, last: int
) -> tuple[int | None, int | None]:
    """Return the nearest positions before `place` and after `last` that have records; None without
    one."""
    position = records.c.position
    before = select(func.max(position)).where(records.c.run_id == run_id, position < place)
    after = select(func.min(position)).where(records.c.run_id == run_id, position > last)
    return connection.execute(before).scalar_one(), connection.execute(after).scalar_one()
