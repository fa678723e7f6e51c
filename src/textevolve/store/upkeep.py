"""Upkeep of a store: measure its size, release unused space, and check every row; the intact rows
of a damaged SQLite file can be saved into a new one.

SQLite itself reads a damaged file, each table from both ends. Rows that it cannot reach are lost,
such as those between two damaged places, or in a table whose root page is damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from time import time
from typing import Any, TypeAlias, cast

from sqlalchemy import Table, delete, func, select, tuple_, update
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError, TakenError
from textevolve.evaluation import empty_default
from textevolve.json_texts import is_array, is_object
from textevolve.llm.prompts import JOINER
from textevolve.loading import np
from textevolve.mappings import map_values, pick, read_fields
from textevolve.memory.record import Add, Collection, MemoryRecord, NewMemory, TokenVectors, Vector
from textevolve.portions import measure, split_portions, take_portion
from textevolve.settings import StoreLocation
from textevolve.store import lease, sqlite, tables
from textevolve.store.database import open_database
from textevolve.store.dialects import OLDER_REVISIONS, count_bytes, is_postgres
from textevolve.store.documents import (
    DAMAGES,
    HASH_BYTES,
    bytes_to_text,
    dump_json,
    hash_bytes,
    load_case,
    load_json,
    load_response,
    split_body,
    split_hashes,
    text_to_bytes,
    unpack,
    unpack_json,
    unpack_json_bytes,
)
from textevolve.store.kinds import NAMESPACES, Kind, create
from textevolve.store.memory_changes import Transaction, check_changes, search_of
from textevolve.store.memory_rows import IndexEntry, chunks, collection_of
from textevolve.store.memory_search_sqlite import WORDS, drop_index, find_index_fault, words_to_find
from textevolve.store.resource_rows import (
    delete_where,
    insert_unless_stored,
    namespace_id,
    require_free_name,
    update_where,
)
from textevolve.store.runs import check_fields
from textevolve.store.sqlite import SQLiteDatabase, sqlite3
from textevolve.store.tables import ERASED
from textevolve.texts.prose import join_lines

# Copy a store into another one, whichever databases they are in: completely, or not at all.

PAGE = 500
"""The most rows that are read and inserted at once; large ones are copied a few at a time."""
UNCOPIED_TABLES = ("counters",)
"""The tables that are not copied, since each store has its own."""


def copied_tables() -> list[Table]:
    return [table for table in tables.metadata.sorted_tables if table.name not in UNCOPIED_TABLES]


def copy_store(source: StoreLocation, target: StoreLocation) -> dict[str, int]:
    """Copy a consistent snapshot of a store; return the target's number of rows by table. Processes
    may write to the source meanwhile; what they work on is interrupted in the copy. A target file
    that was created for the copy is deleted if the copy fails.

    Raises:
        StoreError: the target is not empty, or one of the stores cannot be used.
    """
    if str(source) == str(target):
        raise StoreError(f"store {source}: cannot be copied into itself")

    def copy(reading: Connection, writing: Connection) -> dict[str, int]:
        if used := [name for name, number in count_rows(writing).items() if number]:
            raise StoreError(
                f"store {target}: is not empty ({', '.join(used)}); name a new file or an empty"
                " database"
            )

        for table in copied_tables():
            for page in split_portions(read_rows(reading, table), PAGE, _size_of_row):
                writing.execute(table.insert(), page)
        finish_copy(writing)

        return count_rows(writing)

    is_new_file = isinstance(target, Path) and not target.expanduser().exists()

    try:
        with (
            closing(open_database(source)) as source_database,
            closing(open_database(target)) as target_database,
        ):
            return target_database.write(
                lambda writing: source_database.read(lambda reading: copy(reading, writing))
            )
    except BaseException:
        if is_new_file:
            _delete_file(cast(Path, target).expanduser())
        raise


def _delete_file(path: Path) -> None:
    """Delete an SQLite file with the files that SQLite lays beside it."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)


