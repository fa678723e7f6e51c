"""The SQL that differs between SQLite and PostgreSQL, and the types that connections of both
exchange.

All other queries of the store are the same. Every function takes a connection, and detects its
database. `store/sqlite.py` and `store/postgres.py` open connections, lock them and explain their
errors.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from sqlalchemy import ExecutableDDLElement, Table, create_mock_engine, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from textevolve.errors import StoreError, TextEvolveError
from textevolve.store import tables


def cause_of(error: Exception) -> BaseException | None:
    """Return the driver's error in one of SQLAlchemy, or else the error itself."""
    return error.orig if isinstance(error, DBAPIError) else error


CALL_COLUMNS = tuple(column.name for column in tables.calls.columns if column.name != "id")
"""The columns of a row of `calls` to insert."""

SWEEPS = "SELECT value FROM counters WHERE name = 'sweeps'"
"""The query for the number of the last sweep, which deletes unused texts."""


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows to insert in one transaction. `texts`: hash, size and body of each text. `calls`:
    the values of `CALL_COLUMNS`. `reuses`: a run, and the id of a call that it reuses. Some rows of
    `texts` and `reuses` may already exist."""

    texts: Sequence[tuple[bytes, int, bytes]]
    calls: Sequence[tuple[Any, ...]]
    reuses: Sequence[tuple[str, int]]


class Explainer(Protocol):
    """A database that converts its errors into `StoreError`s."""

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def explain(self, error: Exception) -> TextEvolveError: ...


@contextmanager
def explained(database: Explainer) -> Generator[None]:
    """Raise a database's errors as StoreErrors that explain them."""
    try:
        yield
    except database.errors as error:
        raise database.explain(error) from error


def driver_of(connection: Connection) -> Any:
    """Return the driver's own connection."""
    return connection.connection.driver_connection


def is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def database_time(connection: Connection) -> float:
    """Return the time of the database's clock, in seconds since 1970."""
    clock = (
        "SELECT extract(epoch FROM clock_timestamp())::float8"
        if is_postgres(connection)
        else "SELECT (julianday('now') - 2440587.5) * 86400.0"
    )
    return float(connection.exec_driver_sql(clock).scalar_one())


def insert_into(connection: Connection, table: Table) -> Any:
    """Return an INSERT statement of the dialect, which can handle conflicts with existing rows."""
    # SQLAlchemy imports only the dialects that are used; that of PostgreSQL takes 35 ms.
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


_PARTS = """
WITH RECURSIVE place(i) AS (
    SELECT 0 UNION ALL SELECT i + 1 FROM place
    WHERE i + 1 < max(
        (SELECT coalesce(max(length(parts)), 0) / 32 FROM calls),
        (SELECT coalesce(max(CAST(substr(body, 2, 5) AS INTEGER)), 0) FROM cases
            WHERE substr(body, 1, 1) = x'01')
    )
)
DELETE FROM texts WHERE hash NOT IN (
    SELECT substr(parts, 1 + 32 * i, 32) FROM calls JOIN place ON 32 * i < length(parts)
    UNION ALL
    SELECT substr(body, 7 + 32 * i, 32) FROM cases
    JOIN place ON i < CAST(substr(body, 2, 5) AS INTEGER) WHERE substr(body, 1, 1) = x'01'
)
"""

_PARTS_POSTGRES = """
DELETE FROM texts WHERE NOT EXISTS (SELECT 1 FROM (
    SELECT substring(parts FROM 1 + 32 * i FOR 32) AS part
    FROM calls, generate_series(0, length(parts) / 32 - 1) AS i
    UNION ALL
    SELECT substring(body FROM 7 + 32 * i FOR 32)
    FROM cases, generate_series(
        0, CAST(convert_from(substring(body FROM 2 FOR 5), 'LATIN1') AS integer) - 1) AS i
    WHERE substring(body FROM 1 FOR 1) = '\\x01'::bytea
) AS used WHERE used.part = texts.hash)
"""
"""The statements that delete the texts that no call and no case uses, for SQLite and for
PostgreSQL."""


def sweep_texts(connection: Connection) -> int:
    """Delete the texts that no call and no case uses; return their number."""
    if is_postgres(connection):
        return connection.exec_driver_sql(_PARTS_POSTGRES).rowcount
    connection.exec_driver_sql(_PARTS)
    return connection.exec_driver_sql("SELECT changes()").scalar_one()


def count_bytes(connection: Connection) -> int:
    """Return the size in bytes of a database: of the file in SQLite, of our tables with their
    indexes in PostgreSQL."""
    if is_postgres(connection):
        size = "pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass)"
        query = f"SELECT coalesce(sum({size}), 0)::int8 FROM pg_tables WHERE schemaname ="
        return connection.exec_driver_sql(f"{query} current_schema()").scalar_one()

    pages, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "page_size")
    )

    return pages * size


