"""The tables of a store, the same in SQLite and PostgreSQL, and the revision of their schema.

Runs and the texts of models are stored as bytes (UTF-8 with `surrogatepass`), because SQLite's TEXT
cannot hold a lone surrogate. Texts of namespaces, memories and servers are checked before they are
stored: they contain no NUL and no lone surrogate. Small columns precede large ones, so that sums
read little data. The search indexes of memories differ between databases;
`store/memory_search_sqlite.py` and `store/postgres.py` create them.
"""

from __future__ import annotations

from typing import Any

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


def _required(name: str, type: Any, **options: Any) -> Column[Any]:
    """Return a column without NULL."""
    return Column(name, type, nullable=False, **options)


def _named(table: str, *columns: Column[Any]) -> Table:
    """Return a table of resources, whose names are unique within a namespace."""
    key = (Column("id", Text, primary_key=True), _required("namespace_id", Text))
    unique = UniqueConstraint("namespace_id", "name", name=f"{table}_by_name")
    return Table(table, metadata, *key, _required("name", Text), *columns, unique)


texts = Table(
    "texts",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    _required("size", Integer),
    _required("body", LargeBinary),
)
"""Texts of messages, schemas and images, each stored once. `size`: in bytes; a shorter `body` is
compressed."""

calls = Table(
    "calls",
    metadata,
    Column("id", SERIAL, primary_key=True),
    _required("run_id", Text),
    _required("key", Text),
    _required("model", Text),
    _required("started", Float),
    _required("seconds", Float),
    _required("attempts", Integer),
    _required("prompt_tokens", Integer),
    _required("cached_tokens", Integer),
    _required("completion_tokens", Integer),
    Column("cost", Float),
    _required("parts", LargeBinary),
    _required("request", LargeBinary),
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
    _required("name", Text),
    _required("fingerprint", Text, unique=True),
    _required("created", Float),
    _required("updated", Float),
    _required("status", Text),
    _required("source", Text),
    Column("n_cases", Integer),
    Column("lease_token", Text),
    Column("lease_host", Text),
    Column("lease_pid", Integer),
    Column("lease_process", Text),
    Column("lease_heartbeat", Float),
    _required("spec", LargeBinary),
)
"""Runs. `n_cases`: NULL until all cases are stored. `lease_*`: the process that works on the run;
`lease_process` distinguishes processes with the same pid."""

cases = Table(
    "cases",
    metadata,
    _required("run_id", Text),
    _required("index", Integer),
    _required("id", LargeBinary),
    _required("body", LargeBinary),
)
"""The cases of runs, as bytes of `store/documents.py`."""

Index("cases_in_order", cases.c.run_id, cases.c.index, unique=True)

records = Table(
    "records",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    _required("position", Integer),
    _required("case_id", LargeBinary),
    Column("score", Float),
    _required("status", Text),
    _required("reason", LargeBinary),
    _required("body", LargeBinary),
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
    _required("run_id", Text),
    _required("model", Text),
    _required("created", Float),
    _required("updated", Float),
    _required("state", Text),
    _required("file", Text),
    _required("remote_id", Text),
    _required("detail", Text),
    _required("keys", LargeBinary),
)
"""Batch jobs that runs submitted. `mark`: our own id. `file`, `remote_id`: the ids of the endpoint;
empty before it has assigned them. `keys`: the keys of the requested calls, 32 bytes each, in order;
the key under which an answer is stored may be salted."""

Index("batches_of_run", batches.c.run_id, batches.c.state)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    _required("value", Integer),
    sqlite_with_rowid=False,
)
"""Counters. `sweeps` grows when texts are deleted, and writers then forget which texts are
stored."""

# Namespaces and what belongs to them

namespaces = Table(
    "namespaces",
    metadata,
    Column("id", Text, primary_key=True),
    _required("name", Text, unique=True),
    _required("description", Text),
    _required("created", Float),
    _required("updated", Float),
    Column("tokens_per_day", SERIAL),
)
"""Namespaces. `tokens_per_day`: the daily token budget; NULL: unlimited."""

agents = _named(
    "agents",
    _required("created", Float),
    _required("updated", Float),
    _required("spec", Text),
)
"""Agents. `spec`: an `AgentSpec` as JSON, without the persona, which the newest version holds."""