def row_keys(table: Table) -> list[Any]:
    """Return the columns that identify a row of a table."""
    if table is tables.cases:
        return [table.c.run_id, table.c.index]
    return list(table.primary_key.columns)


def _execute(connection: Connection, query: Any) -> Iterator[dict[str, Any]]:
    return map(dict, connection.execute(query).mappings())


def _size_of_row(row: Mapping[str, Any]) -> int:
    return measure(row.values())


def read_rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in the order of its keys."""
    keys = row_keys(table)
    page = query = select(table).order_by(*keys).limit(PAGE)
    while rows := take_portion(_execute(connection, page), PAGE, _size_of_row):
        yield from rows
        page = query.where(tuple_(*keys) > tuple_(*(rows[-1][key.name] for key in keys)))


def finish_copy(connection: Connection) -> None:
    """Turn copied tables into a complete store: build the search indexes, let PostgreSQL's
    sequences continue after the copied ids, release all leases, and mark running runs as
    interrupted."""
    for table in (tables.runs, tables.jobs):
        update_where(connection, table, lease.no_lease(table))
    update_where(connection, tables.runs, {"status": "interrupted"}, status="running")

    if is_postgres(connection):
        for table in (tables.calls, tables.memories, tables.uses, tables.job_runs):
            (key,) = table.primary_key.columns
            top = f"SELECT coalesce(max({key.name}), 0) + 1 FROM {table.name}"
            sequence = f"pg_get_serial_sequence('{table.name}', '{key.name}')"
            connection.execute(sql(f"SELECT setval({sequence}, ({top}), false)"))

    _index_memories(connection)


def _index_memories(connection: Connection) -> None:
    for row in connection.execute(select(tables.collections)).all():
        index_collection(connection, collection_of(row, ""))


def _index_anew(connection: Connection) -> None:
    drop_index(connection)
    _index_memories(connection)


def index_collection(connection: Connection, collection: Collection) -> None:
    """Index the memories of a collection that has no index, by their embeddings and texts. Erased
    memories, whose text is empty, are left out."""
    memories = tables.memories
    embeddings = tables.embeddings
    lost = bytes(4 * collection.dimension)  # a salvaged store may lack an embedding
    query = (
        select(memories, embeddings.c.vector)
        .outerjoin(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.collection_id == collection.id, memories.c.text != "")
        .order_by(memories.c.seq)
    )

    for chunk in chunks(connection.execute(query).all()):
        entries = [
            IndexEntry(row.seq, row.text, np.frombuffer(row.vector or lost, "<f4")) for row in chunk
        ]
        search_of(connection).add(connection, collection, entries)


def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each copied table, by its name."""
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in copied_tables()
    }


# Erase texts from a store: a tombstone replaces every field that contained one of them.
#
# Texts are compared by their words, since prompts quote them, break their lines and escape them. A
# call whose prompt or answer has a text loses its whole answer, which may repeat it in other
# words; its tokens, cost and times stay. It also loses its key, so no replay finds it and it can
# be repeated.

MARK = f'"{ERASED}"'
"""The text that replaces an erased text, as JSON."""

COLUMNS: Mapping[Table, tuple[str, ...]] = {
    tables.runs: ("spec",),
    tables.cases: ("body",),
    tables.records: ("reason", "body"),
    tables.messages: ("text", "details"),
    tables.sessions: ("title",),
    tables.resource_versions: ("spec", "changes"),
    tables.memories: ("reason",),
    tables.labelling_items: ("item",),
    tables.labels: ("label",),
}
"""The columns, besides those of calls, whose texts may contain an erased text. The text of a memory
is not among them: another memory with the same text stays as it is."""
PLAIN = ("text", "reason", "title", "label")
"""The columns that hold a text; the others hold JSON."""

DERIVED: Mapping[str, Any] = {"text": ERASED, "reason": ERASED, "entities": [], "relations": []}
"""What is derived from a fact that was read in a dialogue, with the value that replaces it."""

Matcher: TypeAlias = Callable[[str], bool]
"""A function that returns whether a text contains the words of an erased text."""

