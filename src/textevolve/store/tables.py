"""The tables of a store, the same in SQLite and PostgreSQL, and the revision of their schema.

Runs and the texts of models are stored as bytes (UTF-8 with `surrogatepass`), because SQLite's TEXT
cannot hold a lone surrogate. Texts of namespaces, memories and servers are checked before they are
stored: they contain no NUL and no lone surrogate. Small columns precede large ones, so that sums
read little data. The search indexes of memories differ between databases;
`store/memory_search_sqlite.py` and `store/postgres.py` create them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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

REVISION = "0012"
"""The revision of these tables; `store/dialects.py` migrates older ones."""

APPLICATION_ID = 0x54457631
"""The number that marks an SQLite file as a store of TextEvolve ("TEv1")."""

metadata = MetaData()

_TYPES = (Text, Integer, Float, LargeBinary, BigInteger().with_variant(Integer, "sqlite"), Boolean)
"""The types of columns. SQLite can count up the fifth, a 64-bit integer, by itself."""
(
    _OPTIONAL_TEXT,
    _OPTIONAL_INTEGER,
    _OPTIONAL_FLOAT,
    _OPTIONAL_BYTES,
    _OPTIONAL_SERIAL,
    _OPTIONAL_BOOLEAN,
) = (partial(Column[Any], type_=type) for type in _TYPES)
_TEXT, _INTEGER, _FLOAT, _BYTES, _SERIAL, _BOOLEAN = (
    partial(Column[Any], type_=type, nullable=False) for type in _TYPES
)
"""Functions that make a column of a name. Optional columns may be NULL, the others never are."""

_AUTOINCREMENT = {"sqlite_autoincrement": True}
_WITHOUT_ROWID = {"sqlite_with_rowid": False}


def _table(
    name: str,
    keys: int = 1,
    options: Mapping[str, Any] | None = None,
    /,
    **columns: Callable[..., Column[Any]],
) -> Table:
    """Return a table of these columns; the first ones, as many as `keys`, are its primary key.
    `options`: of the table in SQLite."""
    in_order = (
        column(title, primary_key=place < keys)
        for place, (title, column) in enumerate(columns.items())
    )

    return Table(name, metadata, *in_order, **(options or {}))


def _named(name: str, /, **columns: Callable[..., Column[Any]]) -> Table:
    """Return a table of resources, whose names are unique within a namespace."""
    table = _table(name, id=_TEXT, namespace_id=_TEXT, name=_TEXT, **columns)
    UniqueConstraint(table.c.namespace_id, table.c.name, name=f"{name}_by_name")
    return table


def _index(table: Table, name: str, *columns: str, **options: Any) -> None:
    """Add an index of these columns to a table."""
    Index(name, *(table.c[column] for column in columns), **options)


texts = _table(
    "texts",
    hash=_BYTES,
    size=_INTEGER,
    body=_BYTES,
)
"""Texts of messages, schemas and images, each stored once. `size`: in bytes; a shorter `body` is
compressed."""

calls = _table(
    "calls",
    1,
    _AUTOINCREMENT,
    id=_SERIAL,
    run_id=_TEXT,
    key=_TEXT,
    model=_TEXT,
    started=_FLOAT,
    seconds=_FLOAT,
    attempts=_INTEGER,
    prompt_tokens=_INTEGER,
    cached_tokens=_INTEGER,
    completion_tokens=_INTEGER,
    cost=_OPTIONAL_FLOAT,
    parts=_BYTES,
    request=_BYTES,
    error=_OPTIONAL_BYTES,
    response=_OPTIONAL_BYTES,
    saved=_OPTIONAL_FLOAT,
)
"""All finished calls, append-only. `parts`: the hashes of the texts, 32 bytes each, in order.
`saved`: the US dollars that prompt caching saved; NULL in calls of early versions."""

ERASED = "[erased]"
"""The text that replaces an erased one."""
ERASED_KEY = "erased"
"""The key of calls whose texts were erased (`store/upkeep.py`): no request has this key."""

ANSWERED = text("error IS NULL")
calls_answered = Index("calls_answered", calls.c.key)
"""The index of the calls with an answer; `store/dialects.py` adds the condition `ANSWERED`."""
_index(calls, "calls_of_run", "run_id")

reuses = _table(
    "reuses",
    2,
    _WITHOUT_ROWID,
    run_id=_TEXT,
    call_id=_SERIAL,
)
"""Calls of other runs whose answers a run found in the journal."""

_index(reuses, "reuses_of_call", "call_id")

runs = _table(
    "runs",
    id=_TEXT,
    name=_TEXT,
    fingerprint=partial(_TEXT, unique=True),
    created=_FLOAT,
    updated=_FLOAT,
    status=_TEXT,
    source=_TEXT,
    n_cases=_OPTIONAL_INTEGER,
    lease_token=_OPTIONAL_TEXT,
    lease_host=_OPTIONAL_TEXT,
    lease_pid=_OPTIONAL_INTEGER,
    lease_process=_OPTIONAL_TEXT,
    lease_heartbeat=_OPTIONAL_FLOAT,
    spec=_BYTES,
)
"""Runs. `n_cases`: NULL until all cases are stored. `lease_*`: the process that works on the run;
`lease_process` distinguishes processes with the same pid."""

cases = _table(
    "cases",
    0,
    run_id=_TEXT,
    index=_INTEGER,
    id=_BYTES,
    body=_BYTES,
)
"""The cases of runs, as bytes of `store/documents.py`."""

_index(cases, "cases_in_order", "run_id", "index", unique=True)

records = _table(
    "records",
    2,
    run_id=_TEXT,
    key=_BYTES,
    position=_INTEGER,
    case_id=_BYTES,
    score=_OPTIONAL_FLOAT,
    status=_TEXT,
    reason=_BYTES,
    body=_BYTES,
    revision=_OPTIONAL_SERIAL,
    variant=_OPTIONAL_BYTES,
    passed=_OPTIONAL_BOOLEAN,
    cluster=_OPTIONAL_BYTES,
)
"""The results of runs, one row for each record. They are derived from the journal, and can be
rebuilt. `revision` grows with each change of a run's records, and is never used twice. `revision`,
`variant` and `passed` are NULL in rows of early versions. `cluster`: the name that dependent
records share; NULL if only those of one case are dependent."""

_index(
    records,
    "records_in_order",
    "run_id",
    "position",
    "key",
    "status",
    "passed",
    "score",
    "case_id",
    "variant",
    "cluster",
)
"""The columns by which pages are filtered and sorted, so that no record needs to be read."""
_index(records, "records_by_variant", "run_id", "variant", "status", "passed", "score", "position")
"""The columns from which records are counted and scores added up, in the order of grouping."""
_index(records, "records_of_case", "run_id", "case_id", "position")
_index(records, "records_by_revision", "run_id", "revision")

batches = _table(
    "batches",
    mark=_TEXT,
    run_id=_TEXT,
    model=_TEXT,
    created=_FLOAT,
    updated=_FLOAT,
    state=_TEXT,
    file=_TEXT,
    remote_id=_TEXT,
    detail=_TEXT,
    keys=_BYTES,
)
"""Batch jobs that runs submitted. `mark`: our own id. `file`, `remote_id`: the ids of the endpoint;
empty before it has assigned them. `keys`: the keys of the requested calls, 32 bytes each, in order;
the key under which an answer is stored may be salted."""

_index(batches, "batches_of_run", "run_id", "state")

counters = _table(
    "counters",
    1,
    _WITHOUT_ROWID,
    name=_TEXT,
    value=_INTEGER,
)
"""Counters. `sweeps` grows when texts are deleted, and writers then forget which texts are
stored."""

# Namespaces and what belongs to them

namespaces = _table(
    "namespaces",
    id=_TEXT,
    name=partial(_TEXT, unique=True),
    description=_TEXT,
    created=_FLOAT,
    updated=_FLOAT,
    tokens_per_day=_OPTIONAL_SERIAL,
)
"""Namespaces. `tokens_per_day`: the daily token budget; NULL: unlimited."""

agents = _named(
    "agents",
    created=_FLOAT,
    updated=_FLOAT,
    spec=_TEXT,
)
"""Agents. `spec`: an `AgentSpec` as JSON, without the persona, which the newest version holds."""

resource_versions = _table(
    "resource_versions",
    2,
    resource_id=_TEXT,
    version=_INTEGER,
    created=_FLOAT,
    source=_TEXT,
    spec=_TEXT,
    changes=_TEXT,
)
"""The current and earlier specifications of resources, append-only. `spec`: as JSON, without the
name. `source`: what made the version, such as a run. `changes`: what changed and why, as JSON. In
stores that were migrated from revision 0007, earlier versions of agents have only the persona, and
other resources have no version until they change."""

users = _named(
    "users",
    description=_TEXT,
    created=_FLOAT,
    updated=_FLOAT,
)
"""The users with whom agents talk."""

collections = _named(
    "collections",
    kind=_TEXT,
    embedder=_TEXT,
    dimension=_INTEGER,
    version=_INTEGER,
    changed=_FLOAT,
    created=_FLOAT,
    updated=_FLOAT,
    description=_TEXT,
)
"""Collections of memories. `version` grows by 1 with each transaction that changes its memories;
`changed`: the time of the last one."""

memories = _table(
    "memories",
    1,
    _AUTOINCREMENT,
    seq=_SERIAL,
    # The rows of one insert are written at once, and their numbers come back by these ids.
    id=partial(_TEXT, unique=True, insert_sentinel=True),
    namespace_id=_TEXT,
    collection_id=_TEXT,
    kind=_TEXT,
    importance=_FLOAT,
    created=_FLOAT,
    last_used=_OPTIONAL_FLOAT,
    times_used=_INTEGER,
    turn=_OPTIONAL_INTEGER,
    trust=_FLOAT,
    valid_from=_OPTIONAL_FLOAT,
    valid_to=_OPTIONAL_FLOAT,
    superseded_by=_OPTIONAL_TEXT,
    superseded_at=_OPTIONAL_FLOAT,
    added=_INTEGER,
    closed=_OPTIONAL_INTEGER,
    forgotten=_BOOLEAN,
    author=_TEXT,
    source=_TEXT,
    reason=_TEXT,
    cites=_TEXT,
    text=_TEXT,
    user=partial(_TEXT, server_default=""),
)
"""Memories. `added` and `closed`: the versions of the collection that added the memory, and that
superseded or forgot it. `cites`: ids, as JSON. `user`: the name of the user whose memory it is;
empty if it is common."""

_index(memories, "memories_of_collection", "collection_id", "seq")
_index(memories, "memories_superseded_by", "superseded_by")

embeddings = _table(
    "embeddings",
    seq=partial(_SERIAL, autoincrement=False),
    dimension=_INTEGER,
    vector=_BYTES,
)
"""The embeddings of memories: float32, little-endian, of length 1. Search indexes are built from
them."""

token_vectors = _table(
    "token_vectors",
    seq=partial(_SERIAL, autoincrement=False),
    model=_TEXT,
    width=_INTEGER,
    vectors=_BYTES,
)
"""The vectors of the tokens of memories, packed; `width`: the bytes of one. Memories of older
stores have none."""

mentions = _table(
    "mentions",
    3,
    collection_id=_TEXT,
    entity=_TEXT,
    seq=_SERIAL,
    position=_OPTIONAL_INTEGER,
    name=_TEXT,
)
"""The entities that memories mention. `entity`: the name in the form in which names are compared.
`position`: of the name among the memory's entities; NULL if only a relation has the name."""

