"""Resources as they go from one store to another: with their history, and in one transaction.

`studies/exchange.py` reads and writes the files.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from textevolve.agents.resources import SpecVersion
from textevolve.errors import TakenError
from textevolve.memory.record import Collection, MemoryRecord, Vector
from textevolve.store import tables
from textevolve.store.copying import index_collection
from textevolve.store.kinds import (
    COLLECTIONS,
    NAMESPACES,
    Kind,
    create,
    list_versions,
    spec_of,
    store_version,
)
from textevolve.store.memory_changes import Transaction, pack_vector
from textevolve.store.memory_rows import chunks
from textevolve.store.resource_rows import (
    build,
    delete_where,
    mapping_of,
    namespace_id,
    refuse_taken,
)


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A row of `memory_sources`, without its collection."""

    key: str
    label: str
    base: int
    version: int
    created: float
    ids: tuple[str, ...]


@dataclass(eq=False)
class Exported:
    """A resource as a file carries it.

    Attributes:
        stored: The resource as the other store had it.
        spec: The specification that it gets here.
        history: All versions of its specification.
        versions: The versions of a collection, and when each was made.
        sources: The sources of a collection's memories.
        memories: All memories of a collection, in the order in which they were added.
        vectors: The embeddings of memories by id; erased ones have none.
    """

    kind: Kind[Any, Any]
    stored: Any
    spec: Any
    history: Sequence[SpecVersion] = ()
    versions: Sequence[tuple[int, float]] = ()
    sources: Sequence[StoredSource] = ()
    memories: list[MemoryRecord] = field(default_factory=list[MemoryRecord])
    vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])


def read_parts(connection: Connection, kind: Kind[Any, Any], stored: Any) -> dict[str, list[Any]]:
    """Read what belongs to a resource and is no memory, by the names of `Exported`'s fields. Of a
    collection it is as of the version that was read."""
    name, namespace = spec_of(kind, stored).name, getattr(stored, "namespace", "")
    parts: dict[str, list[Any]] = {"history": list_versions(connection, kind, namespace, name)}
    if kind is not COLLECTIONS:
        return parts
    table, origins = tables.versions, tables.sources
    versions = select(table.c.version, table.c.changed).where(
        table.c.collection_id == stored.id, table.c.version <= stored.version
    )
    sources = select(origins).where(
        origins.c.collection_id == stored.id, origins.c.version <= stored.version
    )
    return parts | {
        "versions": [tuple(row) for row in connection.execute(versions.order_by(table.c.version))],
        "sources": [
            build(StoredSource, {**mapping_of(row), "ids": tuple(json.loads(row.ids))})
            for row in connection.execute(sources.order_by(origins.c.version, origins.c.key))
        ],
    }


def require_free_names(
    connection: Connection, namespace: str, resources: Sequence[Exported]
) -> None:
    """
    Raises:
        TakenError: a name is taken. NotFoundError: there is no such namespace.
    """
    for each in resources:
        try:
            refuse_taken(connection, each.kind, each.spec.name, namespace)
        except TakenError as error:
            taken = str(error).partition(";")[0]
            raise TakenError(f"{taken}; --name gives it another name here") from None
        if each.kind is NAMESPACES:
            return  # a new namespace has no names yet


def store_all(connection: Connection, namespace: str, resources: Sequence[Exported]) -> None:
    """Store resources, all or none. Each keeps its id if no other has it, and gets a new one else.

    Raises:
        InputError: a name is taken, or parts of a resource do not fit together.
    """
    for each in resources:
        id = create(connection, each.kind, namespace, each.spec).id
        delete_where(connection, tables.resource_versions, resource_id=id)
        id = _restore(connection, each, id)
        *earlier, newest = each.history or [SpecVersion(1, each.stored.created, {})]
        newest = replace(newest, spec=each.spec.model_dump(mode="json", exclude={"name"}))
        for version in (*earlier, newest):
            store_version(connection, id, version)
        space = namespace_id(connection, namespace)
        if each.kind is COLLECTIONS:
            _store_memories(connection, space, replace(each.stored, id=id), each)


def _restore(connection: Connection, each: Exported, id: str) -> str:
    """Give a new row its old times and versions, and its old id if that is free."""
    table, stored = each.kind.table, each.stored
    taken = connection.execute(select(table.c.id).where(table.c.id == stored.id)).first()
    columns = ("created", "updated", "changed", "version")
    values = {name: getattr(stored, name) for name in columns if hasattr(stored, name)}
    values["id"] = id if taken or not stored.id else stored.id
    connection.execute(update(table).where(table.c.id == id).values(**values))
    return values["id"]


def _store_memories(
    connection: Connection, space: str, collection: Collection, each: Exported
) -> None:
    ids = _choose_ids(connection, each.memories)
    transaction = Transaction(connection, space, collection, collection.version, 0.0)
    put = insert(tables.memories).returning(tables.memories.c.seq, sort_by_parameter_order=True)
    for chunk in chunks(each.memories):
        rows = [_row(space, collection.id, memory, ids) for memory in chunk]
        numbered = list(zip(connection.execute(put, rows).scalars(), chunk, strict=True))
        transaction.connect(numbered)
        packed = [
            {"seq": seq, **pack_vector(each.vectors[memory.id])}
            for seq, memory in numbered
            if memory.id in each.vectors
        ]
        if packed:
            connection.execute(insert(tables.embeddings), packed)
    index_collection(connection, collection)
    owner = {"collection_id": collection.id}
    if each.versions:
        rows = [{**owner, "version": version, "changed": time} for version, time in each.versions]
        connection.execute(insert(tables.versions), rows)
    for source in each.sources:
        renewed = json.dumps([ids.get(id, id) for id in source.ids])
        row = {**_values(source), **owner, "ids": renewed}
        connection.execute(insert(tables.sources).values(row))


def _choose_ids(connection: Connection, memories: Sequence[MemoryRecord]) -> dict[str, str]:
    """Return free ids for memories by those that they had: the same, unless one is taken."""
    table = tables.memories.c
    old = [memory.id for memory in memories]
    taken = any(
        connection.execute(select(table.id).where(table.id.in_(chunk))).first()
        for chunk in chunks(old)
    )
    return {id: f"me_{secrets.token_hex(16)}" if taken else id for id in old}


def _row(
    space: str, collection_id: str, memory: MemoryRecord, ids: Mapping[str, str]
) -> dict[str, Any]:
    values = {**_values(memory.origin), **_values(memory)}
    values = {name: values[name] for name in values if name in tables.memories.c}
    values |= {"namespace_id": space, "collection_id": collection_id, "id": ids[memory.id]}
    values["cites"] = json.dumps([ids.get(cited, cited) for cited in memory.cites])
    values["superseded_by"] = memory.superseded_by and ids[memory.superseded_by]
    return values


def _values(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, which `asdict` would copy to their depth."""
    return {field.name: getattr(instance, field.name) for field in fields(instance)}
