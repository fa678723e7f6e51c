"""Create, read, change, list and delete namespaces, agents, collections and users, with versions.

Each kind has a specification and an entry in `KINDS`. All functions take a connection and the
namespace of a resource; resources of other namespaces are never read or changed. The name of a
namespace is unique in the store; for namespaces themselves the argument is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Row, Select, func, select
from sqlalchemy.engine import Connection

from textevolve.agents.resources import (
    AgentSpec,
    CollectionSpec,
    NamespaceSpec,
    SpecVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    UserSpec,
    agent_collections,
    split_name,
)
from textevolve.errors import ConflictError, InputError, NotFoundError, TakenError
from textevolve.evaluation import check_text
from textevolve.mappings import omit, pick, read_fields
from textevolve.memory.record import Collection
from textevolve.spec import Frozen
from textevolve.store import tables
from textevolve.store.jobs import delete_job, list_jobs
from textevolve.store.keys import leave_namespace
from textevolve.store.labelling import delete_tasks_of
from textevolve.store.memory_changes import (
    erase_collection,
    erase_user_memories,
    select_user_memories,
)
from textevolve.store.resource_rows import (
    EVERYTHING,
    NameRange,
    ResourceTable,
    build,
    check_texts,
    delete_where,
    fetch_all,
    fetch_one,
    insert_row,
    insert_rows,
    list_rows,
    mapping_of,
    match,
    merge_fields,
    namespace_id,
    require_free_name,
    require_row,
    update_row,
)
from textevolve.store.tables import namespace_tokens

S = TypeVar("S", bound=Frozen)
R = TypeVar("R")
_versions = tables.resource_versions


def _accept(_connection: Connection, _namespace: str, _spec: Any) -> None:
    """Accept every specification, for kinds that need no check against the rest of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(ResourceTable, Generic[S, R]):
    """A kind of resource. Fields of its specification are columns of its table, or are stored as
    JSON in the column `spec`.

    Attributes:
        spec: The type of its specification, from which options, HTTP bodies and Python's keywords
            are generated.
        stored: The type of a stored resource; its fields are columns, `namespace`, `spec` and
            `spec_version`.
        columns: The fields that a list shows.
        fixed: The fields that never change.
        holds: What is deleted with a resource, for the warning before it.
        check: A function that raises InputError if a specification does not fit the rest of the
            store.
        erase: A function that deletes everything that belongs to a row, before the row itself.
    """

    spec: type[S]
    stored: type[R]
    columns: Sequence[str]
    fixed: Sequence[str] = ("name",)
    holds: str = ""
    check: Callable[[Connection, str, S], None] = _accept
    erase: Callable[[Connection, Row[Any]], None] = lambda _connection, _row: None

    def query(self) -> Select[Any]:
        """Select rows with the newest version of each, which may be missing in older stores."""
        every = _versions.alias().c
        id = self.table.c.id
        newest = select(func.max(every.version)).where(every.resource_id == id).scalar_subquery()
        joined = (_versions.c.resource_id == id) & (_versions.c.version == newest)
        version = _versions.c.version.label("newest"), _versions.c.spec.label("newest_spec")
        return ResourceTable.query(self).outerjoin(_versions, joined).add_columns(*version)


def create(
    connection: Connection, kind: Kind[S, R], namespace: str, spec: S, source: str = ""
) -> R:
    """Create a resource.

    Raises:
        TakenError: the name is taken. InputError: the specification cannot be stored.
    """
    name = getattr(spec, "name")  # noqa: B009
    require_free_name(connection, kind, name, namespace)
    kind.check(connection, namespace, spec)
    id = insert_row(connection, kind, spec, namespace, _columns(kind, spec))
    store_version(connection, id, SpecVersion(1, time.time(), _fields(spec), source))

    return get(connection, kind, namespace, name)


def get(connection: Connection, kind: Kind[S, R], namespace: str, name: str) -> R:
    """Return the resource of this name.

    Raises:
        NotFoundError: no resource has this name.
    """
    return _read(kind, require_row(connection, kind, name, namespace))


