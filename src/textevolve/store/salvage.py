"""What of a damaged store is whole, and how it gets into a new one.

Rows are found by `pages`, and each is read as it would be when it is used; texts have to have their
hash. What is lost is told from what is left: a run knows how many cases it had, the index of calls
which it asked, and a call its texts.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textevolve.errors import StoreError
from textevolve.store import tables
from textevolve.store.documents import (
    DAMAGES,
    bytes_to_text,
    image_keys,
    load_case,
    load_json,
    load_response,
    split_hashes,
    unpack,
    unpack_json_bytes,
)
from textevolve.store.pages import PageRow, PageValue, read_rows
from textevolve.store.runs import check_fields
from textevolve.store.salvaged_memories import (
    COUNTED,
    MEMORY_KINDS,
    find_memory_row,
    is_of_an_index,
    make_indexes,
)
from textevolve.store.schema import BUSY_SECONDS, explain, prepare
from textevolve.store.sqlite import sqlite3

KINDS = ("runs", "cases", "calls", "texts", "reuses", "records")
RUN_ID = re.compile(r"\d{8}-[a-z0-9]{4}")
CHUNK = 500
"""How many rows go into the new store at once."""


@dataclass(frozen=True)
class Findings:
    """`whole`: how many rows of each kind. `lost`: how many are known to be lost, by run and kind;
    of a run that is lost itself `runs` is 1. `unread`: places where something stood that cannot be
    read. `complaint`: what SQLite says of the file; empty where it finds no fault."""

    whole: dict[str, int]
    lost: dict[str, dict[str, int]]
    unread: int
    complaint: str

    @property
    def damaged(self) -> bool:
        return bool(self.lost or self.unread or self.complaint)


def check_store(path: Path, target: Path | None = None) -> Findings:
    """Read all that is in a store's file, and copy what is whole into a new one, `target`.

    Of a run that has lost cases the cases count as never taken in, so that giving its command again
    takes them in; one that has lost answers counts as interrupted.

    Raises:
        StoreError: the file cannot be read, or is in use; or the new one cannot be written.
    """
    path = path.expanduser().absolute()
    if not path.is_file():
        raise StoreError(f"store {path}: there is no such file")
    if target is None:
        return _read(path, _Found())
    target = target.expanduser().absolute()
    if target.exists():
        raise StoreError(f"store {target}: is there already; name a new file")
    try:
        prepare(target)
        with closing(sqlite3.connect(target, isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            found = _Found(_Copy(raw))
            findings = _read(path, found)
            found.finish()
            raw.execute("COMMIT")
        if found.memories["memories"]:
            make_indexes(target)
    except BaseException as error:
        target.unlink(missing_ok=True)  # what is there is whole
        if isinstance(error, sqlite3.Error):
            raise explain(error, target) from error
        raise
    return findings


def _read(path: Path, found: _Found) -> Findings:
    """All rows that are whole go to `found`; no other process writes meanwhile."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as lock:
            complaint = _lock_and_ask(lock, path)
            for row in read_rows(path):
                found.take(row)
    except OSError as error:
        raise StoreError(f"store {path}: cannot be read ({error.strerror or error})") from error
    whole, lost = found.sum_up()
    return Findings(whole, lost, found.unread, complaint)


def _lock_and_ask(lock: sqlite3.Connection, path: Path) -> str:
    try:
        lock.execute("BEGIN IMMEDIATE")
        (said,) = lock.execute("PRAGMA integrity_check(1)").fetchone()
        (mark,) = lock.execute("PRAGMA application_id").fetchone()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        if busy or not os.access(path, os.W_OK):
            raise explain(error, path) from error
        return str(error)
    if mark != tables.APPLICATION_ID:
        return "the file is not marked as a store"
    return "" if said == "ok" else " ".join(str(said).split())


