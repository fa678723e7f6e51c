"""Runs and their cases: specification, status and usage.

Every function takes a connection; functions that write are called inside a transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Select, bindparam, literal, select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection, Row

from textevolve.errors import BusyError, StoreError
from textevolve.evaluation import Case, Usage
from textevolve.mappings import drop_none, read_fields
from textevolve.portions import measure, split_portions, take_portion
from textevolve.store import lease
from textevolve.store.dialects import sweep_texts
from textevolve.store.documents import (
    DAMAGES,
    IMAGES,
    bytes_to_text,
    dump_case,
    dump_json,
    hash_bytes,
    image_keys,
    image_texts,
    intact,
    load_case,
    load_json,
    pack,
    plain_text,
    require,
    unpack,
)
from textevolve.store.documents import text_to_bytes as to_bytes
from textevolve.store.resource_rows import (
    build,
    delete_where,
    fetch_all,
    fetch_one,
    insert_rows,
    insert_unless_stored,
    mapping_of,
    update_where,
)
from textevolve.store.tables import batches, cases, records, reuses, runs, served_runs, texts

RunStatus = Literal["running", "finished", "interrupted", "failed"]
"""The status of a run. `interrupted`: it can be resumed. `failed`: its row is damaged."""

PAGE = 100
PAGE_BYTES = 32_000_000
"""The maximum number of cases that are read at once, and of bytes of their texts and images."""

CHUNK = 1000
CHUNK_BYTES = 4_000_000
"""The maximum number of cases, and of bytes of cases, in one transaction."""

FARTHEST = 1e11
"""The latest Unix time of a run that counts as valid; calendars can still show it."""
DAMAGED: Mapping[str, Any] = {"kind": "damaged"}
"""The specification of a run whose own specification cannot be read."""

_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"
"""The letters of ids, without those that are easily confused."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run. Times are Unix times.

    `fingerprint`: a hash of all that determines its results, by which the same run is found again.
    `status`: a run whose process has died is `interrupted`. `source`: the origin of the cases.
    `n_cases`: the number of cases; None until all have been stored. `aliases`: further names that
    later commands gave the same run.
    """

    id: str
    name: str
    fingerprint: str
    created: float
    updated: float
    status: RunStatus
    source: str
    n_cases: int | None
    spec: Mapping[str, Any]
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the first one first; empty if it has none."""
        return (self.name, *self.aliases) if self.name else ()


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The usage of a run. `spent`: of its own calls. `reused`: of answers that other runs had paid
    for. `failed`: the number of calls that ended in an error."""

    spent: Usage
    reused: Usage
    failed: int


@dataclass(frozen=True, slots=True)
class RunSpending:
    """The time and the cost of a run's own calls. `seconds`: the time in which a call was under
    way, without the pause before a run is resumed. `cost`: in US dollars; None if the price of a
    call is unknown."""

    seconds: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class Freed:
    """The numbers of rows that were deleted together with a run."""

    cases: int
    calls: int
    texts: int


def create_run(
    connection: Connection,
    spec: Mapping[str, Any],
    fingerprint: str,
    name: str = "",
    source: str = "",
) -> RunRecord:
    if (existing := find_run(connection, fingerprint)) is not None:
        raise StoreError(
            f"run {existing.id}: has the same specification and cases; resume it instead"
        )

    id = _new_id(connection)
    now = time.time()
    run = RunRecord(id, name, fingerprint, now, now, "interrupted", source, None, spec)
    copy_run(connection, run)

    return get_run(connection, id)


_BETWEEN = "\n"
"""What stands between the names of a run in its row."""


def copy_run(connection: Connection, run: RunRecord) -> None:
    """Store a run unchanged; it replaces an earlier one with its id."""
    values = read_fields(run, *RunRecord.__dataclass_fields__)
    values["name"] = _BETWEEN.join(map(plain_text, run.names))
    values["source"] = plain_text(run.source)
    del values["aliases"]
    values["spec"] = dump_json(dict(run.spec), "the description of a run")
    delete_where(connection, runs, id=run.id)
    insert_rows(connection, runs, [values])


def respecify(connection: Connection, run_id: str, changed: Mapping[str, Any]) -> RunRecord:
    spec = {**get_run(connection, run_id).spec, **changed}
    update_where(connection, runs, {"spec": dump_json(spec, "the description of a run")}, id=run_id)
    return get_run(connection, run_id)


def _new_id(connection: Connection) -> str:
    """Return a new id of a run: the date and four letters, such as `20250131-k3fx`."""
    while True:
        letters = "".join(secrets.choice(_LETTERS) for _ in range(4))
        id = f"{time.strftime('%Y%m%d')}-{letters}"
        if fetch_one(connection, runs, id=id) is None:
            return id


def find_run(connection: Connection, fingerprint: str) -> RunRecord | None:
    row = fetch_one(connection, runs, fingerprint=fingerprint)
    return None if row is None else _read_whole(connection, row)


def get_run(connection: Connection, run_ref: str) -> RunRecord:
    """Return the run with this id, name, start or end of an id, tried in this order; `last` is the
    run that was performed last, of those with cases, which excludes the calls of servers, chats and
    memories.

    Raises:
        StoreError: there is no such run, or there are several.
    """
    if not run_ref:
        raise StoreError("the name of the run is empty; see `textevolve runs list`")
    for query in _queries(run_ref):
        rows = connection.execute(query).all()
        if len(rows) == 1:
            return row_to_record(connection, rows[0])
        if rows:
            ids = ", ".join(row.id for row in rows)
            raise StoreError(
                f"run {run_ref}: several runs have this name or part of an id ({ids}); give the"
                " id of one"
            )

    raise StoreError(f"run {run_ref}: is not in this store; see `textevolve runs list`")


def _queries(run_ref: str) -> Iterator[Select[Any]]:
    if run_ref == "last":
        performed = select(runs).where(runs.c.n_cases > 0)
        yield performed.order_by(runs.c.updated.desc(), runs.c.id).limit(1)
        return
    newest = select(runs).order_by(runs.c.created.desc(), runs.c.id).limit(5)
    text = plain_text(run_ref)
    yield newest.where(runs.c.id == text)
    lines = literal(_BETWEEN) + runs.c.name + literal(_BETWEEN)
    yield newest.where(lines.contains(f"{_BETWEEN}{text}{_BETWEEN}", autoescape=True))
    yield newest.where(runs.c.id.startswith(text, autoescape=True))
    # The four letters after the date are what people remember of an id.
    yield newest.where(runs.c.id.endswith(f"-{text}", autoescape=True))


def list_runs(connection: Connection, limit: int = 50) -> list[RunRecord]:
    """Return the newest runs, newest first."""
    query = select(runs).order_by(runs.c.created.desc(), runs.c.id).limit(limit)
    return [row_to_record(connection, row) for row in connection.execute(query)]


def all_specs(connection: Connection) -> list[Mapping[str, Any]]:
    """Return the specifications of all runs, oldest first; a damaged one is empty."""
    specs: list[Mapping[str, Any]] = []
    for (body,) in connection.execute(select(runs.c.spec).order_by(runs.c.created, runs.c.id)):
        with suppress(*DAMAGES):
            spec = load_json(body)
            require(spec, dict)
            specs.append(spec)

    return specs


def check_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the columns of a run's row; return the run's specification.

    Raises:
        one of DAMAGES: a column is damaged.
    """
    for name in ("id", "name", "fingerprint", "source"):
        require(values[name], str)
    require(values["n_cases"], int, None)
    for name in ("created", "updated"):
        time.localtime(values[name])
    if values["status"] not in get_args(RunStatus):
        raise ValueError(f"no state of a run: {values['status']!r}")
    for name, kind in (("host", str), ("pid", int), ("process", str)):
        require(values[f"lease_{name}"], kind, None)
    require(values["lease_heartbeat"], int, float, None)
    spec = load_json(values["spec"])
    require(spec, dict)

    return spec


