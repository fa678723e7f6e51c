"""Namespaces, users and collections, without the memories in them.

Functions of a connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from textevolve.agents.resources import (
    CollectionSpec,
    NamespaceSpec,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.errors import InputError
from textevolve.memory.record import Collection
from textevolve.store import memory_tables as tables
from textevolve.store.agents import delete_agent, list_agents, users_of_collection
from textevolve.store.resource_rows import (
    COLLECTION,
    NAMESPACE,
    USER,
    delete_where,
    find_row,
    insert_row,
    list_rows,
    merge_spec,
    namespace_id,
    update_row,
)


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
    insert_row(connection, NAMESPACE, spec, None, {"description": spec.description})
    return get_namespace(connection, spec.name)


def get_namespace(connection: Connection, name: str) -> StoredNamespace:
    """
    Raises:
        InputError: it is not there.
    """
    return _read_namespace(find_row(connection, NAMESPACE, name))


def list_namespaces(connection: Connection) -> list[StoredNamespace]:
    return [_read_namespace(row) for row in list_rows(connection, NAMESPACE)]


def update_namespace(
    connection: Connection, name: str, changes: Mapping[str, Any]
) -> StoredNamespace:
    """
    Raises:
        InputError: it is not there, or cannot be so.
    """
    stored = get_namespace(connection, name)
    spec = merge_spec(stored.spec, {**changes, "name": name})
    update_row(connection, NAMESPACE, stored.id, description=spec.description)
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
    for table in (tables.users, tables.collections):
        delete_where(connection, table, namespace_id=id)
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
    return _read_user(namespace, find_row(connection, USER, name, namespace))


def list_users(connection: Connection, namespace: str) -> list[StoredUser]:
    return [_read_user(namespace, row) for row in list_rows(connection, USER, namespace)]


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
    delete_where(connection, tables.users, id=find_row(connection, USER, name, namespace).id)


def create_collection(connection: Connection, namespace: str, spec: CollectionSpec) -> Collection:
    """
    Raises:
        InputError: the name is taken, or its embedder or dimension is not known.
    """
    if spec.embedder is None or spec.dimension is None:
        raise InputError(f"collection '{spec.name}': its embedder and dimension must be known")
    values = {
        "kind": spec.kind,
        "embedder": spec.embedder,
        "dimension": spec.dimension,
        "description": spec.description,
        "version": 0,
        "changed": time.time(),
    }
    insert_row(connection, COLLECTION, spec, namespace, values)
    return get_collection(connection, namespace, spec.name)


def get_collection(connection: Connection, namespace: str, name: str) -> Collection:
    """
    Raises:
        InputError: it is not there.
    """
    return read_collection(namespace, find_row(connection, COLLECTION, name, namespace))


def list_collections(connection: Connection, namespace: str) -> list[Collection]:
    rows = list_rows(connection, COLLECTION, namespace)
    return [read_collection(namespace, row) for row in rows]


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
        InputError: it is not there, or agents name it.
    """
    id = find_row(connection, COLLECTION, name, namespace).id
    named = users_of_collection(connection, namespace, name)
    if named and not force:
        raise InputError(
            f"collection '{name}': is named by {', '.join(named)}; give them another one with"
            " textevolve agents update, or delete it with --force"
        )
    erase_collection(connection, id)
    delete_where(connection, tables.collections, id=id)


def read_collection(namespace: str, row: Row[Any]) -> Collection:
    return Collection(
        id=row.id,
        namespace=namespace,
        name=row.name,
        kind=row.kind,
        embedder=row.embedder,
        dimension=row.dimension,
        version=row.version,
        changed=row.changed,
        created=row.created,
        description=row.description,
    )


def erase_collection(connection: Connection, id: str) -> None:
    """Remove all memories of a collection, with their history."""
    seqs = select(tables.memories.c.seq).where(tables.memories.c.collection_id == id)
    for table in (tables.embeddings, tables.mentions, tables.relations, tables.uses):
        connection.execute(table.delete().where(table.c.seq.in_(seqs)))
    for table in (tables.memories, tables.sources, tables.versions):
        delete_where(connection, table, collection_id=id)


def _read_namespace(row: Row[Any]) -> StoredNamespace:
    spec = NamespaceSpec(name=row.name, description=row.description)
    return StoredNamespace(row.id, spec, row.created, row.updated)


def _read_user(namespace: str, row: Row[Any]) -> StoredUser:
    spec = UserSpec(name=row.name, description=row.description)
    return StoredUser(row.id, namespace, spec, row.created, row.updated)