_index(mentions, "mentions_of_memory", "seq")

relations = _table(
    "relations",
    2,
    seq=_SERIAL,
    position=_INTEGER,
    subject=_TEXT,
    predicate=_TEXT,
    object=_TEXT,
)
"""The relations between entities that memories state."""

uses = _table(
    "uses",
    id=_SERIAL,
    seq=_SERIAL,
    time=_FLOAT,
)
"""The times at which memories were recalled in chats. An earlier version of a collection is read
with the uses up to its time."""

_index(uses, "uses_of_memory", "seq", "time")

sources = _table(
    "memory_sources",
    2,
    collection_id=_TEXT,
    key=_TEXT,
    base=_INTEGER,
    version=_INTEGER,
    created=_FLOAT,
    label=_TEXT,
    ids=_TEXT,
)
"""The sources (dialogues, documents, runs) from which memories were created, each applied once.
`ids`: of the created memories, as JSON."""

versions = _table(
    "collection_versions",
    2,
    collection_id=_TEXT,
    version=_INTEGER,
    changed=_FLOAT,
)
"""The time of each version of a collection."""

sessions = _table(
    "sessions",
    id=_TEXT,
    namespace_id=_TEXT,
    agent_id=_TEXT,
    user=_TEXT,
    created=_FLOAT,
    updated=_FLOAT,
    title=_TEXT,
)
"""Chats with agents. `user`: the name of the user; empty if unknown."""

