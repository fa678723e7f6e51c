"""Store exported resources of another store, all in one transaction. `desk/exchange.py` reads
and writes the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from time import time
from typing import Any

from sqlalchemy.engine import Connection

from textevolve.errors import TakenError
from textevolve.memory.record import Add, Collection, MemoryRecord, NewMemory, Vector
from textevolve.store.kinds import NAMESPACES, Kind, create
from textevolve.store.memory_changes import Transaction, check_changes
from textevolve.store.resource_rows import namespace_id, require_free_name


@dataclass(eq=False)
class Exported:
    """A resource in an exported file.

    Attributes:
        kind: Its kind, such as agents.
        stored: The resource as the other store had it.
        spec: Its specification in this store.
        memories: The memories of a collection, in the order in which they were added.
        vectors: The embeddings of the memories by id.
    """

    kind: Kind[Any, Any]
    stored: Any
    spec: Any
    memories: list[MemoryRecord] = field(default_factory=list[MemoryRecord])
    vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])


def require_free_names(
    connection: Connection, namespace: str, resources: Sequence[Exported]
) -> None:
    """Check that the names of imported resources are free.

    Raises:
        TakenError: a name is taken. NotFoundError: the namespace does not exist.
    """
    for each in resources:
        try:
            require_free_name(connection, each.kind, each.spec.name, namespace)
        except TakenError as error:
            raise TakenError(
                f"{str(error).partition(';')[0]}; --name gives it another name here"
            ) from None
        if each.kind is NAMESPACES:
            return  # a new namespace has no names yet


def store_all(connection: Connection, namespace: str, resources: Sequence[Exported]) -> None:
    """Store resources as new ones, all or none.

    Raises:
        InputError: a name is taken, or a memory cannot be stored.
    """
    for each in resources:
        stored = create(connection, each.kind, namespace, each.spec)
        if each.memories:
            _store_memories(connection, namespace_id(connection, namespace), stored, each)


def _store_memories(
    connection: Connection, space: str, collection: Collection, each: Exported
) -> None:
    """Add memories under new ids; memories that cite others are added after those that cite none.
    Citations of memories that were not added before are left out."""
    ids: dict[str, str] = {}
    plain = [memory for memory in each.memories if not memory.cites]
    for group in (plain, [memory for memory in each.memories if memory.cites]):
        changes = [Add(_as_new(memory, each.vectors[memory.id], ids)) for memory in group]
        check_changes(collection, changes)
        transaction = Transaction(connection, space, collection, collection.version + 1, time())
        applied = transaction.apply(changes, None)
        collection = replace(collection, version=applied.version)
        ids |= {memory.id: id for memory, id in zip(group, applied.ids, strict=True)}


def _as_new(memory: MemoryRecord, vector: Vector, ids: Mapping[str, str]) -> NewMemory:
    names = {field.name for field in fields(NewMemory)} - {"embedding", "cites"}
    values = {name: getattr(memory, name) for name in names}
    cites = tuple(ids[id] for id in memory.cites if id in ids)
    return NewMemory(**values, embedding=vector, cites=cites)
