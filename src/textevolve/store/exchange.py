"""Resources as they go from one store to another: with their history, and in one transaction.

What the files look like is the business of `studies/exchange.py`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from textevolve.agents.resources import (
    CollectionSpec,
    PersonaVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
)
from textevolve.errors import TakenError
from textevolve.memory.record import Collection, MemoryRecord, Vector
from textevolve.store import tables
from textevolve.store.kinds import AGENTS, COLLECTIONS, NAMESPACES, USERS, create, keep_persona
from textevolve.store.memory_changes import Transaction, pack_vector
from textevolve.store.memory_collections import search_of
from textevolve.store.memory_rows import Closing, IndexEntry, chunks
from textevolve.store.resource_rows import (
    delete_where,
    list_rows,
    namespace_id,
)


@dataclass(frozen=True, slots=True)
class KeptSource:
    """What a collection was made from: a row of `memory_sources`, without its collection."""

    key: str
    label: str
    base: int
    version: int
    created: float
    ids: tuple[str, ...]


@dataclass
class CollectionContent:
    """A collection with all its memories, in the order in which they were kept. `vectors`: by id,
    of those that were not erased. `versions`: when each was made."""

    collection: Collection
    versions: Sequence[tuple[int, float]] = ()
    sources: Sequence[KeptSource] = ()
    memories: list[MemoryRecord] = field(default_factory=list[MemoryRecord])
    vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A row of `messages`, without its chat."""

    position: int
    role: str
    created: float
    text: str
    details: str


@dataclass(frozen=True, slots=True)
class KeptChat:
    """A row of `sessions`, without its namespace and agent, and what was said."""

    id: str
    user: str
    created: float
    updated: float
    title: str
    messages: tuple[KeptMessage, ...]


@dataclass
class AgentContent:
    """An agent with all versions of its persona, and its chats."""

    agent: StoredAgent
    personas: Sequence[PersonaVersion]
    chats: Sequence[KeptChat] = ()


@dataclass
class Content:
    """What a file holds. Without a namespace it goes into one that is there."""

    namespace: StoredNamespace | None = None
    users: list[StoredUser] = field(default_factory=list[StoredUser])
    collections: list[CollectionContent] = field(default_factory=list[CollectionContent])
    agents: list[AgentContent] = field(default_factory=list[AgentContent])


def read_versions(
    connection: Connection, collection: Collection
) -> tuple[list[tuple[int, float]], list[KeptSource]]:
    """When each version of a collection was made, and what it was made from."""
    table, made = tables.versions.c, tables.sources.c
    asked = select(table.version, table.changed).where(table.collection_id == collection.id)
    versions = connection.execute(asked.order_by(table.version)).all()
    sources = select(tables.sources).where(made.collection_id == collection.id)
    kept = [
        KeptSource(
            one.key, one.label, one.base, one.version, one.created, tuple(json.loads(one.ids))
        )
        for one in connection.execute(sources.order_by(made.version, made.key))
    ]
    return [(one.version, one.changed) for one in versions], kept


def read_vectors(connection: Connection, ids: Sequence[str]) -> dict[str, Vector]:
    """The embeddings of memories, by id; erased ones have none."""
    found: dict[str, Vector] = {}
    table = tables.memories.c
    for chunk in chunks(ids):
        asked = select(table.id, tables.embeddings.c.vector).join(
            tables.embeddings, tables.embeddings.c.seq == table.seq
        )
        for id, vector in connection.execute(asked.where(table.id.in_(chunk))):
            found[id] = np.frombuffer(vector, dtype="<f4").astype(np.float32)
    return found