def list_all(
    connection: Connection, kind: Kind[S, R], namespace: str = "", span: NameRange = EVERYTHING
) -> list[R]:
    """List the resources of a namespace that are in `span`, sorted by name."""
    return [_read(kind, row) for row in list_rows(connection, kind, namespace, span)]


def update(
    connection: Connection,
    kind: Kind[S, R],
    namespace: str,
    name: str,
    changes: Mapping[str, Any],
    source: str = "",
    reasons: Sequence[Mapping[str, Any]] = (),
    expected: int | None = None,
) -> R:
    """Change fields of a specification, which makes a new version unless nothing differs.

    Args:
        source: What changes it, such as a run.
        reasons: What changes and why, as JSON-ready data.
        expected: The version that the change is meant for; None: any.

    Raises:
        NotFoundError: no resource has this name. InputError: a change of a field is invalid.
        ConflictError: another version than the expected one is current.
    """
    row = require_row(connection, kind, name, namespace)
    for field in changes:
        if field in kind.fixed:
            hint = "; see textevolve memories re-embed" if field == "embedder" else ""
            raise InputError(f"{kind.noun} '{name}': its {field} cannot be changed{hint}")

    old = _read_spec(kind, row)
    spec = type(old)(**merge_fields(old.model_dump(), changes))
    kind.check(connection, namespace, spec)
    check_texts(spec)
    if spec == old:
        return _read(kind, row)
    newest = row.newest or 1

    if expected not in (None, newest):
        raise ConflictError(
            f"{kind.noun} {kind.full_name(name, namespace)}: was changed meanwhile by another"
            f" client (version {newest}); read it again and repeat the change"
        )

    if row.newest is None:
        store_version(connection, row.id, _first_version(row, old))
    update_row(connection, kind, row.id, **_columns(kind, spec))
    version = SpecVersion(newest + 1, time.time(), _fields(spec), source, reasons)
    store_version(connection, row.id, version)

    return get(connection, kind, namespace, name)


def list_versions(
    connection: Connection, kind: Kind[Any, Any], namespace: str, name: str
) -> list[SpecVersion]:
    """List all versions of a resource, the oldest first.

    Raises:
        NotFoundError: no resource has this name.
    """
    row = require_row(connection, kind, name, namespace)
    versions = [
        SpecVersion(
            each.version, each.created, json.loads(each.spec), each.source, json.loads(each.changes)
        )
        for each in fetch_all(connection, _versions, "version", resource_id=row.id)
    ]

    return versions or [_first_version(row, _read_spec(kind, row))]


def revert(connection: Connection, kind: Kind[S, R], namespace: str, name: str, version: int) -> R:
    """Restore an earlier version as the newest one. Fixed fields stay.

    Raises:
        NotFoundError: the resource or the version does not exist. InputError: the version does not
            fit the store any more.
    """
    specs = {each.version: each.spec for each in list_versions(connection, kind, namespace, name)}

    if version not in specs:
        raise NotFoundError(
            f"{kind.noun} '{name}': has no version {version}; there are:"
            f" {', '.join(map(str, specs))}"
        )

    changes = omit(pick(specs[version], kind.spec.model_fields), kind.fixed)

    return update(
        connection,
        kind,
        namespace,
        name,
        _without_association(changes),
        f"back to version {version}",
    )


def store_version(connection: Connection, id: str, version: SpecVersion) -> None:
    row = {**asdict(version), "resource_id": id}
    for name in ("spec", "changes"):
        row[name] = json.dumps(row[name])
    insert_rows(connection, _versions, [row])


def _first_version(row: Row[Any], spec: Frozen) -> SpecVersion:
    """Return version 1 of a resource that an early TextEvolve stored without versions."""
    return SpecVersion(1, row.created, _fields(spec))


def delete(
    connection: Connection, kind: Kind[S, R], namespace: str, name: str, *, force: bool = False
) -> None:
    """Delete a resource with everything that belongs to it. `force`: delete a collection even if
    agents use it.

    Raises:
        NotFoundError: no resource has this name. TakenError: agents use the collection.
    """
    if not force:
        require_unnamed(connection, kind, namespace, name)
    _delete_row(connection, kind, require_row(connection, kind, name, namespace))


