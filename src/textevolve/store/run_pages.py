"""What pages show of runs: some of a long list, found, counted and ordered in the database.

The columns that are looked at stand in one index (`records_in_order`), so that a run of any size is
paged without reading its records. Every function takes a connection and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, LargeBinary, func, literal, or_, select
from sqlalchemy.engine import Connection

from textevolve.store.dialects import contains, json_field
from textevolve.store.documents import bytes_to_text, plain_text, text_to_bytes
from textevolve.store.records import COLUMNS, Kept, RecordOrder, row_to_kept
from textevolve.store.runs import RunRecord, row_to_record
from textevolve.store.tables import records, runs, served_runs

By: TypeAlias = Literal["key", "case"]
"""What makes a row of a run's page: one record, or all records of a case."""


@dataclass(frozen=True, slots=True)
class WantedRuns:
    """Which runs: of a kind, in a state, with a text in their id, name, source or specification.
    `namespaces`: those that they must belong to; None: any, or none."""

    kind: str = ""
    status: str = ""
    text: str = ""
    namespaces: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows: those with a record like that. Empty and None: any."""

    statuses: tuple[str, ...] = ()
    below: float | None = None
    passed: bool | None = None
    variant: str = ""


@dataclass(frozen=True, slots=True)
class VariantScore:
    """How a variant stands: the mean of its scores, and the share of its records that passed."""

    mean: float | None
    passed: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is: records by status, the scores of each variant in the order in which they
    came (of a run without variants under an empty name), and the latest revision."""

    statuses: Mapping[str, int] = field(default_factory=dict[str, int])
    scores: Mapping[str, VariantScore] = field(default_factory=dict[str, VariantScore])
    revision: int = 0

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(name for name in self.scores if name)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())


def find_runs(
    connection: Connection, wanted: WantedRuns, start: int, size: int
) -> tuple[list[RunRecord], int]:
    """Some of the runs that are wanted, the newest first, and how many there are of them."""
    conditions = _run_conditions(connection, wanted)
    total = connection.execute(select(func.count()).select_from(runs).where(*conditions))
    query = (
        select(runs)
        .where(*conditions)
        .order_by(runs.c.created.desc(), runs.c.id)
        .limit(size)
        .offset(start)
    )
    found = [row_to_record(connection, row) for row in connection.execute(query)]
    return found, total.scalar_one()


def _run_conditions(connection: Connection, wanted: WantedRuns) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.kind:
        found.append(json_field(connection, runs.c.spec, "kind") == plain_text(wanted.kind))
    if wanted.text:
        text = plain_text(wanted.text)
        places = (runs.c.id, runs.c.name, runs.c.source, runs.c.spec)
        found.append(or_(*(contains(connection, place, text) for place in places)))
    if wanted.namespaces is not None:
        theirs = served_runs.c.namespace.in_(wanted.namespaces)
        found.append(runs.c.id.in_(select(served_runs.c.run_id).where(theirs)))
    if wanted.status:
        found.append(_in_state(connection, wanted.status))
    return found


def _in_state(connection: Connection, status: str) -> ColumnElement[bool]:
    """A run whose process has died says that it is running, and is interrupted."""
    if status not in ("running", "interrupted"):
        return runs.c.status == status
    begun = connection.execute(select(runs).where(runs.c.status == "running"))
    held = [row.id for row in begun if row_to_record(connection, row).status == "running"]
    if status == "running":
        return runs.c.id.in_(held)
    dead = (runs.c.status == "running") & runs.c.id.not_in(held)
    return or_(runs.c.status == "interrupted", dead)


def namespace_of(connection: Connection, run_id: str) -> str | None:
    """The namespace that a run belongs to; None for one that was made without a server."""
    query = select(served_runs.c.namespace).where(served_runs.c.run_id == run_id)
    return connection.execute(query).scalar_one_or_none()


def list_kinds(connection: Connection) -> list[str]:
    """The kinds of all runs that are kept, in the order of the alphabet."""
    kind = json_field(connection, runs.c.spec, "kind")
    return sorted(str(one) for one in connection.execute(select(kind).distinct()).scalars() if one)


def count_standing(connection: Connection, run_ids: Sequence[str]) -> dict[str, Standing]:
    """How far some runs are, by their ids."""
    groups = (records.c.run_id, records.c.variant, records.c.status, records.c.passed)
    query = (
        select(
            *groups,
            func.count(),
            func.sum(records.c.score),
            func.count(records.c.score),
            func.min(records.c.position),
        )
        .where(records.c.run_id.in_(run_ids))
        .group_by(*groups)
    )
    rows = connection.execute(query).all()
    newest = dict[str, int]()
    for run_id in run_ids:  # one look into the index for each
        latest = select(func.max(records.c.revision)).where(records.c.run_id == run_id)
        newest[run_id] = connection.execute(latest).scalar_one() or 0
    return {
        run_id: _sum_up([_Group(*row[1:]) for row in rows if row[0] == run_id], newest[run_id])
        for run_id in run_ids
    }