def read_chats(connection: Connection, agent: StoredAgent) -> list[KeptChat]:
    """The chats with an agent, the oldest first."""
    table, said = tables.sessions, tables.messages
    asked = select(table).where(table.c.agent_id == agent.id).order_by(table.c.created, table.c.id)
    found: list[KeptChat] = []
    for row in connection.execute(asked).all():
        of = select(said).where(said.c.session_id == row.id).order_by(said.c.position)
        messages = tuple(
            KeptMessage(one.position, one.role, one.created, one.text, one.details)
            for one in connection.execute(of)
        )
        found.append(KeptChat(row.id, row.user, row.created, row.updated, row.title, messages))
    return found


def refuse_taken_names(connection: Connection, namespace: str, content: Content) -> None:
    """
    Raises:
        TakenError: a name of the content is taken. NotFoundError: the namespace is not there.
    """
    if content.namespace is not None:  # nothing in it can be
        wanted = [(NAMESPACES, content.namespace.spec.name)]
    else:
        wanted = [(USERS, one.spec.name) for one in content.users]
        wanted += [(COLLECTIONS, one.collection.name) for one in content.collections]
        wanted += [(AGENTS, one.agent.spec.name) for one in content.agents]
    for kind, name in wanted:
        if name in (row.name for row in list_rows(connection, kind, namespace)):
            raise TakenError(
                f"the {kind.noun} '{name}' is there already; --name gives it another name here"
            )


def keep_content(connection: Connection, namespace: str, content: Content) -> None:
    """Put all of it into the store, or nothing. Ids are kept where they are free everywhere, and
    are new ones else.

    Raises:
        InputError: a name is taken, or what is there does not fit together.
    """
    if content.namespace is not None:
        create(connection, NAMESPACES, "", content.namespace.spec)
        _restore(
            connection, tables.namespaces, namespace_id(connection, namespace), content.namespace
        )
    for user in content.users:
        _restore(connection, tables.users, create(connection, USERS, namespace, user.spec).id, user)
    for each in content.collections:
        _keep_collection(connection, namespace, each)
    for agent in content.agents:
        _keep_agent(connection, namespace, agent)


def _restore(connection: Connection, table: Any, id: str, stored: Any) -> str:
    """Give a new row the times, and where it is free the id, that it had."""
    taken = connection.execute(select(table.c.id).where(table.c.id == stored.id)).first()
    own = id if taken or not stored.id else stored.id
    values = {"id": own, "created": stored.created}
    if hasattr(stored, "updated"):
        values["updated"] = stored.updated
    connection.execute(update(table).where(table.c.id == id).values(**values))
    return own


def _keep_agent(connection: Connection, namespace: str, content: AgentContent) -> None:
    id = create(connection, AGENTS, namespace, content.agent.spec).id
    delete_where(connection, tables.personas, agent_id=id)
    own = _restore(connection, tables.agents, id, content.agent)
    for persona in content.personas:
        keep_persona(connection, own, persona)
    change = update(tables.agents).where(tables.agents.c.id == own)
    connection.execute(change.values(persona_version=content.personas[-1].version))
    space = namespace_id(connection, namespace)
    for chat in content.chats:
        _keep_chat(connection, chat, {"namespace_id": space, "agent_id": own})


def _keep_chat(connection: Connection, chat: KeptChat, whose: Mapping[str, str]) -> None:
    """A chat, under its own id where that is free, else under a new one of the same form."""
    row, known = asdict(chat), tables.sessions.c.id
    said = row.pop("messages")
    if connection.execute(select(known).where(known == chat.id)).first():
        row["id"] = f"{chat.id.partition('_')[0]}_{secrets.token_hex(16)}"
    connection.execute(insert(tables.sessions).values({**row, **whose}))
    if said:
        rows = [{**one, "session_id": row["id"]} for one in said]
        connection.execute(insert(tables.messages), rows)


