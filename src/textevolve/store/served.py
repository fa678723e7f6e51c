"""Runs that a server performs for its clients, with their owners and wanted states, and lists of
runs that are filtered, counted and sorted in the database.

Every function takes a connection; functions that write are called inside a transaction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import Select, func, select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection, Row

from textevolve.llm.model import text_hash
from textevolve.settings import StoreLocation, folder_beside
from textevolve.store import lease
from textevolve.store.documents import bytes_to_text, dump_json
from textevolve.store.resource_rows import build, fetch_all, fetch_one, mapping_of, replace_row
from textevolve.store.runs import SPENDING, RunRecord, row_to_record
from textevolve.store.tables import namespaces, runs, served_runs

WantedState: TypeAlias = Literal["running", "cancelled", "limited", "failed"]
"""The state that a run should have. `running`: a server resumes it when it starts. `cancelled`: a
client stopped it. `limited`: its limits are reached. `failed`: no call can succeed."""


def files_folder(store: StoreLocation) -> Path:
    """Return the folder of clients' files for a store, on the machine of the server."""
    if isinstance(store, Path):
        return store.with_name(f"{store.name}.files")
    return folder_beside(store) / f"{text_hash(str(store))[:16]}.files"


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

    def outlives(self, space: NamespaceMark | None) -> bool:
        """Check whether the run certainly belongs to an earlier namespace than this one of its
        namespace's name; None: no namespace has that name now."""
        return bool(self.namespace_id) and (space is None or space.id != self.namespace_id)

    def is_of(self, space: NamespaceMark | None) -> bool:
        """Check whether the run belongs to this namespace of its namespace's name; None: no
        namespace has that name now."""
        if self.namespace_id or space is None:
            return self.namespace_id == (space.id if space else "")
        return self.created >= space.created


@dataclass(frozen=True, slots=True)
class NamespaceMark:
    """The id and the time of creation of a namespace, which distinguish it from earlier and later
    namespaces of the same name."""

    id: str
    created: float


