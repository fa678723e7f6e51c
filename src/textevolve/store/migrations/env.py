"""Runs the migrations on the connection that `textevolve.store.schema` hands over."""

from __future__ import annotations

from alembic import context

from textevolve.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