def _keep_collection(connection: Connection, namespace: str, content: CollectionContent) -> None:
    old = content.collection
    spec = CollectionSpec(
        name=old.name,
        kind=old.kind,
        embedder=old.embedder,
        dimension=old.dimension,
        description=old.description,
    )
    made = create(connection, COLLECTIONS, namespace, spec)
    space = namespace_id(connection, namespace)
    id = _restore(connection, tables.collections, made.id, old)
    change = update(tables.collections).where(tables.collections.c.id == id)
    connection.execute(change.values(version=old.version, changed=old.changed))
    found = replace(made, id=id, version=old.version)
    memories, ids = _choose_ids(connection, content.memories)
    vectors = {ids[one]: vector for one, vector in content.vectors.items()}
    for chunk in chunks(memories):
        _insert(connection, space, found, chunk, vectors)
    if content.versions:
        rows = [{"collection_id": id, "version": v, "changed": t} for v, t in content.versions]
        connection.execute(insert(tables.versions), rows)
    for source in content.sources:
        named = json.dumps([ids.get(one, one) for one in source.ids])
        row = {**asdict(source), "collection_id": id, "ids": named}
        connection.execute(insert(tables.sources).values(row))


def _choose_ids(
    connection: Connection, memories: Sequence[MemoryRecord]
) -> tuple[list[MemoryRecord], dict[str, str]]:
    """The memories under ids that are free, with all links among them; and new ids by the old."""
    table = tables.memories.c
    old = [one.id for one in memories]
    taken = any(
        connection.execute(select(table.id).where(table.id.in_(chunk))).first()
        for chunk in chunks(old)
    )
    ids = {id: f"me_{secrets.token_hex(16)}" if taken else id for id in old}

    def renew(one: MemoryRecord) -> MemoryRecord:
        by = one.superseded_by
        return replace(
            one,
            id=ids[one.id],
            superseded_by=by if by is None else ids[by],
            cites=tuple(ids.get(cited, cited) for cited in one.cites),
        )

    return [renew(one) for one in memories], ids


def _insert(
    connection: Connection,
    space: str,
    collection: Collection,
    memories: Sequence[MemoryRecord],
    vectors: Mapping[str, Vector],
) -> None:
    """Rows, graph and index entries of memories that are not there yet."""
    connection.execute(
        insert(tables.memories), [_row(space, collection.id, one) for one in memories]
    )
    table = tables.memories.c
    asked = select(table.id, table.seq).where(table.id.in_([one.id for one in memories]))
    seqs: dict[str, int] = {row.id: row.seq for row in connection.execute(asked)}
    index, held = search_of(connection), [one for one in memories if one.id in vectors]
    entries = [
        IndexEntry(
            seqs[one.id],
            one.text,
            vectors[one.id],
            one.origin.trust,
            one.added,
            one.valid_from,
            one.valid_to,
        )
        for one in held
    ]
    graph = Transaction(connection, index, space, collection, collection.version, 0.0)
    graph.connect([(seqs[one.id], one) for one in memories])
    if entries:
        packed = [{"seq": one.seq, **pack_vector(one.embedding)} for one in entries]
        connection.execute(insert(tables.embeddings), packed)
        index.add(connection, collection, entries)
    for one in held:
        if one.closed is not None:
            since = one.superseded_at
            closing = Closing((seqs[one.id],), one.closed, since, one.forgotten)
            index.close(connection, collection, closing)


def _row(space: str, collection_id: str, one: MemoryRecord) -> dict[str, Any]:
    return {
        "id": one.id,
        "namespace_id": space,
        "collection_id": collection_id,
        "kind": one.kind,
        "importance": one.importance,
        "created": one.created,
        "last_used": one.last_used,
        "times_used": one.times_used,
        "turn": one.origin.turn,
        "trust": one.origin.trust,
        "valid_from": one.valid_from,
        "valid_to": one.valid_to,
        "superseded_by": one.superseded_by,
        "superseded_at": one.superseded_at,
        "added": one.added,
        "closed": one.closed,
        "forgotten": one.forgotten,
        "author": one.origin.author,
        "source": one.origin.source,
        "reason": one.reason,
        "cites": json.dumps(list(one.cites)),
        "text": one.text,
    }
