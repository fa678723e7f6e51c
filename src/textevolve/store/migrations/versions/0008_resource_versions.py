"""All kinds of resources have versions, where agents alone had versions of their personas."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from textevolve.store import tables
from textevolve.store.schema import version_of_persona

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Move the versions of personas to the table that all kinds share."""
    connection = op.get_bind()
    tables.resource_versions.create(connection)
    rows = connection.execute(text("SELECT * FROM personas")).mappings()
    if versions := [version_of_persona(dict(row)) for row in rows]:
        connection.execute(tables.resource_versions.insert(), versions)
    op.execute("DROP TABLE personas")
    op.execute("ALTER TABLE agents DROP COLUMN persona_version")
