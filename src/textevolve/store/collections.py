"""Namespaces, users and collections, without the memories in them.

Functions of a connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.engine import Connection

from textevolve.agents.resources import (
    CollectionSpec,
    NamespaceSpec,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.errors import InputError, TakenError
from textevolve.memory.record import Collection
from textevolve.store import tables
from textevolve.store.agents import delete_agent, list_agents, users_of_collection
from textevolve.store.jobs import delete_job, list_jobs
from textevolve.store.labelling import delete_tasks_of
from textevolve.store.memory_collections import erase_collection
from textevolve.store.memory_rows import collection_of
from textevolve.store.resource_rows import (
    COLLECTION,
    EVERYTHING,
    NAMESPACE,
    USER,
    NameRange,
    delete_where,
    insert_row,
    list_rows,
    merge_spec,
    namespace_id,
    refuse_taken,
    require_row,
    update_row,
)
from textevolve.store.tables import namespace_tokens


def ensure_namespace(connection: Connection, name: str) -> None:
    """Make a namespace unless it is there."""
    table = tables.namespaces
    if connection.execute(select(table.c.id).where(table.c.name == name)).first() is None:
        insert_row(connection, NAMESPACE, NamespaceSpec(name=name), None, {"description": ""})


def create_namespace(connection: Connection, spec: NamespaceSpec) -> StoredNamespace:
    """
    Raises:
        InputError: the name is taken.
    """
    insert_row(connection, NAMESPACE, spec, None, spec.model_dump(exclude={"name"}))
    return get_namespace(connection, spec.name)


def get_namespace(connection: Connection, name: str) -> StoredNamespace:
    """
    Raises:
        InputError: it is not there.
    """
    return _read_namespace(require_row(connection, NAMESPACE, name))


def list_namespaces(connection: Connection, span: NameRange = EVERYTHING) -> list[StoredNamespace]:
    return [_read_namespace(row) for row in list_rows(connection, NAMESPACE, None, span)]


def update_namespace(
    connection: Connection, name: str, changes: Mapping[str, Any]
) -> StoredNamespace:
    """
    Raises:
        InputError: it is not there, or cannot be so.
    """
    stored = get_namespace(connection, name)
    spec = merge_spec(stored.spec, {**changes, "name": name})
    update_row(connection, NAMESPACE, stored.id, **spec.model_dump(exclude={"name"}))
    return get_namespace(connection, name)


def delete_namespace(connection: Connection, name: str) -> None:
    """Remove it, with all that belongs to it.

    Raises:
        InputError: it is not there.
    """
    id = namespace_id(connection, name)
    for agent in list_agents(connection, name):
        delete_agent(connection, name, agent.spec.name)
    for collection in list_collections(connection, name):
        erase_collection(connection, collection.id)
    for job in list_jobs(connection, name):
        delete_job(connection, name, job.name)
    delete_tasks_of(connection, id)
    delete_where(connection, tables.users, namespace_id=id)
    delete_where(connection, namespace_tokens, namespace_id=id)
    delete_where(connection, tables.namespaces, id=id)


def create_user(connection: Connection, namespace: str, spec: UserSpec) -> StoredUser:
    """
    Raises:
        InputError: the name is taken.
    """
    insert_row(connection, USER, spec, namespace, {"description": spec.description})
    return get_user(connection, namespace, spec.name)


def get_user(connection: Connection, namespace: str, name: str) -> StoredUser:
    """
    Raises:
        InputError: there is none of this name.
    """
    return _read_user(namespace, require_row(connection, USER, name, namespace))


def list_users(
    connection: Connection, namespace: str, span: NameRange = EVERYTHING
) -> list[StoredUser]:
    rows = list_rows(connection, USER, namespace, span)
    return [_read_user(namespace, row) for row in rows]


def update_user(
    connection: Connection, namespace: str, name: str, changes: Mapping[str, Any]
) -> StoredUser:
    """
    Raises:
        InputError: there is none of this name, or it cannot be so.
    """
    stored = get_user(connection, namespace, name)
    spec = merge_spec(stored.spec, {**changes, "name": name})
    update_row(connection, USER, stored.id, description=spec.description)
    return get_user(connection, namespace, name)


def delete_user(connection: Connection, namespace: str, name: str) -> None:
    """
    Raises:
        InputError: there is none of this name.
    """
    delete_where(connection, tables.users, id=require_row(connection, USER, name, namespace).id)


def create_collection(connection: Connection, namespace: str, spec: CollectionSpec) -> Collection:
    """
    Raises:
        InputError: the name is taken, or its embedder or dimension is not known.
    """
    refuse_taken(connection, COLLECTION, spec.name, namespace)
    if spec.embedder is None or spec.dimension is None:
        raise InputError(f"collection '{spec.name}': its embedder and dimension must be known")
    now = time.time()
    values = {
        "kind": spec.kind,
        "embedder": spec.embedder,
        "dimension": spec.dimension,
        "description": spec.description,
        "version": 0,
        "changed": now,
        "created": now,
    }
    insert_row(connection, COLLECTION, spec, namespace, values)
    return get_collection(connection, namespace, spec.name)


def get_collection(connection: Connection, namespace: str, name: str) -> Collection:
    """
    Raises:
        InputError: it is not there.
    """
    return collection_of(require_row(connection, COLLECTION, name, namespace), namespace)


def list_collections(
    connection: Connection, namespace: str, span: NameRange = EVERYTHING
) -> list[Collection]:
    rows = list_rows(connection, COLLECTION, namespace, span)
    return [collection_of(row, namespace) for row in rows]


def count_memories(connection: Connection, namespace: str) -> dict[str, int]:
    """How many memories each collection holds now, by its name."""
    table = tables.memories.c
    held = select(table.collection_id, func.count().label("held")).where(
        table.namespace_id == namespace_id(connection, namespace), table.closed.is_(None)
    )
    rows = connection.execute(held.group_by(table.collection_id)).all()
    counts: dict[str, int] = {row.collection_id: row.held for row in rows}
    return {one.name: counts.get(one.id, 0) for one in list_collections(connection, namespace)}


def update_collection(
    connection: Connection, namespace: str, name: str, changes: Mapping[str, Any]
) -> Collection:
    """Only its description can be changed.

    Raises:
        InputError: it is not there, or something else was to be changed.
    """
    stored = get_collection(connection, namespace, name)
    for field in changes:
        if field != "description":
            raise InputError(
                f"collection '{name}': its {field} is chosen for good"
                + ("; see textevolve memories re-embed" if field == "embedder" else "")
            )
    spec = merge_spec(CollectionSpec(name=name, description=stored.description), changes)
    update_row(connection, COLLECTION, stored.id, description=spec.description)
    return get_collection(connection, namespace, name)


def delete_collection(
    connection: Connection, namespace: str, name: str, *, force: bool = False
) -> None:
    """Remove it with its memories; `force`: also where agents name it.

    Raises:
        NotFoundError: it is not there. TakenError: agents name it.
    """
    if not force:
        require_unnamed(connection, namespace, name)
    erase_collection(connection, require_row(connection, COLLECTION, name, namespace).id)


def require_unnamed(connection: Connection, namespace: str, name: str) -> None:
    """
    Raises:
        TakenError: agents name the collection.
    """
    if named := users_of_collection(connection, namespace, name):
        raise TakenError(
            f"collection '{name}': is named by {', '.join(named)}; give them another one with"
            " textevolve agents update, or delete it by force (--force, force=true)"
        )


def list_memory_texts(connection: Connection, namespace: str, name: str | None = None) -> list[str]:
    """The texts of all memories of a collection, or of the whole namespace, each once.

    Raises:
        NotFoundError: it is not there.
    """
    table = tables.memories.c
    query = select(table.text).where(table.namespace_id == namespace_id(connection, namespace))
    if name is not None:
        own = require_row(connection, COLLECTION, name, namespace).id
        query = query.where(table.collection_id == own)
    return list(connection.execute(query.where(table.text != "").distinct()).scalars())


def _read_namespace(row: Row[Any]) -> StoredNamespace:
    spec = NamespaceSpec(
        name=row.name, description=row.description, tokens_per_day=row.tokens_per_day
    )
    return StoredNamespace(row.id, spec, row.created, row.updated)


def _read_user(namespace: str, row: Row[Any]) -> StoredUser:
    spec = UserSpec(name=row.name, description=row.description)
    return StoredUser(row.id, namespace, spec, row.created, row.updated)
