"""The schema of a store: its tables are made at once, and an older one is migrated.

A store that is current is opened without importing alembic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import ExecutableDDLElement, create_mock_engine
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.store import tables
from textevolve.store.dialects import is_postgres

MIGRATIONS = Path(__file__).parent / "migrations"

FIRST_REVISION = "0007"
"""The oldest revision that is opened and migrated; an older store is only copied."""


def create_tables(connection: Connection) -> None:
    """Create all tables and indexes in an empty database, and note their revision."""
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


def update_tables(
    connection: Connection, revision: str, place: object, *, accept_older: bool = False
) -> None:
    """Bring the tables of a store to the newest revision. `accept_older`: leave those as they are
    that are too old to be migrated, since their rows are only read.

    Raises:
        StoreError: the store is too old, or was written by a newer TextEvolve.
    """
    if revision == tables.REVISION:
        return
    if revision > tables.REVISION:
        raise StoreError(
            f"store {place}: was written by a newer TextEvolve (schema {revision}, this one knows "
            f"{tables.REVISION}); update TextEvolve or choose another store with --store"
        )
    if revision >= FIRST_REVISION:
        migrate(connection)
    elif not accept_older:
        raise StoreError(
            f"store {place}: was written by an early TextEvolve (schema {revision}); copy it into a"
            f" new store, which has all that is in it: textevolve config store copy {place} NEW"
        )


def migrate(connection: Connection) -> None:
    """Run the migrations inside the transaction that the connection is in."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    command.upgrade(config, "head")


def version_of_persona(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of `personas`, which schema 0007 had, to a row of `resource_versions`."""
    return {
        "resource_id": row["agent_id"],
        "version": row["version"],
        "created": row["created"],
        "source": row["source"],
        "spec": json.dumps({"persona": row["text"]}, ensure_ascii=False),
        "changes": row["changes"],
    }
