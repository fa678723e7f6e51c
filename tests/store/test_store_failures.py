"""A full disk, a lock that is not given up: one clear error, nobody hangs, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from textevolve.errors import StoreError
from textevolve.evaluation import Case
from textevolve.llm.model import JournalEntry
from textevolve.store import sqlite
from textevolve.store.repository import open_store
from textevolve.store.sqlite import sqlite3

MakeEntry = Callable[..., JournalEntry]


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No database that is opened now may grow beyond 1500 pages of 4 KiB."""

    def limit(raw: sqlite3.Connection, _record: Any) -> None:
        raw.execute("PRAGMA max_page_count = 1500")

    event.listen(Engine, "connect", limit)
    yield
    event.remove(Engine, "connect", limit)


@pytest.mark.usefixtures("small_disk")
async def test_a_full_disk_fails_all_that_wait_and_keeps_what_was_there(
    path: Path, make_entry: MakeEntry
) -> None:
    entries = [make_entry(number, "long answer " * 300) for number in range(2000)]
    async with open_store(path) as store:
        run = store.create_run({}, "f")
        journal = store.journal(run.id)
        outcomes = await asyncio.gather(*map(journal.append, entries), return_exceptions=True)
        count = outcomes.count(None)
        assert 0 < count < 2000
        assert all("disk is full: free some space" in str(o) for o in outcomes if o is not None)
        # What is there can be read, and a run can be removed to make room.
        assert await journal.find(entries[0].key)
    with open_store(path) as store:
        assert store.run_totals(run.id).spent.calls == count
        noise = Random(1).randbytes(500_000).hex()
        with pytest.raises(StoreError, match="disk is full"):
            store.add_cases(run.id, [Case(noise, (str(i),)) for i in range(99)])
        assert store.delete_run(run.id).calls == count
        other = store.create_run({}, "g")
        await store.journal(other.id).append(make_entry(1, "long answer " * 300))


async def test_a_lock_that_is_not_given_up_ends_in_a_clear_error(
    path: Path, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    async with open_store(path) as store:
        run = store.create_run({}, "f")
        journal = store.journal(run.id)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another process keeps it locked"):
                store.finish_run(run.id, "finished")
            with pytest.raises(StoreError, match="another process keeps it locked"):
                open_store(path)
            assert await journal.find("nothing") is None  # readers are not kept out
            outcomes = await asyncio.gather(
                *[journal.append(make_entry(n)) for n in range(20)], return_exceptions=True
            )
        assert all("another process keeps it locked" in str(outcome) for outcome in outcomes)
        await journal.append(make_entry(1))
    with open_store(path) as store:
        assert len(list(store.calls(run.id))) == 1
