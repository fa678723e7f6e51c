"""Processes that are killed while they change memories, and two that change the same ones."""

import random
import signal
import time
from contextlib import closing

import pytest

from textevolve.store.sqlite import SQLiteDatabase

WORK = """
import asyncio, sys
import numpy as np
from textevolve.errors import ConflictError
from textevolve.memory.record import Add, ChangeSource, Forget, NewMemory, Relation, Supersede
from textevolve.store.repository import Store

store = Store(sys.argv[1]).memories("home")


def new(text):
    vector = np.eye(4, dtype=np.float32)[len(text) % 4]
    edges = (Relation("Ann", "knows", "Bob"),)
    return NewMemory(text=text, embedding=vector, entities=("Ann", "Bob"), relations=edges)


async def work():
    print("ready", flush=True)
    for turn in range(int(sys.argv[2])):
        held = [one.id for one in await store.page("chats", limit=3)]
        changes = [Add(new(f"turn{turn}")), Add(new(f"and{turn}")), Add(new(f"also{turn}"))]
        if len(held) == 3:
            changes.append(Supersede(tuple(held[:2]), new(f"both{turn}")))
            changes.append(Forget(held[2], turn % 2 > 0))
        try:
            made = await store.apply("chats", changes, ChangeSource(f"key {turn}"))
        except ConflictError:
            print("conflict", flush=True)
            continue
        print("repeated" if made.repeated else "made", flush=True)


asyncio.run(work())
"""


def check_whole(location):
    """Each memory that has a text has its embedding and its entries, and nothing else has any."""
    database = SQLiteDatabase(location)
    with closing(database):

        def ask(query):
            def read(connection):
                return [tuple(row) for row in connection.exec_driver_sql(query)]

            return database.read(read)

        seqs = {seq for (seq,) in ask("SELECT seq FROM memories WHERE text <> ''")}
        for query in (
            "SELECT seq FROM embeddings",
            "SELECT rowid FROM memory_words",
            "SELECT DISTINCT seq FROM mentions",
            "SELECT DISTINCT seq FROM relations",
        ):
            assert {seq for (seq,) in ask(query)} == seqs, query
        ((version, number),) = ask("SELECT max(version), count(*) FROM collection_versions")
        assert version == number == ask("SELECT version FROM collections")[0][0]
        assert len(ask("SELECT * FROM memory_sources")) == number
        ids = {id for (id,) in ask("SELECT id FROM memories")}
        followers = ask("SELECT superseded_by FROM memories WHERE superseded_by IS NOT NULL")
        assert {id for (id,) in followers} <= ids
        assert ask("SELECT count(*) FROM memories WHERE closed IS NOT NULL") == ask(
            "SELECT count(*) FROM memories WHERE forgotten OR superseded_by IS NOT NULL"
        )
        return number


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_half_change(path, sqlite_place, spawn):
    sqlite_place.resources.close()
    rng, before = random.Random(3), 0
    for _ in range(2):
        process = spawn(path, "1000", script=WORK)
        assert process.stdout.readline() == "ready\n"
        for _ in range(rng.randrange(before, before + 4)):
            process.stdout.readline()
        time.sleep(rng.random() / 20)
        process.send_signal(signal.SIGKILL)
        output = process.communicate()[0]
        now = check_whole(path)
        assert now >= before
        before = now
        assert "Traceback" not in output
    assert before > 0