def row_to_record(connection: Connection, row: Row[Any]) -> RunRecord:
    """Return the run of a row. A damaged row becomes a failed run with DAMAGED as its specification
    and the damage as its source, so it can be deleted and does not hide other runs."""
    try:
        return _read_whole(connection, row)
    except StoreError as error:
        created, updated = (
            t if isinstance(t, float) and 0 <= t < FARTHEST else 0.0
            for t in (row.created, row.updated)
        )
        cases = row.n_cases if isinstance(row.n_cases, int) else None
        id = str(row.id)
        reason = str(error)
        return RunRecord(id, "", "", created, updated, "failed", reason, cases, DAMAGED)


def _read_whole(connection: Connection, row: Row[Any]) -> RunRecord:
    """Return the run of a row that must not be damaged.

    Raises:
        StoreError: the row is damaged.
    """
    with intact(f"run {row.id}"):
        values = mapping_of(row)
        values["spec"] = check_fields(values)
        values["name"], *aliases = values["name"].split(_BETWEEN)
        values["aliases"] = tuple(aliases)
        if row.status == "running" and not lease.is_held(connection, row):
            values["status"] = "interrupted"
        return build(RunRecord, values)


def finish_run(connection: Connection, run_id: str, status: RunStatus) -> None:
    if update_where(connection, runs, {"status": status, "updated": time.time()}, id=run_id) == 0:
        raise StoreError(f"run {run_id}: is not in this store; see `textevolve runs list`")