_ESCAPE = re.compile(r'\\+(?:u([0-9a-fA-F]{4})|[bfnrt"/\\])')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def erase_texts(location: StoreLocation, texts: Sequence[str]) -> None:
    """Erase texts from a store, all or none: a tombstone replaces each. Free pages of the file may
    contain the texts until `upkeep.scrub_store` runs.

    Raises:
        StoreError: the store cannot be read or written, or is damaged.
    """
    with closing(open_database(location)) as database:
        database.change(None, _erase, texts)


def _erase(connection: Connection, texts: Sequence[str]) -> None:
    holds = _make_matcher(texts)

    def change(table: Table, row: Mapping[str, Any], cleaned: Mapping[str, Any]) -> None:
        changed = {name: value for name, value in cleaned.items() if value != row[name]}
        if changed:
            same = {key.name: row[key.name] for key in row_keys(table)}
            update_where(connection, table, changed, **same)

    holding = {
        row["hash"]
        for row in read_rows(connection, tables.texts)
        if holds(bytes_to_text(unpack(row["body"], row["size"])))
    }
    for row in read_rows(connection, tables.calls):
        change(tables.calls, row, _clean_call(row, holding, holds))
    for table, names in COLUMNS.items():
        for row in read_rows(connection, table):
            change(table, row, {n: _clean(row[n], holds, n in PLAIN) for n in names})
    if holding:
        for hash in holding:
            delete_where(connection, tables.texts, hash=hash)
        body = text_to_bytes(ERASED)
        tombstone = {"hash": hash_bytes(ERASED), "size": len(body), "body": body}
        insert_unless_stored(connection, tables.texts, tombstone)
        connection.execute(sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'"))


def _make_matcher(texts: Sequence[str]) -> Matcher:
    """Return a function that returns whether a text contains the consecutive words of any of these
    texts; an image's data URL contains none. Each of them is only compared where its rarest word
    occurs, since there may be thousands of texts."""
    needles = {tuple(_list_words(text)) for text in texts} - {()}
    counts = Counter(word for needle in needles for word in set(needle))
    index: defaultdict[str, list[str]] = defaultdict(list)
    for needle in needles:
        index[min(needle, key=counts.__getitem__)].append(f" {' '.join(needle)} ")

    def holds(text: str) -> bool:
        words = [] if text.startswith("data:image/") else _list_words(text)
        rare = index.keys() & set(words)
        joined = f" {' '.join(words)} " if rare else ""
        return any(needle in joined for word in rare for needle in index[word])

    return holds


def _list_words(text: str) -> list[str]:
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else " ", text)
    return words_to_find(plain.replace(JOINER, ""))


def _clean_call(row: Mapping[str, Any], holding: set[bytes], holds: Matcher) -> dict[str, Any]:
    """Return the new columns of a call that contains one of the texts, in a field or in a part
    whose hash is in `holding`; an empty mapping for other calls."""
    parts = split_hashes(row["parts"])
    answer = row["response"]
    error = row["error"]
    request, response = (_clean(row[name], holds) for name in ("request", "response"))
    cleaned_error = _clean(error, holds, plain=True)

    if (request, response, cleaned_error) == (
        row["request"],
        answer,
        error,
    ) and not holding.intersection(parts):
        return {}

    if answer is not None:
        fields = ("finish_reason", "calls", "seconds", "attempts", "member", "reasoning_tokens")
        stored = load_json(unpack_json_bytes(answer))
        stored = {"text": ERASED} | pick(stored, fields)
        answer = dump_json(stored, "an answer")

    mark = hash_bytes(ERASED)
    joined = b"".join(mark if part in holding else part for part in parts)
    values = {"parts": joined, "request": request, "error": cleaned_error, "response": answer}

    return {**values, "key": tables.ERASED_KEY}


