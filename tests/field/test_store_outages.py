"""The disk fills up and is freed again, or another program locks the store for a minute, while a
server or a long run uses it.

What is right after the outage was tried with the same statements on a second connection.
"""

from contextlib import closing, suppress
from random import Random

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from textevolve.errors import StoreError
from textevolve.evaluation import Usage
from textevolve.llm.model import JournalEntry, Message, Request, Response, request_key
from textevolve.store import sqlite
from textevolve.store.repository import open_store
from textevolve.store.sqlite import sqlite3
from textevolve.store.writer import TROUBLES

LONG_ANSWER = Random(1).randbytes(50_000).hex()
"""It cannot be compressed, so it needs new pages of the file."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def make_entry():
    def make(number, text="yes"):
        request = Request(messages=(Message("user", f"Question {number}?"),))
        response = Response(text, "stop", Usage(1, 3, 0, 1, 0.001))
        key = request_key("m", request)
        return JournalEntry(key, "m", request, response, None, 1e9, 0.5, 1)

    return make


@pytest.fixture
def page_limits():
    """The connections that were opened, to change how large their file may become."""
    opened = []
    event.listen(Engine, "connect", lambda raw, _record: opened.append(raw))

    def allow(pages):
        for raw in opened:
            with suppress(sqlite3.ProgrammingError):  # it is closed
                raw.execute(f"PRAGMA max_page_count = {pages}")

    return allow


async def test_disk_freed_again(path, make_entry, page_limits):
    async with open_store(path) as store:
        journal = store.journal(store.create_run({}, "f").id)
        await journal.append(make_entry(0))
        page_limits(1)
        with pytest.raises(StoreError, match="disk is full"):
            await journal.append(make_entry(1, LONG_ANSWER))
        assert list(TROUBLES) == [str(path)]

        page_limits(100_000)
        await journal.append(make_entry(2, LONG_ANSWER))
        assert await journal.find(make_entry(2).key)
        assert TROUBLES == {}


async def test_lock_given_up(path, make_entry, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    async with open_store(path) as store:
        run = store.create_run({}, "f")
        journal = store.journal(run.id)
        with closing(sqlite3.connect(path, isolation_level=None)) as program:
            program.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another process keeps it locked"):
                await journal.append(make_entry(1))

        await journal.append(make_entry(1))
        store.finish_run(run.id, "finished")


def test_read_within_read(path):
    with open_store(path) as store, pytest.raises(RuntimeError, match="a read of the store within"):
        store.read(lambda _connection: store.list_runs(1))
