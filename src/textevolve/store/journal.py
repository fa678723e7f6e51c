"""The journal on disk: keeps finished calls and finds them again (`textevolve.llm.journal`).

Where two runs asked the same question at the same time, each finds its own answer again, so that a
run recomputed from the journal is the run that was. Otherwise the first answer is found.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy.engine import Connection, Row

from textevolve.errors import StoreError
from textevolve.evaluation import Usage
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Request, Response
from textevolve.store.documents import (
    CHECK,
    bytes_to_text,
    dump_response,
    image_keys,
    load_response,
    require,
    restore_request,
    store_request,
    text_to_bytes,
    unpack,
    whole,
)
from textevolve.store.sqlite import sqlite3
from textevolve.store.writer import Writer

PAGE = 200
"""How many calls are read at once."""
MOST_VARIABLES = 500
"""Values in one query."""

_FIND = """
SELECT key, id, prompt_tokens, cached_tokens, completion_tokens, cost, saved, response,
    run_id = :run OR EXISTS (SELECT 1 FROM reuses WHERE run_id = :run AND call_id = calls.id)
FROM calls WHERE key IN (SELECT value FROM json_each(:keys)) AND error IS NULL
ORDER BY run_id = :run, id DESC
"""
"""The best answer for each key comes last."""

_ERRORS = """
SELECT key, error FROM calls WHERE run_id = ? AND error IS NOT NULL ORDER BY id
"""

_PAGE = """
SELECT * FROM calls WHERE id IN (
    SELECT id FROM (SELECT id FROM calls WHERE run_id = :run AND id > :after ORDER BY id LIMIT :n)
    UNION ALL
    SELECT call_id FROM (SELECT call_id FROM reuses
        WHERE run_id = :run AND call_id > :after ORDER BY call_id LIMIT :n)
) ORDER BY id LIMIT :n
"""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call as it was kept, without its texts: `read_request` fetches them.

    `reused`: asked by another run, and found by this one. `response` is None where `error` is not.
    """

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
    """The journal of one run; a `textevolve.llm.journal.Journal`."""

    def __init__(
        self,
        run_id: str,
        writer: Writer,
        read: Callable[[Callable[[Connection], tuple[Any, ...]]], tuple[Any, ...]],
    ) -> None:
        self._run_id = run_id
        self._writer = writer
        self._read = read
        self._wanted: list[tuple[str, asyncio.Future[tuple[Any, ...] | None]]] = []

    async def find(self, key: str) -> Response | None:
        """The answer kept under `key`, marked as replayed, or None if there is none yet."""
        loop = asyncio.get_running_loop()
        if not self._wanted:
            loop.call_soon(self._find_wanted)
        found: asyncio.Future[tuple[Any, ...] | None] = loop.create_future()
        self._wanted.append((key, found))
        row = await found
        if row is None:
            return None
        _, id, *used, response, ours = row
        if not ours:
            self._writer.submit_reuse(self._run_id, id)
        with whole(f"run {self._run_id}: the answer {id}"):
            return load_response(response, *used)

    def _find_wanted(self) -> None:
        """Look up together what was wanted in one turn of the loop: a query gives up the
        interpreter's lock, and has to win it back from the thread that writes."""
        wanted, self._wanted = self._wanted, []
        keys = [key for key, _ in wanted]
        try:
            rows = self._read(lambda connection: _find(connection, self._run_id, keys))
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for _, found in wanted:
                if not found.done():
                    found.set_exception(error)
            return
        best = {row[0]: row for row in rows}
        for key, found in wanted:
            if not found.done():
                found.set_result(best.get(key))

    def errors(self) -> dict[str, str]:
        """Why calls of this run failed, by key, the latest failure of each; others' do not count.

        A key may have an answer all the same, from another try.
        """
        rows = self._read(lambda c: tuple(c.exec_driver_sql(_ERRORS, (self._run_id,)).all()))
        with whole(f"run {self._run_id}: a failure"):
            return {key: bytes_to_text(error) for key, error in rows}

    async def append(self, entry: JournalEntry) -> None:
        """Keep `entry`; returns once it is durable. Raises StoreError where it cannot be kept."""
        row, texts = _entry_to_row(self._run_id, entry)
        await self._writer.submit_call(row, texts)


def _find(connection: Connection, run_id: str, keys: list[str]) -> tuple[tuple[Any, ...], ...]:
    """Straight through the driver: this is done before each call, and costs a third so."""
    raw = cast(sqlite3.Connection, connection.connection.driver_connection)
    return tuple(raw.execute(_FIND, {"run": run_id, "keys": json.dumps(keys)}))


