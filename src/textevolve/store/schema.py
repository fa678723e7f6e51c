"""Create the tables of a new store, and migrate those of an older one."""

from __future__ import annotations

import json
from functools import cache

from sqlalchemy import ExecutableDDLElement, create_mock_engine
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.store import tables
from textevolve.store.dialects import is_postgres

OLDER_REVISIONS = ("0007", "0008")
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
    connection.execute(tables.counters.insert().values(name="sweeps", value=0))


@cache
def _table_statements(dialect: str) -> tuple[str, ...]:
    """Return the DDL of all tables and indexes, which is compiled once for each process."""
    statements: list[str] = []

    def note(statement: ExecutableDDLElement, *_: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{dialect}://", note)
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
    """Migrate a store in which only agents' personas had versions, so that all kinds of resources
    can have versions. Drop SQLite's index of vectors by its name, since its extension may not be
    installed."""
    if revision == "0007":
        tables.resource_versions.create(connection)
        for row in connection.exec_driver_sql("SELECT * FROM personas").mappings().all():
            version = {name: row[name] for name in ("version", "created", "source", "changes")}
            version["spec"] = json.dumps({"persona": row["text"]}, ensure_ascii=False)
            version["resource_id"] = row["agent_id"]
            connection.execute(tables.resource_versions.insert().values(version))
        connection.exec_driver_sql("DROP TABLE personas")
        connection.exec_driver_sql("ALTER TABLE agents DROP COLUMN persona_version")
    if not is_postgres(connection):
        index = "type = 'table' AND name LIKE 'memory\\_vectors\\_%' ESCAPE '\\'"
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql(
            f"DELETE FROM sqlite_master WHERE {index} AND sql LIKE 'CREATE VIRTUAL TABLE%'"
        )
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
        names = connection.exec_driver_sql(f"SELECT name FROM sqlite_master WHERE {index}")
        for name in names.scalars().all():
            connection.exec_driver_sql(f'DROP TABLE "{name}"')
    connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{tables.REVISION}'")
