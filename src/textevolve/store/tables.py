"""The tables of a store, and which schema they belong to. How they change: `store/migrations`.

What comes from a user or a model is kept as bytes (UTF-8 with `surrogatepass`), because SQLite's
TEXT cannot hold a lone surrogate. Small columns stand before large ones, so that sums read little.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

REVISION = "0007"
"""The newest revision in `store/migrations/versions`; these tables are what it leads to."""

APPLICATION_ID = 0x54457631
"""Marks a SQLite file as a store of ours ("TEv1")."""

metadata = MetaData()

SERIAL = BigInteger().with_variant(Integer, "sqlite")

texts = Table(
    "texts",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Parts of messages and schemas, each once. `size` in bytes; a shorter `body` is compressed."""

calls = Table(
    "calls",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cost", Float),
    Column("parts", LargeBinary, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("error", LargeBinary),
    Column("response", LargeBinary),
    Column("saved", Float),
    sqlite_autoincrement=True,
)
"""Every finished call, append-only. `parts`: the texts' hashes, 32 bytes each, in order. `saved`:
US dollars that prompt caching spared; calls from before it was kept have none."""

ERASED_KEY = "erased"
"""The key of calls that lost their texts (`store/erasure.py`): no request has it."""

_ANSWERED = text("error IS NULL")
Index("calls_answered", calls.c.key, sqlite_where=_ANSWERED, postgresql_where=_ANSWERED)
Index("calls_of_run", calls.c.run_id)

reuses = Table(
    "reuses",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("call_id", SERIAL, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Calls that a run found in the journal but that another run had asked."""

Index("reuses_of_call", reuses.c.call_id)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("fingerprint", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("status", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("n_cases", Integer),
    Column("lease_token", Text),
    Column("lease_host", Text),
    Column("lease_pid", Integer),
    Column("lease_process", Text),
    Column("lease_heartbeat", Float),
    Column("spec", LargeBinary, nullable=False),
)
"""`n_cases` is NULL until all cases are in. `lease_process` tells processes of one pid apart."""

cases = Table(
    "cases",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("id", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

Index("cases_in_order", cases.c.run_id, cases.c.index, unique=True)

records = Table(
    "records",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("case_id", LargeBinary, nullable=False),
    Column("score", Float),
    Column("status", Text, nullable=False),
    Column("reason", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("revision", SERIAL),
    Column("variant", LargeBinary),
    Column("passed", Boolean),
)
"""What runs found, one row for each record: made from the journal, and made again where lost.
`revision` grows with each change of a run's records, and is never used twice; NULL, as `variant`
and `passed`, in rows from before there was one."""

Index(
    "records_in_order",
    records.c.run_id,
    records.c.position,
    records.c.key,
    records.c.status,
    records.c.passed,
    records.c.score,
    records.c.case_id,
    records.c.variant,
)
"""All that pages are filtered and sorted by, so that they are found without reading records."""
Index(
    "records_by_variant",
    records.c.run_id,
    records.c.variant,
    records.c.status,
    records.c.passed,
    records.c.score,
    records.c.position,
)
"""What is counted and added up, in the order in which it is."""
Index("records_of_case", records.c.run_id, records.c.case_id, records.c.position)
Index("records_by_revision", records.c.run_id, records.c.revision)

batches = Table(
    "batches",
    metadata,
    Column("mark", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("remote_id", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("keys", LargeBinary, nullable=False),
)
"""Batch jobs that runs submitted, by a mark of our own. `file`, `remote_id`: as the endpoint names
them, empty before it has. `keys`: of the calls in it as they are asked, 32 bytes each, in order;
what an answer is kept under may be salted."""

Index("batches_of_run", batches.c.run_id, batches.c.state)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""`sweeps` grows when texts are deleted: writers forget then which texts they know to be there."""
