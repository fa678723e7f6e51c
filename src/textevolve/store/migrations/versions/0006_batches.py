"""Batch jobs of runs, at the endpoints of their models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("mark", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("remote_id", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("keys", sa.LargeBinary, nullable=False),
    )
    op.create_index("batches_of_run", "batches", ["run_id", "state"])