def _delete_row(connection: Connection, kind: Kind[Any, Any], row: Row[Any]) -> None:
    kind.erase(connection, row)
    delete_where(connection, _versions, resource_id=row.id)
    delete_where(connection, kind.table, id=row.id)


def require_unnamed(
    connection: Connection, kind: Kind[Any, Any], namespace: str, name: str
) -> None:
    """Check that no agent of the namespace uses the resource, which is possible for collections
    only; other kinds always pass.

    Raises:
        TakenError: agents use it.
    """
    agents = list_all(connection, AGENTS, namespace) if kind is COLLECTIONS else []
    users = [
        agent.spec.name
        for agent in agents
        if name in (split_name(each, namespace)[1] for each in agent_collections(agent.spec))
    ]

    if users:
        raise TakenError(
            f"collection '{name}': is used by {', '.join(users)}; give these agents another"
            " collection with textevolve agents update, or delete it by force (--force,"
            " force=true)"
        )


def list_memory_texts(
    connection: Connection, kind: Kind[Any, Any], namespace: str, name: str
) -> list[str]:
    """List the texts of all memories that are deleted with a namespace, a collection or a user,
    each once; none for agents.

    Raises:
        NotFoundError: no resource has this name.
    """
    row = require_row(connection, kind, name, namespace)
    table = tables.memories.c
    if kind is USERS:
        owned = select_user_memories(row.namespace_id, name).subquery()
        return list(connection.execute(select(owned.c.text).distinct()).scalars())
    owners = {"namespaces": table.namespace_id, "collections": table.collection_id}
    if kind.command not in owners:
        return []
    query = select(table.text).where(owners[kind.command] == row.id, table.text != "")

    return list(connection.execute(query.distinct()).scalars())


def ensure_namespace(connection: Connection, name: str) -> None:
    """Create a namespace unless it exists."""
    if fetch_one(connection, tables.namespaces, name=name) is None:
        create(connection, NAMESPACES, "", NamespaceSpec(name=name))


def count_memories(connection: Connection, namespace: str) -> dict[str, int]:
    """Count the current memories of each collection, by its name."""
    table = tables.memories.c
    counted = select(table.collection_id, func.count().label("held")).where(
        table.namespace_id == namespace_id(connection, namespace), table.closed.is_(None)
    )
    rows = connection.execute(counted.group_by(table.collection_id)).all()
    counts: dict[str, int] = {row.collection_id: row.held for row in rows}

    return {
        each.name: counts.get(each.id, 0) for each in list_all(connection, COLLECTIONS, namespace)
    }


def _columns(kind: Kind[S, Any], spec: S) -> dict[str, Any]:
    """Return the values of a row's columns that the specification gives."""
    values = omit(pick(spec.model_dump(), kind.table.c.keys()), ["name"])
    if "spec" in kind.table.c:
        values["spec"] = spec.model_dump_json(exclude={"persona"})
    return values


def _fields(spec: Frozen) -> dict[str, Any]:
    """Return the fields of a specification that a version stores."""
    return spec.model_dump(mode="json", exclude={"name"})


def _read_spec(kind: Kind[S, Any], row: Row[Any]) -> S:
    """Read a row's specification; fields that the row lacks are read from its newest version.
    Fields of other versions of the program are ignored."""
    newest = json.loads(row.newest_spec or "{}")
    values = mapping_of(row)
    values = {**newest, **json.loads(values.get("spec", "{}")), **values}
    known = pick(values, kind.spec.model_fields)
    return kind.spec(**_without_association(known))


def _without_association(fields: dict[str, Any]) -> dict[str, Any]:
    """Return stored fields of an agent, which recalls by association no longer."""
    if memory := fields.get("memory"):
        fields["memory"] = omit(memory, ["associate"])
    return fields