def read_marks(connection: Connection) -> dict[str, NamespaceMark]:
    """Return the marks of all namespaces by their names."""
    query = select(namespaces.c.name, namespaces.c.id, namespaces.c.created)
    return {row.name: NamespaceMark(row.id, row.created) for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class RunSearch:
    """A filter of runs; empty: all.

    Attributes:
        text: A text in the id, name, source or specification.
        hidden: Kinds that are left out if no kind is chosen.
        since, until: Unix times; only runs that began from the first to before the second one.
        seconds, cost: The least seconds in which a run's calls were under way, and the least cost
            in US dollars. A run without calls has neither, and one with a call of
            unknown price has no cost; both are left out if the figure is above 0.
        accepts: A function that chooses by the rest of a run, such as its data.
    """

    kind: str = ""
    status: str = ""
    text: str = ""
    hidden: Collection[str] = ()
    since: float = 0.0
    until: float = math.inf
    seconds: float = 0.0
    cost: float = 0.0
    accepts: Callable[[RunRecord], bool] | None = None


@dataclass(frozen=True, slots=True)
class RunMatches:
    """A part of the runs that a search finds. `total`: the number of all of them. `kinds`: the
    kinds of all visible runs, whether the search finds them or not."""

    runs: Sequence[RunRecord]
    total: int
    kinds: Sequence[str]


Sees: TypeAlias = Callable[[ServedRun], bool]
"""A function that returns whether a run is visible, from its server's row."""
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
    return list(map(_read, fetch_all(connection, served_runs)))


def find_unfinished(connection: Connection) -> list[ServedRun]:
    """Return the runs of servers that should continue, the earliest first."""
    joined = served_runs.join(runs, runs.c.id == served_runs.c.run_id)
    query = select(served_runs).select_from(joined)
    query = query.where(served_runs.c.wanted == "running", runs.c.status != "finished")
    return list(map(_read, connection.execute(query.order_by(served_runs.c.created))))


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

    chosen: list[tuple[RunRecord, ServedRun | None]] = []

    for row in connection.execute(query.order_by(runs.c.created.desc(), runs.c.id)):
        run = row_to_record(connection, row)
        served = find_served(connection, run.id)
        if choose(run, served):
            chosen.append((run, served))
        if len(chosen) == limit:
            break

    return chosen


_KIND = re.compile(rb'\{(?:"version":\d+,)?"kind":"([^"\\]*)"')
_HEAD_BYTES = 80
"""The bytes at the beginning of a run's specification that contain its kind. The rest, which may be
long, is only read for the runs that are shown."""


def search_runs(
    connection: Connection, sees: Sees | None, search: RunSearch, start: int, limit: int
) -> RunMatches:
    """Return the runs that a search finds from the place `start`, at most `limit`, the newest
    first. `sees`: returns whether the run of a server's row is visible; None: all runs are."""
    spec = runs.c.spec
    columns = [column for column in runs.c if column.name != "spec"]
    head = func.substr(spec, 1, _HEAD_BYTES).label("head")
    end = func.substr(spec, func.length(spec), 1).label("end")
    visible = _visible_ids(connection, sees)
    visible_kinds: set[str] = set()
    ids: list[str] = []

    for row in connection.execute(_newest_first(select(*columns, head, end))):
        if visible is not None and row.id not in visible:
            continue
        kind, status = _read_head(connection, row)
        visible_kinds.add(kind)
        if search.kind not in ("", kind) or (not search.kind and kind in search.hidden):
            continue
        if search.status in ("", status) and search.since <= row.created < search.until:
            ids.append(row.id)

    if search.text:
        ids = _find_text(connection, ids, search.text)
    if search.accepts is not None:
        ids = [run.id for run in _read_runs(connection, ids) if search.accepts(run)]
    if search.seconds > 0 or search.cost > 0:
        least = {"seconds": search.seconds, "cost": search.cost}
        expensive = set(connection.execute(sql(_EXPENSIVE), least).scalars())
        ids = [id for id in ids if id in expensive]
    page = _read_runs(connection, ids[start : start + limit])

    return RunMatches(page, len(ids), sorted(visible_kinds))


def _newest_first(query: Select[Any]) -> Select[Any]:
    without_drafts = query.where(runs.c.fingerprint.not_like("draft-%"))
    return without_drafts.order_by(runs.c.created.desc(), runs.c.id)


def _visible_ids(connection: Connection, sees: Sees | None) -> set[str] | None:
    if sees is None:
        return None
    return {served.run_id for served in all_served(connection) if sees(served)}


def _read_head(connection: Connection, row: Row[Any]) -> tuple[str, str]:
    """Return the kind and the status of a run by the beginning of its row; a row that looks unusual
    is read whole, since it may be damaged."""
    head = row.head if isinstance(row.head, bytes) else b""
    kind = _KIND.match(head)
    if kind is None or row.end != b"}":
        (run,) = _read_runs(connection, [row.id])
        return str(run.spec.get("kind")), run.status

    is_left = row.status == "running" and not lease.is_held(connection, row)
    return kind[1].decode(errors="replace"), "interrupted" if is_left else row.status


def _find_text(connection: Connection, ids: Sequence[str], text: str) -> list[str]:
    """Return the runs of these ids that contain a text, in the order of the ids. A specification is
    searched as it is stored, as JSON without spaces between its parts."""
    texts = {text.lower(), text.lower().replace('": ', '":').replace('", ', '",')}
    matching: set[str] = set()
    for row in connection.execute(select(runs.c.id, runs.c.name, runs.c.source, runs.c.spec)):
        spec = bytes_to_text(row.spec) if isinstance(row.spec, bytes) else ""
        searched_text = f"{row.id} {row.name} {row.source} {spec}".lower()
        if any(part in searched_text for part in texts):
            matching.add(row.id)

    return [id for id in ids if id in matching]


_EXPENSIVE = f"""
SELECT run_id FROM ({SPENDING} GROUP BY run_id) AS spent
WHERE seconds >= :seconds AND (:cost = 0 OR cost >= :cost)
"""


_AT_ONCE = 500
"""The most runs that one statement names."""


def _read_runs(connection: Connection, ids: Sequence[str]) -> list[RunRecord]:
    """Return the runs of these ids in the order of the ids."""
    records: dict[str, RunRecord] = {}
    for start in range(0, len(ids), _AT_ONCE):
        query = select(runs).where(runs.c.id.in_(ids[start : start + _AT_ONCE]))
        for row in connection.execute(query):
            records[row.id] = row_to_record(connection, row)

    return [records[id] for id in ids]


def finished_ids(connection: Connection, sees: Sees | None) -> list[str]:
    """Return the ids of the finished runs that are visible, as in `search_runs`, the newest
    first."""
    visible = _visible_ids(connection, sees)
    query = _newest_first(select(runs.c.id).where(runs.c.status == "finished"))
    ids = connection.execute(query).scalars()
    return [id for id in ids if visible is None or id in visible]


def read_mentioning(
    connection: Connection, ids: Sequence[str], texts: Collection[str]
) -> list[RunRecord]:
    """Return the runs of these ids whose specifications contain one of the texts as JSON, in the
    order of the ids. Other specifications are not parsed, which would take most of the time."""
    parts = [dump_json(text, "a text")[1:-1] for text in texts]
    query = select(runs.c.id, runs.c.spec).where(runs.c.id.in_(ids))
    mentioning = {
        row.id for row in connection.execute(query) if any(part in row.spec for part in parts)
    }
    return _read_runs(connection, [id for id in ids if id in mentioning])


def _read(row: Row[Any]) -> ServedRun:
    launch = json.loads(row.launch)
    further = {name: launch.pop(name, "") for name in ("reason", "namespace_id")}
    return build(ServedRun, {**mapping_of(row), "launch": launch, **further})