def _clean(value: Any, holds: Matcher, plain: bool = False) -> Any:
    """Return a column's value in which a tombstone replaces each JSON string that contains one of
    the texts. `plain`: the column holds a text instead of JSON, and is replaced as a whole."""
    if isinstance(value, bytes):
        head, data = split_body(value)
        packed = data[:2] == b"x\x01"
        text = bytes_to_text(zlib.decompress(data) if packed else data)
        cleaned = _clean(text, holds, plain)
        data = text_to_bytes(cleaned)
        return value if cleaned == text else head + (zlib.compress(data, 1) if packed else data)

    if value is None or not holds(value):
        return value

    if plain:
        return ERASED
    cleaned = _STRING.sub(lambda m: MARK if holds(m[0]) else m[0], value)
    if '"entities"' not in cleaned:
        return cleaned
    return json.dumps(erase_derived(json.loads(cleaned)), ensure_ascii=False)


def erase_derived(value: Any) -> Any:
    """Return a JSON value without what was derived from an erased text: where a fact that was read
    in a dialogue has a tombstone, its other wording and the names in it go, too."""
    if is_array(value):
        return list(map(erase_derived, value))
    if not is_object(value):
        return value

    cleaned = map_values(erase_derived, value)
    point = cleaned.get("point")
    parts: list[dict[str, Any]] = [cleaned, point] if isinstance(point, dict) else [cleaned]
    is_fact = any("entities" in part for part in parts)
    if is_fact and any(ERASED in part.values() for part in parts):
        for part in parts:
            part.update(pick(DERIVED, part))

    return cleaned


# Store exported resources of another store, all in one transaction. `desk/exchange.py` reads and
# writes the files.


@dataclass(eq=False)
class Exported:
    """A resource in an exported file.

    Attributes:
        kind: Its kind, such as agents.
        stored: The resource as the other store had it.
        spec: Its specification in this store.
        memories: The memories of a collection, in the order in which they were added.
        vectors: The embeddings of the memories by id.
        tokens: The vectors of their tokens.
    """

    kind: Kind[Any, Any]
    stored: Any
    spec: Any
    memories: list[MemoryRecord] = empty_default(list)
    vectors: dict[str, Vector] = empty_default(dict)
    tokens: dict[str, TokenVectors] = empty_default(dict)


def require_free_names(
    connection: Connection, namespace: str, resources: Sequence[Exported]
) -> None:
    """Check that the names of imported resources are free.

    Raises:
        TakenError: a name is taken. NotFoundError: the namespace does not exist.
    """
    for each in resources:
        try:
            require_free_name(connection, each.kind, each.spec.name, namespace)
        except TakenError as error:
            raise TakenError(
                f"{str(error).partition(';')[0]}; --name gives it another name here"
            ) from None

        if each.kind is NAMESPACES:
            return  # a new namespace has no names yet


def store_all(connection: Connection, namespace: str, resources: Sequence[Exported]) -> None:
    """Store resources as new ones, all or none.

    Raises:
        InputError: a name is taken, or a memory cannot be stored.
    """
    for each in resources:
        stored = create(connection, each.kind, namespace, each.spec)
        if each.memories:
            _store_memories(connection, namespace_id(connection, namespace), stored, each)


def _store_memories(
    connection: Connection, space: str, collection: Collection, each: Exported
) -> None:
    """Add memories under new ids; memories that cite others are added after those that cite none.
    Citations of memories that were not added before are left out."""
    ids: dict[str, str] = {}
    plain = [memory for memory in each.memories if not memory.cites]

    for group in (plain, [memory for memory in each.memories if memory.cites]):
        changes = [Add(_as_new(memory, each, ids)) for memory in group]
        check_changes(collection, changes)
        transaction = Transaction(connection, space, collection, collection.version + 1, time())
        applied = transaction.apply(changes, None)
        collection = replace(collection, version=applied.version)
        ids |= {memory.id: id for memory, id in zip(group, applied.ids, strict=True)}