class _Group(NamedTuple):
    variant: bytes | None
    status: str
    passed: bool | None
    number: int
    scores: float | None
    scored: int
    first: int


def _sum_up(groups: Sequence[_Group], revision: int) -> Standing:
    statuses, variants = dict[str, int](), dict[str, list[_Group]]()
    for one in sorted(groups, key=lambda group: group.first):
        statuses[one.status] = statuses.get(one.status, 0) + one.number
        variants.setdefault(bytes_to_text(one.variant or b""), []).append(one)
    scores = {name: _score(own) for name, own in variants.items()}
    return Standing(statuses, scores, revision)


def _score(groups: Sequence[_Group]) -> VariantScore:
    scored = sum(one.scored for one in groups)
    passed = sum(one.number for one in groups if one.passed is True)
    judged = passed + sum(one.number for one in groups if one.passed is False)
    return VariantScore(
        sum(one.scores or 0.0 for one in groups) / scored if scored else None,
        passed / judged if judged else None,
    )


def find_rows(
    connection: Connection,
    run_id: str,
    wanted: WantedRows,
    by: By,
    order: RecordOrder,
    start: int,
    size: int,
) -> list[bytes]:
    """Which rows a page shows: keys of records, or ids of cases, as they are kept."""
    place = func.min(records.c.position)
    lowest, highest = func.min(records.c.score), func.max(records.c.score)
    orders: Mapping[RecordOrder, list[ColumnElement[Any]]] = {
        "position": [],
        "score": [lowest.asc().nulls_last()],
        "-score": [highest.desc().nulls_last()],
    }
    what = records.c.key if by == "key" else records.c.case_id
    query = select(what).where(records.c.run_id == run_id, *_row_conditions(wanted))
    if by == "case":
        query = query.group_by(what).order_by(*orders[order], place)
    else:  # without a group, so that the index alone gives the order
        alone = {"score": records.c.score.asc(), "-score": records.c.score.desc()}
        ordered = [alone[order].nulls_last()] if order in alone else []
        query = query.order_by(*ordered, records.c.position, records.c.key)
    return list(connection.execute(query.limit(size).offset(start)).scalars())


def count_rows(connection: Connection, run_id: str, wanted: WantedRows, by: By) -> int:
    what = records.c.key if by == "key" else records.c.case_id.distinct()
    query = select(func.count(what)).where(records.c.run_id == run_id, *_row_conditions(wanted))
    return connection.execute(query).scalar_one()


def _row_conditions(wanted: WantedRows) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.statuses:
        found.append(records.c.status.in_(wanted.statuses))
    if wanted.below is not None:
        found.append(records.c.score < wanted.below)
    if wanted.passed is not None:
        found.append(records.c.passed.is_(wanted.passed))
    if wanted.variant:
        found.append(records.c.variant == literal(text_to_bytes(wanted.variant), LargeBinary))
    return found


def read_rows(
    connection: Connection, run_id: str, by: By, rows: Sequence[bytes]
) -> dict[bytes, list[Kept]]:
    """The records of some rows, by the row, in the rows' order."""
    what = records.c.key if by == "key" else records.c.case_id
    query = (
        select(*COLUMNS)
        .where(records.c.run_id == run_id, what.in_(rows))
        .order_by(records.c.position, records.c.key)
    )
    found: dict[bytes, list[Kept]] = {one: [] for one in rows}
    for row in connection.execute(query):
        found[row.key if by == "key" else row.case_id].append(row_to_kept(row))
    return found


def read_place(connection: Connection, run_id: str, position: int, by: By) -> list[Kept]:
    """The records at a place of a run; with `case` all of the same cases."""
    here = (records.c.run_id == run_id, records.c.position == position)
    query = select(*COLUMNS).where(*here)
    if by == "case":
        cases = select(records.c.case_id).where(*here)
        query = select(*COLUMNS).where(records.c.run_id == run_id, records.c.case_id.in_(cases))
    ordered = query.order_by(records.c.position, records.c.key)
    return [row_to_kept(row) for row in connection.execute(ordered)]


def find_neighbours(
    connection: Connection, run_id: str, place: int, last: int
) -> tuple[int | None, int | None]:
    """The places before `place` and after `last` at which there are records."""
    before = select(func.max(records.c.position)).where(
        records.c.run_id == run_id, records.c.position < place
    )
    after = select(func.min(records.c.position)).where(
        records.c.run_id == run_id, records.c.position > last
    )
    return connection.execute(before).scalar_one(), connection.execute(after).scalar_one()