_index(sessions, "sessions_of_namespace", "namespace_id", "updated")

messages = _table(
    "messages",
    2,
    session_id=_TEXT,
    position=_INTEGER,
    role=_TEXT,
    created=_FLOAT,
    text=_TEXT,
    details=_TEXT,
)
"""The messages of chats. `details`: the memories that were recalled for a message, and other data,
as JSON."""

# Servers: keys, runs of clients, jobs, labels

api_keys = _table(
    "api_keys",
    id=_TEXT,
    name=_TEXT,
    hash=partial(_BYTES, unique=True),
    created=_FLOAT,
    expires=_OPTIONAL_FLOAT,
    revoked=_OPTIONAL_FLOAT,
    used=_OPTIONAL_FLOAT,
    spec=_TEXT,
)
"""Keys of a server's clients. `hash`: the SHA-256 of the key, which is not stored itself. `spec`:
scopes, namespaces and limits, as JSON."""

browser_sessions = _table(
    "browser_sessions",
    hash=_BYTES,
    key_id=_TEXT,
    created=_FLOAT,
    expires=_FLOAT,
)
"""Browser sessions. `hash`: the SHA-256 of the token in the browser's cookie. `key_id`: the key
with which the session was started."""

namespace_tokens = _table(
    "namespace_tokens",
    2,
    namespace_id=_TEXT,
    day=_TEXT,
    tokens=_SERIAL,
)
"""The tokens of prompts and answers that a namespace used on a day (UTC)."""