def reopen_run(connection: Connection, run_id: str) -> None:
    """Mark a finished run as resumable, since some of its results are missing."""
    update_where(connection, runs, {"status": "running"}, id=run_id, status="finished")


def settle_run(
    connection: Connection, run_id: str, fingerprint: str, earlier_fingerprint: str = ""
) -> RunRecord:
    """Set the fingerprint of a new run. If another run has it, or the one that an earlier version
    would have given, return that one and delete the new run.

    The other run gets the name of the new one as a further name, if any, and its cases if it lacks
    them because its store was damaged.
    """
    run = get_run(connection, run_id)
    existing = find_run(connection, fingerprint)
    if existing is None and earlier_fingerprint:
        existing = find_run(connection, earlier_fingerprint)
    if existing is None or existing.id == run_id:
        update_where(connection, runs, {"fingerprint": fingerprint}, id=run_id)
        return get_run(connection, run_id)
    if existing.n_cases is None:
        delete_where(connection, cases, run_id=existing.id)
        update_where(connection, cases, {"run_id": existing.id}, run_id=run_id)
        update_where(connection, runs, {"n_cases": run.n_cases}, id=existing.id)

    if run.name and run.name not in existing.names:
        names = _BETWEEN.join([*existing.names, run.name])
        update_where(connection, runs, {"name": names}, id=existing.id)
    delete_where(connection, cases, run_id=run_id)
    delete_where(connection, runs, id=run_id)

    return get_run(connection, existing.id)


def start_cases(connection: Connection, run_id: str) -> None:
    """Prepare for storing the cases of a run: delete those of an interrupted attempt."""
    if get_run(connection, run_id).n_cases is not None:
        raise StoreError(f"run {run_id}: has its cases already")
    delete_where(connection, cases, run_id=run_id)


CaseRow: TypeAlias = tuple[dict[str, Any], tuple[str, ...]]
"""The row of a case, and its images."""


def chunk_cases(run_id: str, source: Iterable[Case]) -> Iterator[list[CaseRow]]:
    """Yield rows of cases in lists of bounded size; `source` is read lazily."""
    rows = (_case_row(run_id, index, case) for index, case in enumerate(source))
    return split_portions(rows, CHUNK, _size_of_row, CHUNK_BYTES)


def _case_row(run_id: str, index: int, case: Case) -> CaseRow:
    row = {"run_id": run_id, "index": index, "id": to_bytes(case.id), "body": dump_case(case)}
    return row, image_texts(case)


def _size_of_row(row: CaseRow) -> int:
    columns, images = row
    return measure((columns["body"], *images))


def insert_cases(connection: Connection, rows: Sequence[CaseRow]) -> None:
    for url in dict.fromkeys(url for _, images in rows for url in images):
        body = to_bytes(url)
        values = {"hash": hash_bytes(url), "size": len(body), "body": pack(body)}
        insert_unless_stored(connection, texts, values)

    insert_rows(connection, cases, [row for row, _ in rows])


def end_cases(connection: Connection, run_id: str, count: int) -> None:
    update_where(connection, runs, {"n_cases": count, "updated": time.time()}, id=run_id)


def append_case(connection: Connection, run_id: str, case: Case) -> None:
    """Add a case to a run whose cases are not known at its start, such as a session of tests, whose
    assertions each add one."""
    place = get_run(connection, run_id).n_cases or 0
    insert_cases(connection, [_case_row(run_id, place, case)])
    end_cases(connection, run_id, place + 1)


def read_cases(connection: Connection, run_id: str, start: int) -> list[tuple[int, Case]]:
    """Return the next cases from the index `start`, each with its index, at most a page; empty at
    the end."""
    query = (
        select(cases.c.index, cases.c.id, cases.c.body)
        .where(cases.c.run_id == run_id, cases.c.index >= start)
        .order_by(cases.c.index)
        .limit(PAGE)
    )

    def load() -> Iterator[tuple[int, Case]]:
        for index, id, body in connection.execute(query):
            try:
                require(index, int)
                images = {key: find_image(connection, key) for key in image_keys(body)}
                yield index, load_case(id, body, drop_none(images))
            except DAMAGES:
                # Only a damaged case pays for the words that name it.
                with intact(f"run {run_id}: case {index!r}"):
                    raise

    return take_portion(load(), PAGE, _size_of_case, PAGE_BYTES)