# Create the tables of a new store, and migrate those of an older one.

OLDER_REVISIONS = ("0007", "0008", "0009", "0010", "0011")
"""The revisions of older stores that can be migrated."""


def create_tables(connection: Connection) -> None:
    """Create all tables and indexes in an empty database, and store their revision."""
    for statement in _table_statements(
        "postgresql+psycopg" if is_postgres(connection) else "sqlite"
    ):
        connection.exec_driver_sql(statement)

    connection.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{tables.REVISION}')")
    connection.exec_driver_sql("INSERT INTO counters (name, value) VALUES ('sweeps', 0)")


@cache
def _table_statements(dialect: str) -> tuple[str, ...]:
    """Return the DDL of all tables and indexes, which is compiled once for each process."""
    statements: list[str] = []

    def note(statement: ExecutableDDLElement, *_: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{dialect}://", note)
    # SQLAlchemy would import the dialect of an option that the tables themselves name.
    tables.calls_answered.dialect_options[engine.dialect.name]["where"] = tables.ANSWERED
    tables.metadata.create_all(engine, checkfirst=False)

    return tuple(statements)


def update_tables(connection: Connection, revision: str, place: object) -> None:
    """Bring the tables of a store to the newest revision, within the transaction that the
    connection is in.

    Raises:
        StoreError: no migration leads from its revision to this one.
    """
    if revision in OLDER_REVISIONS:
        _migrate(connection, revision)
    elif revision != tables.REVISION:
        raise StoreError(
            f"store {place}: was written by another TextEvolve (schema {revision}, this one knows "
            f"{tables.REVISION}); update TextEvolve or choose another store with --store"
        )


def _migrate(connection: Connection, revision: str) -> None:
    """Migrate a store of an early release: before 0008 only agents' personas had versions, before
    0009 SQLite had an index of vectors, before 0010 memories belonged to no user, before 0011
    records named no cluster, and before 0012 memories had no vectors of tokens. The index of
    vectors is dropped by its name, since its extension may not be installed."""
    if revision == "0007":
        tables.resource_versions.create(connection)
        for row in connection.exec_driver_sql("SELECT * FROM personas").mappings().all():
            version = {name: row[name] for name in ("version", "created", "source", "changes")}
            version["spec"] = json.dumps({"persona": row["text"]}, ensure_ascii=False)
            version["resource_id"] = row["agent_id"]
            connection.execute(tables.resource_versions.insert().values(version))

        connection.exec_driver_sql("DROP TABLE personas")
        connection.exec_driver_sql("ALTER TABLE agents DROP COLUMN persona_version")

    if revision in ("0007", "0008") and not is_postgres(connection):
        index = "type = 'table' AND name LIKE 'memory\\_vectors\\_%' ESCAPE '\\'"
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql(
            f"DELETE FROM sqlite_master WHERE {index} AND sql LIKE 'CREATE VIRTUAL TABLE%'"
        )
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
        names = connection.exec_driver_sql(f"SELECT name FROM sqlite_master WHERE {index}")
        for name in names.scalars().all():
            connection.exec_driver_sql(f'DROP TABLE "{name}"')

    if revision < "0010":
        _give_memories_users(connection)
    if revision < "0011":
        kind = "BYTEA" if is_postgres(connection) else "BLOB"
        connection.exec_driver_sql(f"ALTER TABLE records ADD COLUMN cluster {kind}")
        connection.exec_driver_sql("DROP INDEX records_in_order")
        ordered = next(i for i in tables.records.indexes if i.name == "records_in_order")
        ordered.create(connection)

    tables.token_vectors.create(connection, checkfirst=True)
    connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{tables.REVISION}'")


def _give_memories_users(connection: Connection) -> None:
    """Give each memory that was made of a stored chat to the user of the chat, and each insight to
    the user whose memories alone it cites. All other memories are common."""
    connection.exec_driver_sql("ALTER TABLE memories ADD COLUMN \"user\" TEXT NOT NULL DEFAULT ''")
    connection.exec_driver_sql(
        'UPDATE memories SET "user" = sessions."user" FROM sessions WHERE memories.source ='
        " 'chat ' || sessions.id AND memories.namespace_id = sessions.namespace_id"
    )
    table = tables.memories
    owned = connection.execute(select(table.c.id, table.c.user).where(table.c.user != ""))
    users: dict[str, str] = dict(owned.all())  # pyright: ignore[reportArgumentType]
    citing = select(table.c.seq, table.c.cites).where(table.c.cites != "[]")

    for seq, cites in connection.execute(citing).all():
        cited_users = {users.get(id, "") for id in json.loads(cites)} - {""}
        if len(cited_users) == 1:
            connection.execute(
                update(table).where(table.c.seq == seq).values(user=cited_users.pop())
            )
