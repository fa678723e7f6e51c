"""The tables of namespaces, agents, collections, users, memories and chats.

They are the same in SQLite and PostgreSQL. The search indexes differ, and are made by those who
search: `store/memory_search_sqlite.py` and `store/memory_search_postgres.py`. Texts were checked
where they came in: there is no NUL and no lone surrogate in them.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from textevolve.store.tables import SERIAL, metadata

namespaces = Table(
    "namespaces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("tokens_per_day", SERIAL),
)

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("persona_version", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("spec", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="agents_by_name"),
)
"""`spec`: an `AgentSpec` as JSON, without the persona. `persona_version`: the one in force."""

personas = Table(
    "personas",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("created", Float, nullable=False),
    Column("source", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("changes", Text, nullable=False),
)
"""Append-only. `source`: what made it, such as a run. `changes`: what changed and why, as JSON."""

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    UniqueConstraint("namespace_id", "name", name="users_by_name"),
)

collections = Table(
    "collections",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("embedder", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("description", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="collections_by_name"),
)
"""`version` grows by 1 with each transaction that changes its memories; `changed`: the last one."""

memories = Table(
    "memories",
    metadata,
    Column("seq", SERIAL, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("namespace_id", Text, nullable=False),
    Column("collection_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("importance", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("last_used", Float),
    Column("times_used", Integer, nullable=False),
    Column("turn", Integer),
    Column("trust", Float, nullable=False),
    Column("valid_from", Float),
    Column("valid_to", Float),
    Column("superseded_by", Text),
    Column("superseded_at", Float),
    Column("added", Integer, nullable=False),
    Column("closed", Integer),
    Column("forgotten", Boolean, nullable=False),
    Column("author", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("cites", Text, nullable=False),
    Column("text", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""`added` and `closed`: versions of the collection. `cites`: ids, as JSON."""

Index("memories_of_collection", memories.c.collection_id, memories.c.seq)
Index("memories_superseded_by", memories.c.superseded_by)

embeddings = Table(
    "embeddings",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("dimension", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
"""Of memories: float32, little-endian, of length 1. What search indexes are made from."""

mentions = Table(
    "mentions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("entity", Text, primary_key=True),
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer),
    Column("name", Text, nullable=False),
)
"""Whom and what memories speak of. `entity`: the name in the form in which names are compared.
`position`: of the name among the memory's entities; None: only a relation of it has the name."""

Index("mentions_of_memory", mentions.c.seq)

relations = Table(
    "relations",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("subject", Text, nullable=False),
    Column("predicate", Text, nullable=False),
    Column("object", Text, nullable=False),
)

uses = Table(
    "uses",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("seq", SERIAL, nullable=False),
    Column("time", Float, nullable=False),
)
"""When memories were recalled in chats; for an earlier version those up to its time count."""

Index("uses_of_memory", uses.c.seq, uses.c.time)

sources = Table(
    "memory_sources",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("base", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("label", Text, nullable=False),
    Column("ids", Text, nullable=False),
)
"""What collections were made from, each once. `ids`: of the memories that came of it, as JSON."""

versions = Table(
    "collection_versions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("changed", Float, nullable=False),
)
"""When each version of a collection was made."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("title", Text, nullable=False),
)
"""Chats. `user`: a user's name, empty where nobody said."""

Index("sessions_of_namespace", sessions.c.namespace_id, sessions.c.updated)

messages = Table(
    "messages",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("role", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("text", Text, nullable=False),
    Column("details", Text, nullable=False),
)
"""What was said. `details`: the memories that were recalled for it, and others, as JSON."""
