"""The journal in the database: it stores finished calls and finds their answers
(`textevolve.llm.model`).

If two runs asked the same question at the same time, each run finds its own answer later, so that
recomputing a run from the journal gives the same results. Otherwise the first answer is found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection, Row

from textevolve.errors import StoreError
from textevolve.evaluation import Usage
from textevolve.llm.batches.ledger import OPEN_STATES, KeptBatch
from textevolve.llm.model import JournalEntry, Request, Response
from textevolve.mappings import read_fields
from textevolve.store import tables
from textevolve.store.database import Database
from textevolve.store.documents import (
    CHECK,
    IMAGES,
    bytes_to_text,
    dump_response,
    image_keys,
    intact,
    load_response,
    require,
    restore_request,
    split_hashes,
    store_request,
    text_to_bytes,
    unpack,
)
from textevolve.store.memory_rows import chunks
from textevolve.store.resource_rows import build, fetch_all, mapping_of, replace_row
from textevolve.store.tables import batches
from textevolve.store.writer import Writer

PAGE = 200
"""The number of calls that are read at once."""
CallRows: TypeAlias = Sequence[tuple[Any, ...]]
KeyLookup: TypeAlias = tuple[str, asyncio.Future[tuple[Any, ...] | None]]
"""A key to look up, and the future that gets the row of the answer stored under it, or None."""

_ERRORS = """
SELECT key, error FROM calls WHERE run_id = :run AND error IS NOT NULL ORDER BY id
"""

_ANSWER = """
SELECT 1 FROM calls WHERE run_id = :run AND model = :model AND response IS NOT NULL
UNION ALL SELECT 1 FROM reuses JOIN calls ON calls.id = reuses.call_id
WHERE reuses.run_id = :run AND calls.model = :model LIMIT 1
"""

_PAGE = """
SELECT * FROM calls WHERE id IN (
    SELECT id FROM (
        SELECT id FROM calls WHERE run_id = :run AND id > :after ORDER BY id LIMIT :n) AS own
    UNION ALL
    SELECT call_id FROM (SELECT call_id FROM reuses
        WHERE run_id = :run AND call_id > :after ORDER BY call_id LIMIT :n) AS found
) ORDER BY id LIMIT :n
"""
"""The next calls that a run made, or reused from other runs."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A stored call without its texts, which `read_request` reads. `response`: None if the call
    failed; `error`: None if it succeeded. `started`: Unix time. `reused`: whether another run made
    the call, and this run found its answer. `document`, `parts`: as in
    `documents.StoredRequest`."""

    id: int
    key: str
    model: str
    response: Response | None
    error: str | None
    usage: Usage
    started: float
    seconds: float
    attempts: int
    reused: bool
    document: bytes
    parts: bytes


class StoreJournal:
    """The journal of one run; a `textevolve.llm.model.Journal`."""

    def __init__(
        self,
        run_id: str,
        writer: Writer,
        database: Database,
        elsewhere: Executor | None,
    ) -> None:
        """Open the journal of a run. `elsewhere`: the executor that looks up answers, if that may
        block an event loop for too long."""
        self._run_id = run_id
        self._writer = writer
        self._database = database
        self._elsewhere = elsewhere
        self._looking = False
        self._wanted: list[KeyLookup] = []

    async def find(self, key: str) -> Response | None:
        """Return the answer stored under `key`, marked as replayed; None if there is none yet.

        Raises:
            BusyError: another process has taken the run, so this one must stop.
        """
        self._writer.check_lease(self._run_id)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, ...] | None] = loop.create_future()
        if not self._wanted and not self._looking:
            loop.call_soon(self._find_wanted)
        self._wanted.append((key, answer))
        row = await answer
        if row is None:
            return None
        _, id, *used, response, ours = row
        if not ours:
            self._writer.submit_reuse(self._run_id, id)
        with intact(f"run {self._run_id}: the answer {id}"):
            return load_response(response, *used)

    async def has_answer(self, model: str) -> bool:
        """Return whether this run has an answer of a model, made by it or reused."""
        values = {"run": self._run_id, "model": model}

        def find(reader: Connection) -> bool:
            return reader.execute(sql(_ANSWER), values).first() is not None

        return await asyncio.to_thread(lambda: self._database.read(find))

    def _find_wanted(self) -> None:
        """Look up all keys that were requested in one iteration of the event loop, or during the
        previous look-up, in one query, since each query releases the interpreter's lock and has to
        wait to get it back."""
        waiting = self._wanted
        self._wanted = []
        find = partial(self._database.find_answers, self._run_id, [key for key, _ in waiting])
        if self._elsewhere is None:
            self._settle(waiting, find)
            return
        try:
            under_way = asyncio.get_running_loop().run_in_executor(self._elsewhere, find)
        except RuntimeError:  # it is shut down: the store says that it is closed
            self._settle(waiting, find)
            return

        self._looking = True
        under_way.add_done_callback(partial(self._found, waiting))

    def _found(self, waiting: list[KeyLookup], done: asyncio.Future[CallRows]) -> None:
        self._looking = False
        self._settle(waiting, done.result)
        if self._wanted:
            self._find_wanted()

    def _settle(self, waiting: list[KeyLookup], find: Callable[[], CallRows]) -> None:
        """Look up the waiting keys and resolve their futures with the answers."""
        try:
            best = {row[0]: row for row in find()}
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return

        for key, answer in waiting:
            if not answer.done():
                answer.set_result(best.get(key))

    def errors(self) -> dict[str, str]:
        """Return the message of the latest failure of each call that failed in this run, by its
        key.

        A key may still have an answer, from another attempt.
        """
        parameters = {"run": self._run_id}
        rows = self._database.read(lambda c: c.execute(sql(_ERRORS), parameters).all())
        with intact(f"run {self._run_id}: a failure"):
            return {key: bytes_to_text(error) for key, error in rows}

    async def append(self, entry: JournalEntry) -> None:
        """Store an entry; returns once it is durable. Raises StoreError if it cannot be stored."""
        row, texts = _entry_to_row(self._run_id, entry)
        await self._writer.submit_call(row, texts)


def _entry_to_row(run_id: str, entry: JournalEntry) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    request = store_request(entry.request)
    response = entry.response
    error = entry.error
    if (response is None) == (error is None):
        raise StoreError("a call is kept with either a response or an error")
    usage = entry.usage if response is None else response.usage
    row = (
        run_id,
        entry.key,
        entry.model,
        entry.started,
        entry.seconds,
        entry.attempts,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        usage.cost,
        request.parts,
        request.document,
        None if error is None else text_to_bytes(error),
        None if response is None else dump_response(response),
        usage.saved,
    )

    return row, request.texts


def read_page(reader: Connection, run_id: str, after: int) -> list[StoredCall]:
    """Return the next calls, at most `PAGE`, that a run made or reused, oldest first, from the id
    `after` on (exclusive); empty at the end."""
    rows = reader.execute(sql(_PAGE), {"run": run_id, "after": after, "n": PAGE}).all()
    calls: list[StoredCall] = []

    for row in rows:
        with intact(f"run {run_id}: call {row.id}"):
            calls.append(_row_to_call(row, run_id))
            if row.id <= after:  # the next page would be this one again
                raise ValueError("out of its order")
            after = row.id

    return calls


def find_calls(reader: Connection, run_id: str, text: str, most: int) -> list[StoredCall] | None:
    """Return the calls of a run whose request contains a text, oldest first. Return None if the run
    has more than `most` calls, since all their texts would have to be read."""
    values = {"run": run_id, "n": most + 1}
    query = """SELECT id, parts FROM calls WHERE id IN (SELECT id FROM calls WHERE run_id = :run
        UNION ALL SELECT call_id FROM reuses WHERE run_id = :run) ORDER BY id LIMIT :n"""
    parts = {id: set(split_hashes(hashes)) for id, hashes in reader.execute(sql(query), values)}
    if len(parts) > most:
        return None
    holding: set[bytes] = set()
    for hashes in chunks(set[bytes]().union(*parts.values()) - _images(reader, run_id)):
        holding |= {hash for hash, body in _texts(reader, hashes).items() if text in body}
    calls: list[StoredCall] = []

    for ids in chunks(id for id, hashes in parts.items() if hashes & holding):
        query = select(tables.calls).where(tables.calls.c.id.in_(ids)).order_by(tables.calls.c.id)
        for row in reader.execute(query):
            with intact(f"run {run_id}: call {row.id}"):
                calls.append(_row_to_call(row, run_id))

    return calls


def has_erased(reader: Connection, run_id: str) -> bool:
    query = """SELECT 1 FROM calls WHERE key = :key AND (run_id = :run
        OR id IN (SELECT call_id FROM reuses WHERE run_id = :run)) LIMIT 1"""
    return reader.execute(sql(query), {"key": tables.ERASED_KEY, "run": run_id}).first() is not None


def _images(reader: Connection, run_id: str) -> set[bytes]:
    """Return the hashes of a run's images, which are not searched for text."""
    query = sql("SELECT body FROM cases WHERE run_id = :run AND substr(body, 1, 1) = :mark")
    rows = reader.execute(query, {"run": run_id, "mark": IMAGES})
    return {key for (body,) in rows for key in image_keys(body)}