resource_versions = Table(
    "resource_versions",
    metadata,
    Column("resource_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    _required("created", Float),
    _required("source", Text),
    _required("spec", Text),
    _required("changes", Text),
)
"""The current and earlier specifications of resources, append-only. `spec`: as JSON, without the
name. `source`: what made the version, such as a run. `changes`: what changed and why, as JSON. In
stores that were migrated from revision 0007, earlier versions of agents have only the persona, and
other resources have no version until they change."""

users = _named(
    "users",
    _required("description", Text),
    _required("created", Float),
    _required("updated", Float),
)
"""The users with whom agents talk."""

collections = _named(
    "collections",
    _required("kind", Text),
    _required("embedder", Text),
    _required("dimension", Integer),
    _required("version", Integer),
    _required("changed", Float),
    _required("created", Float),
    _required("updated", Float),
    _required("description", Text),
)
"""Collections of memories. `version` grows by 1 with each transaction that changes its memories;
`changed`: the time of the last one."""

memories = Table(
    "memories",
    metadata,
    Column("seq", SERIAL, primary_key=True),
    _required("id", Text, unique=True),
    _required("namespace_id", Text),
    _required("collection_id", Text),
    _required("kind", Text),
    _required("importance", Float),
    _required("created", Float),
    Column("last_used", Float),
    _required("times_used", Integer),
    Column("turn", Integer),
    _required("trust", Float),
    Column("valid_from", Float),
    Column("valid_to", Float),
    Column("superseded_by", Text),
    Column("superseded_at", Float),
    _required("added", Integer),
    Column("closed", Integer),
    _required("forgotten", Boolean),
    _required("author", Text),
    _required("source", Text),
    _required("reason", Text),
    _required("cites", Text),
    _required("text", Text),
    sqlite_autoincrement=True,
)
"""Memories. `added` and `closed`: the versions of the collection that added the memory, and that
superseded or forgot it. `cites`: ids, as JSON."""

Index("memories_of_collection", memories.c.collection_id, memories.c.seq)
Index("memories_superseded_by", memories.c.superseded_by)

embeddings = Table(
    "embeddings",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    _required("dimension", Integer),
    _required("vector", LargeBinary),
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
    _required("name", Text),
)
"""The entities that memories mention. `entity`: the name in the form in which names are compared.
`position`: of the name among the memory's entities; NULL if only a relation has the name."""

Index("mentions_of_memory", mentions.c.seq)

relations = Table(
    "relations",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _required("subject", Text),
    _required("predicate", Text),
    _required("object", Text),
)
"""The relations between entities that memories state."""

uses = Table(
    "uses",
    metadata,
    Column("id", SERIAL, primary_key=True),
    _required("seq", SERIAL),
    _required("time", Float),
)
"""The times at which memories were recalled in chats. An earlier version of a collection is read
with the uses up to its time."""

Index("uses_of_memory", uses.c.seq, uses.c.time)

sources = Table(
    "memory_sources",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _required("base", Integer),
    _required("version", Integer),
    _required("created", Float),
    _required("label", Text),
    _required("ids", Text),
)
"""The sources (dialogues, documents, runs) from which memories were created, each applied once.
`ids`: of the created memories, as JSON."""

versions = Table(
    "collection_versions",
    metadata,
    Column("collection_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    _required("changed", Float),
)
"""The time of each version of a collection."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    _required("namespace_id", Text),
    _required("agent_id", Text),
    _required("user", Text),
    _required("created", Float),
    _required("updated", Float),
    _required("title", Text),
)
"""Chats with agents. `user`: the name of the user; empty if unknown."""

Index("sessions_of_namespace", sessions.c.namespace_id, sessions.c.updated)

messages = Table(
    "messages",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _required("role", Text),
    _required("created", Float),
    _required("text", Text),
    _required("details", Text),
)
"""The messages of chats. `details`: the memories that were recalled for a message, and other data,
as JSON."""

# Servers: keys, runs of clients, jobs, labels

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    _required("name", Text),
    _required("hash", LargeBinary, unique=True),
    _required("created", Float),
    Column("expires", Float),
    Column("revoked", Float),
    Column("used", Float),
    _required("spec", Text),
)
"""Keys of a server's clients. `hash`: the SHA-256 of the key, which is not stored itself. `spec`:
scopes, namespaces and limits, as JSON."""

browser_sessions = Table(
    "browser_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    _required("key_id", Text),
    _required("created", Float),
    _required("expires", Float),
)
"""Browser sessions. `hash`: the SHA-256 of the token in the browser's cookie. `key_id`: the key
with which the session was started."""

namespace_tokens = Table(
    "namespace_tokens",
    metadata,
    Column("namespace_id", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    _required("tokens", SERIAL),
)
"""The tokens of prompts and answers that a namespace used on a day (UTC)."""

served_runs = Table(
    "served_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    _required("namespace", Text),
    _required("key_id", Text),
    _required("created", Float),
    _required("wanted", Text),
    _required("launch", Text),
)
"""Runs that a server performs. `wanted`: the state that the run should have, such as running or
cancelled; when a server starts, it resumes unfinished runs that should run. `launch`: the launch
options, and the reason why the run must not continue, as JSON."""

jobs = _named(
    "jobs",
    _required("created", Float),
    _required("updated", Float),
    _required("paused", Boolean),
    Column("due", Float),
    Column("lease_token", Text),
    Column("lease_until", Float),
    Column("lease_host", Text),
    Column("lease_pid", Integer),
    Column("lease_process", Text),
    _required("spec", Text),
)
"""Scheduled jobs. `due`: the next time to run; NULL: never again. `lease_until`: a scheduler that
does not renew its lease before this time has lost the job. `lease_process`: identifies the
scheduler's process even if its pid is used again. Times are those of the database's clock."""

Index("jobs_due", jobs.c.due)

job_runs = Table(
    "job_runs",
    metadata,
    Column("id", SERIAL, primary_key=True),
    _required("job_id", Text),
    _required("due", Float),
    _required("cause", Text),
    _required("started", Float),
    Column("ended", Float),
    _required("attempt", Integer),
    _required("status", Text),
    _required("run_id", Text),
    _required("detail", Text),
    sqlite_autoincrement=True,
)
"""The executions of jobs. `run_id`: the run that the execution started; empty before there is one.
`detail`: details of the outcome, such as why it failed. `cause` and `attempt` are "schedule" and 1
in every row that is written now."""

Index("job_runs_of_job", job_runs.c.job_id, job_runs.c.id)

labelling_tasks = _named(
    "labelling_tasks",
    _required("created", Float),
    _required("spec", Text),
)
"""Labelling tasks."""

labelling_items = Table(
    "labelling_items",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _required("item", Text),
)
"""The items of labelling tasks."""

labels = Table(
    "labels",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("labeller", Text, primary_key=True),
    _required("created", Float),
    _required("label", Text),
)
"""The labels of people, one for each item and person: the latest one."""
