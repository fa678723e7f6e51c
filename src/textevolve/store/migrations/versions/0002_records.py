"""What runs found, beside the journal that it was found from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "records",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("case_id", sa.LargeBinary, nullable=False),
        sa.Column("score", sa.Float),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("records_in_order", "records", ["run_id", "position"])