def _row_to_call(row: Row[Any], run_id: str) -> StoredCall:
    for text in (row.key, row.model, row.run_id):
        require(text, str)
    for number in (row.started, row.seconds):
        require(number, int, float)
    require(row.attempts, int)
    used = (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.cost, row.saved)
    response = None if row.response is None else load_response(row.response, *used)
    tokens = used[:3]
    for number in tokens:
        require(number, int)
    # A failed call that was paid is one of those whose tokens were counted by its texts.
    spent = Usage(int(any(tokens)), *tokens, row.cost, saved=row.saved)
    values = {
        "response": response,
        "error": None if row.error is None else bytes_to_text(row.error),
        "usage": spent if response is None else response.usage,
        "reused": row.run_id != run_id,
        "document": row.request,
    }

    return build(StoredCall, {**mapping_of(row), **values})


def read_request(reader: Connection, call: StoredCall) -> Request:
    """Return the request of a call with all its texts."""
    hashes = split_hashes(call.parts)
    with intact(f"call {call.id}: a text"):
        texts = _texts(reader, list(set(hashes)))
    if missing := len(set(hashes)) - len(texts):
        raise StoreError(f"call {call.id}: {missing} of its texts are missing; {CHECK}")
    with intact(f"call {call.id}"):
        return restore_request(call.document, [texts[hash] for hash in hashes])


