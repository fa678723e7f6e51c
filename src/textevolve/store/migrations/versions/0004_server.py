"""What a server keeps, and records that can be followed and filtered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("records", sa.Column("revision", SERIAL))
    op.add_column("records", sa.Column("variant", sa.LargeBinary))
    op.add_column("records", sa.Column("passed", sa.Boolean))
    if op.get_bind().dialect.name == "sqlite":  # elsewhere there are none
        op.execute("UPDATE records SET revision = rowid")
    op.create_index("records_by_revision", "records", ["run_id", "revision"])
    op.add_column("namespaces", sa.Column("tokens_per_day", SERIAL))
    create_serving()
    create_access()
    create_jobs()
    create_labelling()


def create_serving() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
        sa.Column("revoked", sa.Float),
        sa.Column("used", sa.Float),
        sa.Column("spec", sa.Text, nullable=False),
    )
    op.create_table(
        "served_runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("launch", sa.Text, nullable=False),
    )


def create_access() -> None:
    op.create_table(
        "browser_sessions",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_table(
        "namespace_tokens",
        sa.Column("namespace_id", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("tokens", SERIAL, nullable=False),
    )


def create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("due", sa.Float),
        sa.Column("lease_token", sa.Text),
        sa.Column("lease_until", sa.Float),
        sa.Column("spec", sa.Text, nullable=False),
        sa.UniqueConstraint("namespace_id", "name", name="jobs_by_name"),
    )
    op.create_index("jobs_due", "jobs", ["due"])
    op.create_table(
        "job_runs",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("due", sa.Float, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("job_runs_of_job", "job_runs", ["job_id", "id"])


def create_labelling() -> None:
    op.create_table(
        "labelling_tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("namespace_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.UniqueConstraint("namespace_id", "name", name="labelling_tasks_by_name"),
    )
    op.create_table(
        "labelling_items",
        sa.Column("task_id", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("item", sa.Text, nullable=False),
    )
    op.create_table(
        "labels",
        sa.Column("task_id", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("labeller", sa.Text, primary_key=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
    )
