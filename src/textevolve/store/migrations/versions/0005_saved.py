"""What prompt caching saved, with each call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("calls", sa.Column("saved", sa.Float))
