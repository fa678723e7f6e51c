"""More calls than 32 bits count, in PostgreSQL; SQLite's integers have 64 bits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER SEQUENCE calls_id_seq AS bigint")
    op.alter_column("calls", "id", type_=sa.BigInteger)
    op.alter_column("reuses", "call_id", type_=sa.BigInteger)