def _as_new(memory: MemoryRecord, each: Exported, ids: Mapping[str, str]) -> NewMemory:
    names = {field.name for field in fields(NewMemory)} - {"embedding", "tokens", "cites"}
    values = read_fields(memory, *names)
    cites = tuple(ids[id] for id in memory.cites if id in ids)
    vector = each.vectors[memory.id]
    return NewMemory(**values, embedding=vector, tokens=each.tokens.get(memory.id), cites=cites)


OF_RUNS = (tables.cases, tables.records, tables.reuses)
"""The tables whose rows are useless without their run."""


def measure_store(location: StoreLocation) -> int:
    """Return the size of a store in bytes, with its indexes.

    Raises:
        StoreError: the store cannot be read.
    """
    with closing(open_database(location)) as database:
        return database.read(count_bytes)


def vacuum_store(location: StoreLocation) -> tuple[int, int]:
    """Release unused space; return the size in bytes before and after.

    Raises:
        StoreError: the store is in use, or there is no room for a second copy of the file.
    """
    before = measure_store(location)
    with closing(open_database(location)) as database:
        database.vacuum()

    return before, measure_store(location)


def scrub_store(location: StoreLocation) -> None:
    """Rewrite the store, so that no free page contains erased texts.

    Raises:
        StoreError: the store cannot be rewritten now. Its rows contain no erased texts even so.
    """
    try:
        with closing(open_database(location)) as database:
            database.vacuum(scrub=True)
    except StoreError as error:
        raise StoreError(
            f"{error}; the text is erased, but free pages of the file may still hold it: run"
            " textevolve config store vacuum when no other process uses the store"
        ) from error


@dataclass(frozen=True)
class Findings:
    """The result of a check. `intact`: the number of intact rows of each table, and of `erased
    calls`; `unreadable`: the number of damaged rows and unreadable places of each table;
    `incomplete`: the runs that have lost rows; `complaint`: a fault of the file that SQLite
    reports, or empty; `repaired`: the fault of the index of the memories' words, which the check
    has built anew from the memories, or empty."""

    intact: dict[str, int]
    unreadable: dict[str, int]
    incomplete: tuple[str, ...]
    complaint: str = ""
    repaired: str = ""

    @property
    def damaged(self) -> bool:
        return bool(self.unreadable or self.incomplete or self.complaint)


def check(location: StoreLocation, salvage: Path | None = None) -> Findings:
    """Read all rows of a store, and build a damaged index of the memories' words anew. `salvage`: a
    new file, into which intact rows are copied; a PostgreSQL database has to be saved with the
    server's own tools.

    In the copy of a damaged store, a run that has lost cases reads them again when its command is
    repeated. All other runs become interrupted, so that they can be resumed.

    Raises:
        StoreError: the store cannot be read, or the new file cannot be written.
    """
    if not isinstance(location, Path):
        if salvage is not None:
            raise StoreError(
                f"store {location}: only a store in a file can be salvaged; copy a database with:"
                " textevolve config store copy, or restore a backup of pg_dump"
            )

        with closing(open_database(location)) as database:
            return database.read(lambda c: _check_rows(partial(read_rows, c)))

    path = location.expanduser().absolute()
    with _open_damaged(path) as file:
        file.check_revision(path)
        if salvage is not None:
            return _salvage(file, salvage.expanduser().absolute())
        findings = _check_file(file)
        fault = "" if findings.unreadable else find_index_fault(file.raw)

    if not fault:
        return findings
    with closing(SQLiteDatabase(path)) as database:
        database.write(_index_anew)

    # Newer versions of SQLite report a fault of this index as one of the file.
    is_of_index = WORDS in findings.complaint
    complaint = "" if is_of_index else findings.complaint
    return replace(findings, complaint=complaint, repaired=fault)


