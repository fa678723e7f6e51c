"""The tables of a store, in SQLite and PostgreSQL alike, and the revision of their schema.

Runs and what models wrote are kept as bytes (UTF-8 with `surrogatepass`), because SQLite's TEXT
cannot hold a lone surrogate. Texts of namespaces, memories and what a server keeps are checked
before they are stored: they hold no NUL and no lone surrogate. Small columns stand before large
ones, so that sums read little. The search indexes of memories differ between databases and are made
by `store/memory_search_sqlite.py` and `store/postgres.py`.
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
    UniqueConstraint,
    text,
)

REVISION = "0009"
"""The revision of these tables; `store/schema.py` migrates older ones."""

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

# Namespaces and what belongs to them

namespaces = Table(
    "namespaces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("tokens_per_day", SERIAL),
)

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("spec", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="agents_by_name"),
)
"""`spec`: an `AgentSpec` as JSON, without the persona, which the newest version holds."""

resource_versions = Table(
    "resource_versions",
    metadata,
    Column("resource_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("created", Float, nullable=False),
    Column("source", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("changes", Text, nullable=False),
)
"""Specifications that resources have or had, append-only. `spec`: as JSON, without the name.
`source`: what made it, such as a run. `changes`: what changed and why, as JSON. Versions of agents
from schema 0007 have the persona alone; other resources of it have none until they change."""

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    UniqueConstraint("namespace_id", "name", name="users_by_name"),
)

collections = Table(
    "collections",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("embedder", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("description", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="collections_by_name"),
)
"""`version` grows by 1 with each transaction that changes its memories; `changed`: the last one."""

memories = Table(
    "memories",
    metadata,
    Column("seq", SERIAL, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("namespace_id", Text, nullable=False),
    Column("collection_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("importance", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("last_used", Float),
    Column("times_used", Integer, nullable=False),
    Column("turn", Integer),
    Column("trust", Float, nullable=False),
    Column("valid_from", Float),
    Column("valid_to", Float),
    Column("superseded_by", Text),
    Column("superseded_at", Float),
    Column("added", Integer, nullable=False),
    Column("closed", Integer),
    Column("forgotten", Boolean, nullable=False),
    Column("author", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("cites", Text, nullable=False),
    Column("text", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""`added` and `closed`: versions of the collection. `cites`: ids, as JSON."""

Index("memories_of_collection", memories.c.collection_id, memories.c.seq)
Index("memories_superseded_by", memories.c.superseded_by)

embeddings = Table(
    "embeddings",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("dimension", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
"""Of memories: float32, little-endian, of length 1. What search indexes are made from."""

mentions = Table(
    "mentions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("entity", Text, primary_key=True),
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer),
    Column("name", Text, nullable=False),
)
"""Whom and what memories speak of. `entity`: the name in the form in which names are compared.
`position`: of the name among the memory's entities; None: only a relation of it has the name."""

Index("mentions_of_memory", mentions.c.seq)

relations = Table(
    "relations",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("subject", Text, nullable=False),
    Column("predicate", Text, nullable=False),
    Column("object", Text, nullable=False),
)

uses = Table(
    "uses",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("seq", SERIAL, nullable=False),
    Column("time", Float, nullable=False),
)
"""When memories were recalled in chats; for an earlier version those up to its time count."""

Index("uses_of_memory", uses.c.seq, uses.c.time)

sources = Table(
    "memory_sources",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("base", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("label", Text, nullable=False),
    Column("ids", Text, nullable=False),
)
"""What collections were made from, each once. `ids`: of the memories that came of it, as JSON."""

versions = Table(
    "collection_versions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("changed", Float, nullable=False),
)
"""When each version of a collection was made."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("title", Text, nullable=False),
)
"""Chats. `user`: a user's name, empty where nobody said."""

Index("sessions_of_namespace", sessions.c.namespace_id, sessions.c.updated)

messages = Table(
    "messages",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("role", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("text", Text, nullable=False),
    Column("details", Text, nullable=False),
)
"""What was said. `details`: the memories that were recalled for it, and others, as JSON."""

# Servers: keys, runs of clients, jobs, labels

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
"""Runs of a server. `wanted`: running or cancelled; a server resumes unfinished ones that should
run at its start. `launch`: limits and name, as JSON."""

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
    Column("lease_host", Text),
    Column("lease_pid", Integer),
    Column("lease_process", Text),
    Column("spec", Text, nullable=False),
    UniqueConstraint("namespace_id", "name", name="jobs_by_name"),
)
"""`due`: when it is to run next; NULL: never again. `lease_until`: a scheduler that does not renew
its lease until then has lost the job; `lease_process`: see `store/lease.py`. Times are those of the
database's clock."""

Index("jobs_due", jobs.c.due)

job_runs = Table(
    "job_runs",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("due", Float, nullable=False),
    Column("cause", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("attempt", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""What became of each time that a job was due. `run_id`: the run it made; empty before there is
one. `detail`: why it failed. `cause`: its schedule, or somebody's hand."""

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