def _size_of_case(placed: tuple[int, Case]) -> int:
    case = placed[1]
    return measure((case.input, case.context, *case.candidates, *image_texts(case)))


def find_image(connection: Connection, key: bytes) -> str | None:
    """Return the data URL stored under a hash; None if there is none."""
    row = fetch_one(connection, texts, hash=key)
    return None if row is None else bytes_to_text(unpack(row.body, row.size))


_SUMS = """
SELECT coalesce(sum(CASE WHEN error IS NULL AND
        substr(model, 1, 7) NOT IN ('memory/', 'target:') THEN 1 ELSE 0 END), 0),
    coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
    coalesce(sum(completion_tokens), 0),
    CASE WHEN count(cost) = count(*) THEN coalesce(sum(cost), 0.0) END,
    sum(CASE WHEN saved IS NULL AND (cached_tokens > 0 OR cost IS NULL) THEN 1 ELSE 0 END),
    coalesce(sum(saved), 0.0), count(error)
FROM calls WHERE
"""
"""The query for a run's usage. What is tested, an application or a memory system, is no model, so
that its calls are not counted. A call of an early version has no savings; they count as 0 if none
of its tokens were cached."""


def run_totals(connection: Connection, run_id: str) -> RunTotals:
    """Sum up the new and the replayed usage of a run, in the database."""
    totals: list[Usage] = []
    failed = 0
    for condition in ("run_id = :run", "id IN (SELECT call_id FROM reuses WHERE run_id = :run)"):
        row = connection.execute(sql(f"{_SUMS} {condition}"), {"run": run_id}).one()
        *counts, unknown, saved, failures = row
        totals.append(Usage(*counts, saved=None if unknown else saved))
        failed = failed or failures

    return RunTotals(*totals, failed=failed)


SPENDING = """
SELECT run_id,
    sum(CASE WHEN before IS NULL OR before < started THEN seconds
        WHEN before < started + seconds THEN started + seconds - before ELSE 0 END) AS seconds,
    CASE WHEN count(cost) = count(*) THEN sum(cost) END AS cost
FROM (SELECT run_id, started, seconds, cost, max(started + seconds) OVER (
        PARTITION BY run_id ORDER BY started, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM calls) AS calls
"""
"""The query for the time and the cost of runs, without its condition and groups. `before`: the end
of the calls that began earlier; time counts once in which several calls are under way."""


def read_spending(connection: Connection, ids: Sequence[str]) -> dict[str, RunSpending]:
    """Return the time and the cost of these runs, without runs that made no calls."""
    query = sql(f"{SPENDING} WHERE run_id IN :ids GROUP BY run_id")
    query = query.bindparams(bindparam("ids", expanding=True))
    rows = connection.execute(query, {"ids": list(ids)})
    return {id: RunSpending(seconds, cost) for id, seconds, cost in rows}


_REMOVE_CALLS = """
DELETE FROM calls WHERE id IN (
    SELECT id FROM calls WHERE run_id = :run
    UNION SELECT call_id FROM reuses WHERE run_id = :run
)
AND NOT EXISTS (SELECT 1 FROM reuses WHERE call_id = calls.id AND run_id <> :run)
AND (run_id = :run OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = calls.run_id))
"""


def delete_run(connection: Connection, run_id: str) -> Freed:
    """Remove the run with its cases, records and calls, except calls that other runs reuse, and the
    texts that nothing uses any more. Raises BusyError while a living process works on it, or a
    batch job of it is open at its provider."""
    lease.require_free(connection, run_id, "stop it first")

    for job in fetch_all(connection, batches, run_id=run_id, state="submitted"):
        raise BusyError(  # it is paid for, and nobody would know of it
            f"run {run_id}: batch job {job.remote_id} is still open at its provider; end it first"
            f" with: textevolve runs cancel-batch {run_id}"
        )

    this = {"run": run_id}
    query = "SELECT 1 FROM cases WHERE run_id = :run AND substr(body, 1, 1) = :mark LIMIT 1"
    images = connection.execute(sql(query), {**this, "mark": IMAGES}).one_or_none()
    removed = delete_where(connection, cases, run_id=run_id)
    for table in (records, served_runs, batches):
        delete_where(connection, table, run_id=run_id)
    delete_where(connection, runs, id=run_id)
    calls = connection.execute(sql(_REMOVE_CALLS), this).rowcount
    delete_where(connection, reuses, run_id=run_id)
    unused = 0
    if calls or images:
        unused = sweep_texts(connection)
        connection.exec_driver_sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'")

    return Freed(removed, calls, unused)
