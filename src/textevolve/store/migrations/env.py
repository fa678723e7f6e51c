"""Runs the migrations on the connection that `textevolve.store.schema` hands over."""

from __future__ import annotations

from alembic import context

from textevolve.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=True,
    # Without it another program's alembic_version in the schema `public` would be taken for ours.
    version_table_schema="textevolve" if connection.dialect.name == "postgresql" else None,
)
with context.begin_transaction():
    context.run_migrations()