def spec_of(kind: Kind[S, R], stored: R) -> S:
    """Return the specification of a resource."""
    if isinstance(stored, Collection):
        return kind.spec(**read_fields(stored, *kind.spec.model_fields))
    return getattr(stored, "spec")  # noqa: B009


def _read(kind: Kind[S, R], row: Row[Any]) -> R:
    values = {"spec": _read_spec(kind, row), "spec_version": row.newest or 1}
    return build(kind.stored, {**mapping_of(row), **values})


def _check_agent(connection: Connection, namespace: str, spec: AgentSpec) -> None:
    check_text("the persona", spec.persona)
    for collection in agent_collections(spec):
        space, name = split_name(collection, namespace)
        if space != namespace:
            raise InputError(
                f"collection '{collection}': an agent stores memories only in its own namespace,"
                f" '{namespace}'"
            )

        require_row(connection, COLLECTIONS, name, namespace)


def _check_collection(_connection: Connection, _namespace: str, spec: CollectionSpec) -> None:
    if spec.embedder is None or spec.dimension is None:
        raise InputError(f"collection '{spec.name}': set its embedder and dimension")


def _erase_namespace(connection: Connection, row: Row[Any]) -> None:
    for kind in (AGENTS, COLLECTIONS, USERS):
        for each in list_rows(connection, kind, row.name):
            _delete_row(connection, kind, each)
    for job in list_jobs(connection, row.name):
        delete_job(connection, row.name, job.name)
    delete_tasks_of(connection, row.id)
    leave_namespace(connection, row.name)
    delete_where(connection, namespace_tokens, namespace_id=row.id)


def _erase_agent(connection: Connection, row: Row[Any]) -> None:
    """Delete an agent's chats; its memories stay where they are."""
    _delete_chats(connection, agent_id=row.id)


def _erase_user(connection: Connection, row: Row[Any]) -> None:
    """Delete a user's chats and erase the memories of the user: another user of this name would
    continue and recall them."""
    _delete_chats(connection, namespace_id=row.namespace_id, user=row.name)
    erase_user_memories(connection, row.namespace, row.name)


def _delete_chats(connection: Connection, **owner: str) -> None:
    """Delete the chats whose columns have these values, with their messages."""
    chats = select(tables.sessions.c.id).where(*match(tables.sessions, owner))
    delete_where(connection, tables.messages, session_id=chats)
    delete_where(connection, tables.sessions, **owner)


NAMESPACES = Kind(
    "namespace",
    "namespaces",
    tables.namespaces,
    "ns",
    spec=NamespaceSpec,
    stored=StoredNamespace,
    columns=("name", "created", "description"),
    holds="all its agents, collections, memories, users and chats, its jobs and labelling tasks,"
    " and the keys that are limited to it (its runs stay, for keys that see all namespaces)",
    erase=_erase_namespace,
)
AGENTS = Kind(
    "agent",
    "agents",
    tables.agents,
    "ag",
    'create {} --persona "You are helpful."',
    spec=AgentSpec,
    stored=StoredAgent,
    columns=("name", "spec_version", "updated", "model", "collections", "persona"),
    holds="its versions and chats (memories stay in their collections)",
    check=_check_agent,
    erase=_erase_agent,
)
COLLECTIONS = Kind(
    "collection",
    "collections",
    tables.collections,
    "co",
    spec=CollectionSpec,
    stored=Collection,
    columns=("name", "kind", "memories", "changed", "embedder", "description"),
    fixed=("name", "kind", "embedder", "dimension"),
    holds="all its memories",
    check=_check_collection,
    erase=erase_collection,
)
USERS = Kind(
    "user",
    "users",
    tables.users,
    "us",
    spec=UserSpec,
    stored=StoredUser,
    columns=("name", "created", "description"),
    holds="the user's chats, and all memories of the user",
    erase=_erase_user,
)
KINDS: Mapping[str, Kind[Any, Any]] = {
    kind.command: kind for kind in (NAMESPACES, AGENTS, COLLECTIONS, USERS)
}
"""The kinds by their groups of commands."""
