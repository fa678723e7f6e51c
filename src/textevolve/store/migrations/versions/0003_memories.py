"""Namespaces, agents, collections, users, memories and chats."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    create_resources()
    create_memories()
    create_histories()
    if op.get_bind().dialect.name == "postgresql":
        create_indexes()


def create_resources() -> None:
    op.create_table(
        "namespaces",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("persona_version", sa.Integer, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.UniqueConstraint("namespace_id", "name", name="agents_by_name"),
    )
    op.create_table(
        "personas",
        sa.Column("agent_id", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.UniqueConstraint("namespace_id", "name", name="users_by_name"),
    )
    op.create_table(
        "collections",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("embedder", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.UniqueConstraint("namespace_id", "name", name="collections_by_name"),
    )


def create_memories() -> None:
    op.create_table(
        "memories",
        sa.Column("seq", SERIAL, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("importance", sa.Float, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("last_used", sa.Float),
        sa.Column("times_used", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer),
        sa.Column("trust", sa.Float, nullable=False),
        sa.Column("valid_from", sa.Float),
        sa.Column("valid_to", sa.Float),
        sa.Column("superseded_by", sa.Text),
        sa.Column("superseded_at", sa.Float),
        sa.Column("added", sa.Integer, nullable=False),
        sa.Column("closed", sa.Integer),
        sa.Column("forgotten", sa.Boolean, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("cites", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("memories_of_collection", "memories", ["collection_id", "seq"])
    op.create_index("memories_superseded_by", "memories", ["superseded_by"])
    op.create_table(
        "embeddings",
        sa.Column("seq", SERIAL, primary_key=True, autoincrement=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "mentions",
        sa.Column("collection_id", sa.Text, primary_key=True),
        sa.Column("entity", sa.Text, primary_key=True),
        sa.Column("seq", SERIAL, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_index("mentions_of_memory", "mentions", ["seq"])
    op.create_table(
        "relations",
        sa.Column("seq", SERIAL, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("predicate", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
    )
    op.create_table(
        "uses",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("seq", SERIAL, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_index("uses_of_memory", "uses", ["seq", "time"])


def create_histories() -> None:
    op.create_table(
        "memory_sources",
        sa.Column("collection_id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("base", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("ids", sa.Text, nullable=False),
    )
    op.create_table(
        "collection_versions",
        sa.Column("collection_id", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("changed", sa.Float, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
    )
    op.create_index("sessions_of_namespace", "sessions", ["namespace_id", "updated"])
    op.create_table(
        "messages",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )


def create_indexes() -> None:
    """What PostgreSQL's search by words needs; that by meaning is made by `store/postgres.py` where
    the server has pgvector. SQLite's index of words is made with its first words."""
    op.execute(
        "CREATE TABLE memory_words (seq bigint PRIMARY KEY, length integer NOT NULL,"
        " words tsvector NOT NULL)"
    )
    op.execute(
        "CREATE INDEX memory_words_by_word ON memory_words USING gin (words)"
        " WITH (fastupdate = off)"
    )
