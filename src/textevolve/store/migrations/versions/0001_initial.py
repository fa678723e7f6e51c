"""The first schema: texts, calls, reuses, runs, cases, counters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "texts",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    create_calls()
    create_runs()
    op.create_table(
        "counters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def create_calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("cached_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("cost", sa.Float),
        sa.Column("parts", sa.LargeBinary, nullable=False),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.LargeBinary),
        sa.Column("response", sa.LargeBinary),
        sqlite_autoincrement=True,
    )
    answered = sa.text("error IS NULL")
    op.create_index(
        "calls_answered", "calls", ["key"], sqlite_where=answered, postgresql_where=answered
    )
    op.create_index("calls_of_run", "calls", ["run_id"])
    op.create_table(
        "reuses",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("call_id", sa.Integer, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("reuses_of_call", "reuses", ["call_id"])


def create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("n_cases", sa.Integer),
        sa.Column("lease_token", sa.Text),
        sa.Column("lease_host", sa.Text),
        sa.Column("lease_pid", sa.Integer),
        sa.Column("lease_process", sa.Text),
        sa.Column("lease_heartbeat", sa.Float),
        sa.Column("spec", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "cases",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("cases_in_order", "cases", ["run_id", "index"], unique=True)