class _Copy:
    """Puts rows into a new store, many at a time."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._rows: defaultdict[str, list[tuple[PageValue, ...]]] = defaultdict(list)

    def put(self, kind: str, row: tuple[PageValue, ...]) -> None:
        rows = self._rows[kind]
        rows.append(row)
        if len(rows) >= CHUNK:
            self.flush(kind)

    def flush(self, kind: str) -> None:
        for row in self._rows.pop(kind, ()):
            marks = ", ".join("?" * len(row))
            self._raw.execute(f"INSERT OR IGNORE INTO {kind} VALUES ({marks})", row)

    def change(self, statement: str, values: Iterable[Any]) -> None:
        self._raw.execute(statement, tuple(values))


@dataclass
class _Found:
    """What was whole so far: enough of it to tell what is missing."""

    copy: _Copy | None = None
    unread: int = 0
    memories: Counter[str] = field(default_factory=Counter[str])
    runs: dict[str, tuple[int, str, int | None]] = field(
        default_factory=dict[str, tuple[int, str, int | None]]
    )
    cases: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    images: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    calls: dict[int, tuple[str, bytes]] = field(default_factory=dict[int, tuple[str, bytes]])
    texts: set[bytes] = field(default_factory=set[bytes])
    pairs: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    reuses: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    lost: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    broken: Counter[str] = field(default_factory=Counter[str])

    def take(self, row: PageRow | None) -> None:
        if row is None:
            self.unread += 1
        elif row.kind == "index":
            match row.values:
                case [str(text), int(number)]:
                    self.pairs[text, number] += 1
                case _:
                    pass
        elif (found := find_memory_row(row)) is not None:
            self.memories[found[0]] += 1
            if self.copy is not None:
                self.copy.put(*found)
        elif (known := _READERS.get(len(row.values))) is not None and not is_of_an_index(row):
            kind, read = known
            try:
                whole = read(row, self)
            except DAMAGES:
                self.unread += 1
                return
            if self.copy is not None:
                self.copy.put(kind, whole)

    def sum_up(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """How many rows there are, and how many are known to be lost, by run."""
        lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (text, number), times in self.pairs.items():
            self._follow(text, number, times, lost)
        for run, places in self.cases.items():
            if run not in self.runs:
                lost[run]["runs"] = 1
                lost[run]["cases"] = len(places)
        for run, (_, _, expected) in self.runs.items():
            missing = 0 if expected is None else expected - len(self.cases.get(run, ()))
            if missing:
                lost[run]["cases"] = abs(missing)
        for run, parts in self.calls.values():
            if missing := len(set(split_hashes(parts)) - self.texts):
                lost[run]["texts"] += missing
        for run, number in self.broken.items():
            lost[run]["records"] = number
        for run, keys in self.images.items():
            if missing := len(keys - self.texts):
                lost[run]["texts"] += missing
        self.lost = {
            run: {kind: kinds[kind] for kind in KINDS if kinds[kind]}
            for run, kinds in sorted(lost.items())
        }
        cases = sum(len(places) for run, places in self.cases.items() if run in self.runs)
        numbers = (len(self.runs), cases, len(self.calls), len(self.texts), len(self.reuses))
        told = {kind: self.memories[kind] for kind in COUNTED if self.memories[kind]}
        return dict(zip(KINDS, numbers, strict=False)) | told, self.lost

    def _follow(
        self, text: str, number: int, times: int, lost: defaultdict[str, Counter[str]]
    ) -> None:
        """A run's id beside a number: of a call that it asked, of one that it reused, or the run's
        own place. Indexes have each of these once."""
        asked = self.calls[number][0] if number in self.calls else None
        place = self.runs[text][0] if text in self.runs else None
        times -= (asked == text) + (place == number)
        if times <= 0 or RUN_ID.fullmatch(text) is None:
            return
        if place is None:
            lost[text]["runs"] = 1
        elif asked is None:
            lost[text]["calls"] += 1
        else:
            self.reuses.append((text, number))

    def finish(self) -> None:
        """Put the rest into the new store, and change what has to be different there."""
        copy = self.copy
        assert copy is not None
        for pair in self.reuses:
            copy.put("reuses", pair)
        for kind in (*KINDS, *MEMORY_KINDS):
            copy.flush(kind)
        for kind in ("cases", "served_runs"):
            copy.change(f"DELETE FROM {kind} WHERE run_id NOT IN (SELECT id FROM runs)", ())
        for run, kinds in self.lost.items():
            if "cases" in kinds:
                copy.change("UPDATE runs SET n_cases = NULL WHERE id = ?", (run,))
            copy.change(
                "UPDATE runs SET status = 'interrupted' WHERE id = ? AND status = 'finished'",
                (run,),
            )


def _read_text(row: PageRow, found: _Found) -> tuple[PageValue, ...]:
    match row.values:
        case [bytes(hash), int(size), bytes(body)]:
            data = unpack(body, size)
            if len(data) != size or hashlib.sha256(data).digest() != hash:
                raise ValueError("of another text")
            found.texts.add(hash)
            return hash, size, body
        case _:
            raise ValueError("no text")


def _read_call(row: PageRow, found: _Found) -> tuple[PageValue, ...]:
    run, key, model = row.values[1:4]
    started, seconds, attempts = row.values[4:7]
    prompt, cached, completion, cost = row.values[7:11]
    parts, request, error, response = row.values[11:15]
    saved = row.values[15] if len(row.values) > 15 else None  # of before it was kept
    for value, kinds in (
        *((text, str) for text in (run, key, model)),
        *((number, int | float) for number in (started, seconds)),
        *((number, int) for number in (attempts, prompt, cached, completion)),
        *((dollars, int | float | None) for dollars in (cost, saved)),
        *((data, bytes) for data in (parts, request)),
        *((data, bytes | None) for data in (error, response)),
    ):
        if not isinstance(value, kinds):
            raise ValueError("no call")
    given: Any = (request, parts, error, response, run)
    if len(given[1]) % 32 or (error is None) == (response is None):
        raise ValueError("no call")
    load_json(given[0])["messages"]
    if error is not None:
        bytes_to_text(given[2])
    else:
        load_response(given[3], 0, 0, 0, None, None)
    found.calls[row.rowid] = given[4], given[1]
    found.memories["erased calls"] += row.values[2] == tables.ERASED_KEY
    return row.rowid, *row.values[1:15], saved


def _read_run(row: PageRow, found: _Found) -> tuple[PageValue, ...]:
    names = [column.name for column in tables.runs.columns]
    values: dict[str, Any] = dict(zip(names, row.values, strict=True))
    check_fields(values)
    found.runs[values["id"]] = row.rowid, values["fingerprint"], values["n_cases"]
    values |= {name: None for name in names if name.startswith("lease_")}
    return tuple(values.values())


def _read_record(row: PageRow, found: _Found) -> tuple[PageValue, ...]:
    match row.values:
        case [str(run), bytes(), int(), bytes(), _, str(), bytes(reason), bytes(body), *_]:
            try:
                load_json(unpack_json_bytes(body))
                bytes_to_text(reason)
            except DAMAGES:
                found.broken[run] += 1
                raise
            found.memories["records"] += 1
            later = len(tables.records.columns) - len(row.values)
            return *row.values, *[None] * later
        case _:
            raise ValueError("no record")


def _read_case(row: PageRow, found: _Found) -> tuple[PageValue, ...]:
    match row.values:
        case [str(run), int(index), bytes(id), bytes(body)]:
            load_case(id, body)
            found.cases[run].add(index)
            found.images[run] |= set(image_keys(body))
            return run, index, id, body
        case _:
            raise ValueError("no case")


_READERS: dict[int, tuple[str, Callable[[PageRow, _Found], tuple[PageValue, ...]]]] = {
    len(tables.texts.columns): ("texts", _read_text),
    len(tables.calls.columns): ("calls", _read_call),
    len(tables.calls.columns) - 1: ("calls", _read_call),
    len(tables.runs.columns): ("runs", _read_run),
    len(tables.cases.columns): ("cases", _read_case),
    **dict.fromkeys(range(8, len(tables.records.columns) + 1), ("records", _read_record)),
}
"""Tables are told apart by how many columns they have."""