def _texts(reader: Connection, hashes: list[bytes]) -> dict[bytes, str]:
    """Return the existing texts with these hashes, by hash."""
    texts = tables.texts.c
    query = select(texts.hash, texts.size, texts.body).where(texts.hash.in_(hashes))
    rows = reader.execute(query).all()
    return {hash: bytes_to_text(unpack(body, size)) for hash, size, body in rows}


class StoreLedger:
    """The batch jobs of one run; a `textevolve.llm.batches.ledger.BatchLedger`."""

    def __init__(
        self,
        run_id: str,
        writer: Writer,
        database: Database,
    ) -> None:
        self._run_id = run_id
        self._writer = writer
        self._database = database

    async def keep(self, batch: KeptBatch) -> None:
        """Store a batch job or its changes; returns once they are durable."""
        run_id = self._run_id
        change = asyncio.to_thread(self._writer.run, run_id, keep_batch, run_id, batch)
        await asyncio.shield(change)

    async def find_open(self, model: str) -> list[KeptBatch]:
        """Return the jobs of a model that still lack answers, oldest first."""
        return [batch for batch in self.all_open() if batch.model == model]

    def all_open(self) -> list[KeptBatch]:
        """Return the jobs of all models that still lack answers, oldest first."""
        return self._database.read(open_batches, self._run_id)


def keep_batch(connection: Connection, run_id: str, batch: KeptBatch) -> None:
    values = read_fields(batch, "mark", "model", "created", "state", "file")
    values |= {"run_id": run_id, "updated": time.time(), "remote_id": batch.id}
    values |= {"detail": "", "keys": b"".join(map(bytes.fromhex, batch.keys))}
    replace_row(connection, batches, values)


def open_batches(connection: Connection, run_id: str) -> list[KeptBatch]:
    open_jobs: list[KeptBatch] = []
    for row in fetch_all(connection, batches, "created", run_id=run_id, state=list(OPEN_STATES)):
        keys = tuple(key.hex() for key in split_hashes(row.keys))
        open_jobs.append(build(KeptBatch, {**mapping_of(row), "keys": keys, "id": row.remote_id}))
    return open_jobs
