"""The tables of a store, the same in SQLite and PostgreSQL, and the revision of their schema.

Runs and the texts of models are stored as bytes (UTF-8 with `surrogatepass`), because SQLite's TEXT
cannot hold a lone surrogate. Texts of namespaces, memories and servers are checked before they are
stored: they contain no NUL and no lone surrogate. Small columns precede large ones, so that sums
read little data. The search indexes of memories differ between databases;
`store/memory_search_sqlite.py` and `store/postgres.py` create them.
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
"""The number that marks an SQLite file as a store of TextEvolve ("TEv1")."""

metadata = MetaData()

SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit integer, which SQLite can count up by itself."""

texts = Table(
    "texts",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Texts of messages, schemas and images, each stored once. `size`: in bytes; a shorter `body` is
compressed."""

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
"""All finished calls, append-only. `parts`: the hashes of the texts, 32 bytes each, in order.
`saved`: the US dollars that prompt caching saved; NULL in calls of early versions."""

ERASED_KEY = "erased"
"""The key of calls whose texts were erased (`store/erasure.py`): no request has this key."""

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
"""Calls of other runs whose answers a run found in the journal."""

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
"""Runs. `n_cases`: NULL until all cases are stored. `lease_*`: the process that works on the run;
`lease_process` distinguishes processes with the same pid."""

cases = Table(
    "cases",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("id", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""The cases of runs, as bytes of `store/documents.py`."""

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
"""The results of runs, one row for each record. They are derived from the journal, and can be
rebuilt. `revision` grows with each change of a run's records, and is never used twice. `revision`,
`variant` and `passed` are NULL in rows of early versions."""

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
"""The columns by which pages are filtered and sorted, so that no record needs to be read."""
Index(
    "records_by_variant",
    records.c.run_id,
    records.c.variant,
    records.c.status,
    records.c.passed,
    records.c.score,
    records.c.position,
)
"""The columns from which records are counted and scores added up, in the order of grouping."""
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
"""Batch jobs that runs submitted. `mark`: our own id. `file`, `remote_id`: the ids of the endpoint;
empty before it has assigned them. `keys`: the keys of the requested calls, 32 bytes each, in order;
the key under which an answer is stored may be salted."""

Index("batches_of_run", batches.c.run_id, batches.c.state)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""Counters. `sweeps` grows when texts are deleted, and writers then forget which texts are
stored."""

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
"""Namespaces. `tokens_per_day`: the daily token budget; NULL: unlimited."""

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
"""Agents. `spec`: an `AgentSpec` as JSON, without the persona, which the newest version holds."""

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
"""The current and earlier specifications of resources, append-only. `spec`: as JSON, without the
name. `source`: what made the version, such as a run. `changes`: what changed and why, as JSON. In
stores that were migrated from revision 0007, earlier versions of agents have only the persona, and
other resources have no version until they change."""

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
"""The users with whom agents talk."""

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
"""Collections of memories. `version` grows by 1 with each transaction that changes its memories;
`changed`: the time of the last one."""

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
"""Memories. `added` and `closed`: the versions of the collection that added and closed the memory.
`cites`: ids, as JSON."""

Index("memories_of_collection", memories.c.collection_id, memories.c.seq)
Index("memories_superseded_by", memories.c.superseded_by)

embeddings = Table(
    "embeddings",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("dimension", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
"""The embeddings of memories: float32, little-endian, of length 1. Search indexes are built from
them."""

mentions = Table(
    "mentions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("entity", Text, primary_key=True),
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer),
    Column("name", Text, nullable=False),
)
"""The entities that memories mention. `entity`: the name in the form in which names are compared.
`position`: of the name among the memory's entities; NULL if only a relation has the name."""

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
"""The relations between entities that memories state."""

uses = Table(
    "uses",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("seq", SERIAL, nullable=False),
    Column("time", Float, nullable=False),
)
"""The times at which memories were recalled in chats. An earlier version of a collection is read
with the uses up to its time."""

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
"""The sources (dialogues, documents, runs) from which memories were created, each applied once.
`ids`: of the created memories, as JSON."""

versions = Table(
    "collection_versions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("changed", Float, nullable=False),
)
"""The time of each version of a collection."""

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
"""Chats with agents. `user`: the name of the user; empty if unknown."""

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
"""The messages of chats. `details`: the memories that were recalled for a message, and other data,
as JSON."""

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
"""Keys of a server's clients. `hash`: the SHA-256 of the key, which is not stored itself. `spec`:
scopes, namespaces and limits, as JSON."""

browser_sessions = Table(
    "browser_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
)
"""Browser sessions. `hash`: the SHA-256 of the token in the browser's cookie. `key_id`: the key
with which the session was started."""

namespace_tokens = Table(
    "namespace_tokens",
    metadata,
    Column("namespace_id", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("tokens", SERIAL, nullable=False),
)
"""The tokens of prompts and answers that a namespace used on a day (UTC)."""

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
"""Runs that a server performs. `wanted`: the state that the run should have, such as running or
cancelled; when a server starts, it resumes unfinished runs that should run. `launch`: limits and
name, as JSON."""

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
"""Scheduled jobs. `due`: the next time to run; NULL: never again. `lease_until`: a scheduler that
does not renew its lease before this time has lost the job. `lease_process`: see `store/lease.py`.
Times are those of the database's clock."""

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
"""The executions of jobs. `run_id`: the run that the execution started; empty before there is one.
`detail`: why it failed. `cause`: the schedule, or a person."""

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
"""Labelling tasks."""

labelling_items = Table(
    "labelling_items",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("item", Text, nullable=False),
)
"""The items of labelling tasks."""

labels = Table(
    "labels",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("labeller", Text, primary_key=True),
    Column("created", Float, nullable=False),
    Column("label", Text, nullable=False),
)
"""The labels of people, one for each item and person: the latest one."""