def _entry_to_row(run_id: str, entry: JournalEntry) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    request = store_request(entry.request)
    response, error = entry.response, entry.error
    if (response is None) == (error is None):
        raise StoreError("a call is kept with either a response or an error")
    usage = Usage() if response is None else response.usage
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
    """The next calls that a run asked or found, oldest first; empty at the end."""
    values = {"run": run_id, "after": after, "n": PAGE}
    rows = reader.exec_driver_sql(_PAGE, values).all()
    calls: list[StoredCall] = []
    for row in rows:
        with whole(f"run {run_id}: call {row.id}"):
            calls.append(_row_to_call(row, run_id))
            if row.id <= after:  # the next page would be this one again
                raise ValueError("out of its order")
            after = row.id
    return calls


def find_calls(reader: Connection, run_id: str, text: str, most: int) -> list[StoredCall] | None:
    """The calls of a run that were sent a text with this one in it, oldest first; None where the
    run has more than `most` calls, all of whose texts would have to be read."""
    values = {"run": run_id, "n": most + 1}
    query = """SELECT id, parts FROM calls WHERE id IN (SELECT id FROM calls WHERE run_id = :run
        UNION ALL SELECT call_id FROM reuses WHERE run_id = :run) ORDER BY id LIMIT :n"""
    parts = {id: set(_split(found)) for id, found in reader.exec_driver_sql(query, values)}
    if len(parts) > most:
        return None
    holding = set[bytes]()
    hashes = list(set[bytes]().union(*parts.values()) - _images(reader, run_id))
    for start in range(0, len(hashes), MOST_VARIABLES):
        some = tuple(hashes[start : start + MOST_VARIABLES])
        marks = ", ".join("?" * len(some))
        query = f"SELECT hash, size, body FROM texts WHERE hash IN ({marks})"
        rows = reader.exec_driver_sql(query, some)
        holding |= {row[0] for row in rows if text in bytes_to_text(unpack(row[2], row[1]))}
    wanted = [id for id, found in parts.items() if found & holding]
    calls: list[StoredCall] = []
    for start in range(0, len(wanted), MOST_VARIABLES):
        some = tuple(wanted[start : start + MOST_VARIABLES])
        marks = ", ".join("?" * len(some))
        query = f"SELECT * FROM calls WHERE id IN ({marks}) ORDER BY id"
        for row in reader.exec_driver_sql(query, some).all():
            with whole(f"run {run_id}: call {row.id}"):
                calls.append(_row_to_call(row, run_id))
    return calls


def _images(reader: Connection, run_id: str) -> set[bytes]:
    """The hashes of the images of a run, in which no text is looked for."""
    query = "SELECT body FROM cases WHERE run_id = ? AND substr(body, 1, 1) = x'01'"
    rows = reader.exec_driver_sql(query, (run_id,))
    return {key for (body,) in rows for key in image_keys(body)}


def _row_to_call(row: Row[Any], run_id: str) -> StoredCall:
    for text in (row.key, row.model, row.run_id):
        require(text, str)
    for number in (row.started, row.seconds):
        require(number, int, float)
    require(row.attempts, int)
    used = (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.cost, row.saved)
    response = None if row.response is None else load_response(row.response, *used)
    return StoredCall(
        id=row.id,
        key=row.key,
        model=row.model,
        response=response,
        error=None if row.error is None else bytes_to_text(row.error),
        usage=Usage() if response is None else response.usage,
        started=row.started,
        seconds=row.seconds,
        attempts=row.attempts,
        reused=row.run_id != run_id,
        document=row.request,
        parts=row.parts,
    )


def read_request(reader: Connection, call: StoredCall) -> Request:
    """The request of a call with all its texts."""
    hashes = list(_split(call.parts))
    wanted = tuple(set(hashes))
    marks = ", ".join("?" * len(wanted))
    query = f"SELECT hash, size, body FROM texts WHERE hash IN ({marks})"
    with whole(f"call {call.id}: a text"):
        found = {
            hash: bytes_to_text(unpack(body, size))
            for hash, size, body in reader.exec_driver_sql(query, wanted).all()
        }
    if len(found) < len(wanted):
        missing = len(wanted) - len(found)
        raise StoreError(f"call {call.id}: {missing} of its texts are missing; {CHECK}")
    with whole(f"call {call.id}"):
        return restore_request(call.document, [found[hash] for hash in hashes])


def _split(parts: bytes) -> Iterator[bytes]:
    return (parts[i : i + 32] for i in range(0, len(parts), 32))
