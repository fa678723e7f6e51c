"""Searches by meaning compare vectors in memory: the index of sqlite-vec is removed.

The extension need not be installed, so its tables are removed by name, as SQLite would do.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    index = "type = 'table' AND name LIKE 'memory\\_vectors\\_%' ESCAPE '\\'"
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        f"DELETE FROM sqlite_master WHERE {index} AND sql LIKE 'CREATE VIRTUAL TABLE%'"
    )
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    names = connection.exec_driver_sql(f"SELECT name FROM sqlite_master WHERE {index}")
    for name in names.scalars().all():
        connection.exec_driver_sql(f'DROP TABLE "{name}"')