def _check_rows(
    read_table: Callable[[Table], Iterable[dict[str, Any]]],
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    """Check all rows, and copy the intact ones, unless their run is lost."""
    intact: Counter[str] = Counter()
    unreadable: Counter[str] = Counter()
    n_cases: Counter[str] = Counter()
    incomplete: set[str] = set()
    runs: dict[str, int] = {}

    for table in (tables.runs, *(each for each in copied_tables() if each is not tables.runs)):
        for row in read_table(table):
            run_id = str(row["id"] if table is tables.runs else row.get("run_id"))
            has_run = table not in OF_RUNS or run_id in runs
            if not has_run or not _is_whole(table, row) or not keep(table, row):
                unreadable[table.name] += 1
                if table is tables.runs or "run_id" in row:
                    incomplete.add(run_id)
                continue

            intact[table.name] += 1

            if table is tables.runs:
                runs[run_id] = row["n_cases"] or 0
            elif table is tables.calls:
                intact["erased calls"] += row["key"] == tables.ERASED_KEY
            elif table is tables.cases:
                n_cases[run_id] += 1

    incomplete |= {run_id for run_id, number in runs.items() if n_cases[run_id] < number}

    return Findings(dict(+intact), dict(unreadable), tuple(sorted(incomplete)))


def _is_whole(table: Table, row: Mapping[str, Any]) -> bool:
    """Check whether a row is undamaged."""
    try:
        _CHECKS.get(table, lambda _row: None)(row)
    except DAMAGES:
        return False

    return True


def _check_text(row: Mapping[str, Any]) -> None:
    body = unpack(row["body"], row["size"])
    bytes_to_text(body)
    if hashlib.sha256(body).digest() != row["hash"]:
        raise ValueError("the text has another hash")


def _check_call(row: Mapping[str, Any]) -> None:
    if len(row["parts"]) % HASH_BYTES or (row["error"] is None) == (row["response"] is None):
        raise ValueError("the call has neither an answer nor an error, or both")
    load_json(row["request"])["messages"]
    if row["response"] is None:
        bytes_to_text(row["error"])
    else:
        used = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost", "saved")
        load_response(row["response"], *(row[name] for name in used))


def _check_record(row: Mapping[str, Any]) -> None:
    unpack_json(row["body"])
    bytes_to_text(row["reason"])


def _check_embedding(row: Mapping[str, Any]) -> None:
    if len(row["vector"]) != 4 * row["dimension"]:
        raise ValueError("the vector has another length")


def _check_tokens(row: Mapping[str, Any]) -> None:
    if not row["width"] or len(row["vectors"]) % row["width"]:
        raise ValueError("the vectors of tokens have another length")


_CHECKS: Mapping[Table, Callable[[Mapping[str, Any]], object]] = {
    tables.runs: check_fields,
    tables.texts: _check_text,
    tables.calls: _check_call,
    tables.cases: lambda row: load_case(row["id"], row["body"]),
    tables.records: _check_record,
    tables.embeddings: _check_embedding,
    tables.token_vectors: _check_tokens,
}
"""The function that raises an exception for a damaged row of a table."""


class _DamagedFile:
    """The rows of a store's file that SQLite can read. `complaint`: a fault that SQLite reports;
    empty without one. `gaps`: the number of unreadable places in each table."""

    def __init__(self, raw: sqlite3.Connection, complaint: str) -> None:
        self.raw = raw
        self.complaint = complaint
        self.raw.row_factory = sqlite3.Row
        self.gaps: Counter[str] = Counter()

    def check_revision(self, path: Path) -> None:
        """Check that this version knows all tables and columns of the file, as it can neither check
        nor copy others. Where the damage hides the revision, an unknown column tells.

        Raises:
            StoreError: the file is of a newer version.
        """
        row = None
        with suppress(sqlite3.Error, *DAMAGES):
            row = self.raw.execute("SELECT version_num FROM alembic_version").fetchone()
        revision = str(row[0]) if row else self._find_unknown() or tables.REVISION
        if revision != tables.REVISION and revision not in OLDER_REVISIONS:
            raise StoreError(
                f"store {path}: was written by another TextEvolve (schema {revision}, this one"
                f" knows {tables.REVISION}); check and salvage it with that version, which knows"
                " all of its tables and columns"
            )

    def _find_unknown(self) -> str:
        """Return a column that this version does not know; empty if there is none."""
        with suppress(sqlite3.Error, *DAMAGES):
            for table in tables.metadata.sorted_tables:
                for row in self.raw.execute(f"PRAGMA table_info({table.name})").fetchall():
                    if row["name"] not in table.columns:
                        return f"with the column {table.name}.{row['name']}"
        return ""

    def read_rows(self, table: Table) -> Iterator[dict[str, Any]]:
        """Yield the readable rows of a table: from the beginning up to the first unreadable place,
        and from the end back to the last one."""
        source = f"FROM {table.name} NOT INDEXED"
        last = 0
        queries = [f"SELECT ? AS number, * {source}"]
        if table.dialect_options["sqlite"]["with_rowid"]:
            forwards = f"SELECT rowid AS number, * {source} WHERE rowid > ? ORDER BY rowid"
            queries = [forwards, f"{forwards} DESC"]
        for query in queries:
            try:
                for row in self.raw.execute(query, (last,)):
                    values = dict(row)
                    last = values["number"]
                    yield {column.name: values[column.name] for column in table.columns}

                return
            except (sqlite3.Error, *DAMAGES):
                self.gaps[table.name] = 1


@contextmanager
def _open_damaged(path: Path) -> Generator[_DamagedFile]:
    """Open a store's file for reading; no other process can write while it is open.

    Raises:
        StoreError: there is no such file, it cannot be opened, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"store {path}: there is no such file")
    with closing(sqlite3.connect(path, timeout=sqlite.BUSY_SECONDS, isolation_level=None)) as raw:
        yield _DamagedFile(raw, _lock(raw, path))


def _lock(raw: sqlite3.Connection, path: Path) -> str:
    """Keep other processes from writing; return a fault of the file, or an empty string."""
    try:
        raw.execute("PRAGMA writable_schema = ON")  # reads files that were cut off, too
        raw.execute("BEGIN IMMEDIATE")
        (result,) = raw.execute("PRAGMA integrity_check(1)").fetchone()
        (mark,) = raw.execute("PRAGMA application_id").fetchone()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        if busy or not os.access(path, os.W_OK):
            raise sqlite.explain(error, path) from error
        return str(error)

    if mark != tables.APPLICATION_ID:
        return "the file has no mark of a TextEvolve store"

    return "" if result == "ok" else join_lines(str(result))


def _check_file(
    file: _DamagedFile,
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    findings = _check_rows(file.read_rows, keep)
    unreadable = dict(Counter(findings.unreadable) + file.gaps)
    return replace(findings, unreadable=unreadable, complaint=file.complaint)


def _salvage(file: _DamagedFile, target: Path) -> Findings:
    if target.exists():
        raise StoreError(f"store {target}: exists already; name a new file")

    def write(connection: Connection) -> Findings:
        findings = _check_file(file, partial(_copy_row, connection))
        if findings.damaged:
            _interrupt_runs(connection)
        finish_copy(connection)
        return findings

    try:
        with closing(SQLiteDatabase(target)) as database:
            return database.write(write)
    except BaseException:
        target.unlink(missing_ok=True)  # an incomplete copy would look like a store
        raise


def _copy_row(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row; return whether it broke no constraint."""
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("?" * len(row))
    statement = f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({marks})"
    return connection.exec_driver_sql(statement, tuple(row.values())).rowcount == 1


def _interrupt_runs(connection: Connection) -> None:
    """Mark finished runs as interrupted, so they can be resumed; runs that lack cases will read
    them again. Delete the servers' rows of runs that are lost."""
    runs = tables.runs
    served = tables.served_runs
    cases = tables.cases
    connection.execute(delete(served).where(served.c.run_id.not_in(select(runs.c.id))))
    finished = update(runs).where(runs.c.status == "finished")
    connection.execute(finished.values(status="interrupted"))
    number = select(func.count()).where(cases.c.run_id == runs.c.id).scalar_subquery()
    connection.execute(update(runs).where(runs.c.n_cases > number).values(n_cases=None))