served_runs = _table(
    "served_runs",
    run_id=_TEXT,
    namespace=_TEXT,
    key_id=_TEXT,
    created=_FLOAT,
    wanted=_TEXT,
    launch=_TEXT,
)
"""Runs that a server performs. `wanted`: the state that the run should have, such as running or
cancelled; when a server starts, it resumes unfinished runs that should run. `launch`: the launch
options, and the reason why the run must not continue, as JSON."""

jobs = _named(
    "jobs",
    created=_FLOAT,
    updated=_FLOAT,
    paused=_BOOLEAN,
    due=_OPTIONAL_FLOAT,
    lease_token=_OPTIONAL_TEXT,
    lease_until=_OPTIONAL_FLOAT,
    lease_host=_OPTIONAL_TEXT,
    lease_pid=_OPTIONAL_INTEGER,
    lease_process=_OPTIONAL_TEXT,
    spec=_TEXT,
)
"""Scheduled jobs. `due`: the next time to run; NULL: never again. `lease_until`: a scheduler that
does not renew its lease before this time has lost the job. `lease_process`: identifies the
scheduler's process even if its pid is used again. Times are those of the database's clock."""

_index(jobs, "jobs_due", "due")

job_runs = _table(
    "job_runs",
    1,
    _AUTOINCREMENT,
    id=_SERIAL,
    job_id=_TEXT,
    due=_FLOAT,
    cause=_TEXT,
    started=_FLOAT,
    ended=_OPTIONAL_FLOAT,
    attempt=_INTEGER,
    status=_TEXT,
    run_id=_TEXT,
    detail=_TEXT,
)
"""The executions of jobs. `run_id`: the run that the execution started; empty before there is one.
`detail`: details of the outcome, such as why it failed. `cause` and `attempt` are "schedule" and 1
in every row that is written now."""

_index(job_runs, "job_runs_of_job", "job_id", "id")

labelling_tasks = _named(
    "labelling_tasks",
    created=_FLOAT,
    spec=_TEXT,
)
"""Labelling tasks."""

labelling_items = _table(
    "labelling_items",
    2,
    task_id=_TEXT,
    position=_INTEGER,
    item=_TEXT,
)
"""The items of labelling tasks."""

labels = _table(
    "labels",
    3,
    task_id=_TEXT,
    position=_INTEGER,
    labeller=_TEXT,
    created=_FLOAT,
    label=_TEXT,
)
"""The labels of people, one for each item and person: the latest one."""
