"""Runs that a server performs for its clients, with their owners and wanted states, and lists of
runs that are filtered, counted and sorted in the database.

Every function takes a connection; functions that write are called inside a transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from textevolve.store.resource_rows import build, fetch_all, fetch_one, mapping_of, replace_row
from textevolve.store.runs import RunRecord, row_to_record
from textevolve.store.tables import namespaces, runs, served_runs

WantedState: TypeAlias = Literal["running", "cancelled", "limited", "failed"]
"""The state that a run should have. `running`: a server resumes it when it starts. `cancelled`: a
client stopped it. `limited`: its limits are reached. `failed`: no call can succeed."""


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A run that a server performs. `key_id`: the id of the key that started it; empty for a
    program on the server's machine. `launch`: its launch options (name and limits) as JSON.
    `reason`: why it must not continue; empty if it may. `namespace_id`: the id of its namespace,
    since a deleted namespace and a later one of its name are different; empty for runs of earlier
    versions, and of a namespace that did not exist."""

    run_id: str
    namespace: str
    key_id: str
    created: float
    wanted: WantedState
    launch: Mapping[str, Any]
    reason: str = ""
    namespace_id: str = ""

    def is_of(self, space: NamespaceMark | None) -> bool:
        """Check whether the run belongs to this namespace of its namespace's name; None: no
        namespace has that name now."""
        if self.namespace_id or space is None:
            return self.namespace_id == (space.id if space else "")
        return self.created >= space.created


@dataclass(frozen=True, slots=True)
class NamespaceMark:
    """What tells a namespace from others that had or will have its name."""

    id: str
    created: float


def read_marks(connection: Connection) -> dict[str, NamespaceMark]:
    """Return the marks of all namespaces by their names."""
    query = select(namespaces.c.name, namespaces.c.id, namespaces.c.created)
    return {row.name: NamespaceMark(row.id, row.created) for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class RunSearch:
    """A filter of runs: by kind, by status, and by a text in the id, name, source or specification;
    empty: all."""

    kind: str = ""
    status: str = ""
    text: str = ""

    def matches(self, run: RunRecord) -> bool:
        text = f"{run.id} {run.name} {run.source} {json.dumps(dict(run.spec), ensure_ascii=False)}"
        return (
            self.kind in ("", run.spec.get("kind"))
            and self.status in ("", run.status)
            and self.text.lower() in text.lower()
        )


Choose: TypeAlias = Callable[[RunRecord, ServedRun | None], bool]
"""A function that returns whether a run belongs to a list, from the run and its server's row, if
any."""


def keep_served(connection: Connection, served: ServedRun) -> None:
    """Store or update a run that a server performs."""
    values = asdict(served)
    further = {name: values.pop(name) for name in ("reason", "namespace_id")}
    values["launch"] = json.dumps({**served.launch, **further})
    replace_row(connection, served_runs, values)


def want(connection: Connection, run_id: str, state: WantedState, reason: str = "") -> None:
    """Set the wanted state of a run, if a server performs it."""
    if (served := find_served(connection, run_id)) is not None:
        keep_served(connection, replace(served, wanted=state, reason=reason))


def find_served(connection: Connection, run_id: str) -> ServedRun | None:
    """Return the server's row of a run; None if no server performs it."""
    row = fetch_one(connection, served_runs, run_id=run_id)
    return None if row is None else _read(row)


def all_served(connection: Connection) -> list[ServedRun]:
    return [_read(row) for row in fetch_all(connection, served_runs)]


def find_unfinished(connection: Connection) -> list[ServedRun]:
    """Return the runs of servers that should continue, the earliest first."""
    joined = served_runs.join(runs, runs.c.id == served_runs.c.run_id)
    query = select(served_runs).select_from(joined)
    query = query.where(served_runs.c.wanted == "running", runs.c.status != "finished")
    return [_read(row) for row in connection.execute(query.order_by(served_runs.c.created))]


def list_found(
    connection: Connection,
    namespaces: Sequence[str] | None,
    after: tuple[float, str] | None,
    choose: Choose,
    limit: int | None,
) -> list[tuple[RunRecord, ServedRun | None]]:
    """Return the newest runs that `choose` accepts, at most `limit` (None: all), newest first, each
    with its server's row, if any. Runs whose cases are not stored completely yet (drafts) are left
    out. `namespaces`: None: all, and runs without one. `after`: the time and the id of the last run
    of the previous page. Most criteria are in no column, so runs are read one by one.
    """
    query = select(runs).where(runs.c.fingerprint.not_like("draft-%"))
    if namespaces is not None:
        seen = served_runs.c.namespace.in_(namespaces)
        query = query.where(runs.c.id.in_(select(served_runs.c.run_id).where(seen)))
    if after is not None:
        created, id = after
        later = (runs.c.created == created) & (runs.c.id > id)
        query = query.where((runs.c.created < created) | later)

    served = {entry.run_id: entry for entry in all_served(connection)}
    chosen: list[tuple[RunRecord, ServedRun | None]] = []

    for row in connection.execute(query.order_by(runs.c.created.desc(), runs.c.id)):
        run = row_to_record(connection, row)
        if choose(run, served.get(run.id)):
            chosen.append((run, served.get(run.id)))
        if len(chosen) == limit:
            break

    return chosen


def find_runs(connection: Connection, namespaces: Collection[str] | None) -> list[RunRecord]:
    """Return all runs of these namespaces, the newest first; `namespaces` None: all runs."""
    spaces = None if namespaces is None else sorted(namespaces)
    return [
        run for run, _ in list_found(connection, spaces, None, lambda _run, _served: True, None)
    ]


def _read(row: Row[Any]) -> ServedRun:
    launch = json.loads(row.launch)
    further = {name: launch.pop(name, "") for name in ("reason", "namespace_id")}
    return build(ServedRun, {**mapping_of(row), "launch": launch, **further})
