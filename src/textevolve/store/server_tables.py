"""The tables of what a server keeps: its keys, its clients' runs, jobs, and people's labels.

They are the same in SQLite and PostgreSQL. `served_runs` lies beside the runs; the others lie where
namespaces and agents are kept. Texts were checked where they came in: there is no NUL and no lone
surrogate in them.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from textevolve.store.tables import SERIAL, metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("used", Float),
    Column("spec", Text, nullable=False),
)
"""`hash`: SHA-256 of the key, which is not kept. `spec`: scopes, namespaces and limits, as JSON."""

browser_sessions = Table(
    "browser_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
)
"""`hash`: SHA-256 of the token in the browser's cookie. `key_id`: the key it was begun with."""

namespace_tokens = Table(
    "namespace_tokens",
    metadata,
    Column("namespace_id", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("tokens", SERIAL, nullable=False),
)
"""What models read and wrote for a namespace on a day of UTC."""

served_runs = Table(
    "served_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("launch", Text, nullable=False),
)
"""Runs that a server works on. `wanted`: running or cancelled; a server that starts goes on with
those that are to run and are not finished. `launch`: limits and name, as JSON."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("due", Float),
    Column("lease_token", Text),
    Column("lease_until", Float),
    Column("spec", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="jobs_by_name"),
)
"""`due`: when it is to run next; NULL: never again. `lease_until`: a scheduler that does not renew
its lease until then has lost the job."""

Index("jobs_due", jobs.c.due)

job_runs = Table(
    "job_runs",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("due", Float, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("attempt", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""What became of each time that a job was due. `run_id`: the run it made; empty before there is
one. `detail`: why it failed."""

Index("job_runs_of_job", job_runs.c.job_id, job_runs.c.id)

labelling_tasks = Table(
    "labelling_tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("spec", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="labelling_tasks_by_name"),
)

labelling_items = Table(
    "labelling_items",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("item", Text, nullable=False),
)

labels = Table(
    "labels",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("labeller", Text, primary_key=True),
    Column("created", Float, nullable=False),
    Column("label", Text, nullable=False),
)
"""What one person said of one item; the last answer counts."""
