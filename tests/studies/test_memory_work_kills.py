"""Kill -9 at every step of what works on memories: the same command again does what is missing,
once. And two processes at once."""

import json
import sys
from pathlib import Path

import pytest
from memory_world import make_world, read_world

sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))

from memory_script import remember

from recorded.memory_answers import answers

# One process loads the package, and forks one for each run: the first is killed at its n-th step,
# the second one does the rest.
KILLS = """
import asyncio, json, os, shutil, sys
sys.path.insert(0, sys.argv[1])
from memory_world import personas_of, read_world
from textevolve.cli import main
from textevolve.store.repository import Store, open_store
from textevolve.store.journal import StoreJournal
from textevolve.store.memories import StoredMemories
from textevolve.store.repository import Store
from textevolve.studies.memories import evolve_persona, integrate, read_corpus
import textevolve.llm.client, textevolve.cli.study

def kill_at(wanted):
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        if steps == wanted:
            os.kill(os.getpid(), 9)

    def watch(owner, name):
        made = getattr(owner, name)
        if asyncio.iscoroutinefunction(made):
            async def call(*given, **named):
                step()
                found = await made(*given, **named)
                step()
                return found
        else:
            def call(*given, **named):
                step()
                found = made(*given, **named)
                step()
                return found
        setattr(owner, name, call)

    watch(StoredMemories, "apply")
    watch(Store, "write")
    watch(Store, "keep_records")
    appending, appended = StoreJournal.append, []

    async def append(self, entry):
        await appending(self, entry)
        appended.append(entry)
        if len(appended) % 3 == 1:
            step()

    StoreJournal.append = append

def run(wanted):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["textevolve", *sys.argv[3:]]
    kill_at(wanted)
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        os._exit(code)

def look(path):
    kept = [one for name in ("chats", "docs", "insights") for one in read_world(path, name)]
    names = {one.id: one.text for one in kept}
    found = []
    for one in kept:
        linked = [sorted(names[id] for id in ids) for ids in (one.cites, one.supersedes)]
        found.append([one.text, one.origin.source, one.closed is None, *linked])
    with open_store(path) as store:
        runs = [one.status for one in store.list_runs(limit=20)]
    return [found, [one.spec["persona"] for one in personas_of(path)]], runs

wanted, base = 1, sys.argv[2]
while True:
    for ending in ("", "-wal", "-shm"):
        if os.path.exists("work.db" + ending):
            os.remove("work.db" + ending)
        if os.path.exists(base + ending):
            shutil.copy(base + ending, "work.db" + ending)
    os.environ["TEXTEVOLVE_STORE"] = os.path.abspath("work.db")
    killed = run(wanted)
    again = run(0)
    state, runs = look(os.environ["TEXTEVOLVE_STORE"])
    told = {"at": wanted, "killed": killed, "again": again, "state": state, "runs": runs}
    print(json.dumps(told))
    if killed != -9:
        break
    wanted += 4
"""

COMMANDS = {
    "create": ("memories", "create", "chats.jsonl", "-c", "docs", "--floor", "-1"),
    "integrate": ("memories", "integrate", "ada", "--always"),
    "read": ("memories", "read", "book.md", "other.txt", "-c", "docs", "--as", "a nurse"),
    "evolve": ("agents", "evolve", "ada"),
}


@pytest.fixture
def store(home, server):
    make_world(home / "base.db", server.url)
    server.script = answers(questions=["What does Mrs. Okafor need?"])
    (home / "book.md").write_text("# Night\nLamp on.\n# Day\nLamp off.\n")
    (home / "other.txt").write_text("Tea is at four.")
    spoken_answers = ("FACT: Alex lives in Lisbon.", "FACT: Alex lives in Porto.")
    chats = [{"id": one, "messages": [{"role": "user", "content": one}]} for one in spoken_answers]
    (home / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    return home / "base.db"


@pytest.mark.slow
@pytest.mark.parametrize("which", COMMANDS)
def test_killed_anywhere_and_begun_again_it_is_done_once(
    spawn, server, model, store, request, which
):
    here = request.path.parent
    if which == "create":
        server.script = remember
    process = spawn(here, store, *COMMANDS[which], "-m", model, script=KILLS)
    out, err = process.communicate()
    assert process.returncode == 0, err
    payloads = [json.loads(line) for line in out.splitlines()]
    *killed, whole = payloads
    assert whole["killed"] == 0, err
    assert len(killed) >= 2
    for one in killed:
        assert one["killed"] == -9
        assert one["again"] == 0, (one, err)
        assert one["state"] == whole["state"], one["at"]
        assert "finished" in one["runs"]


def without_usage(value):
    """Leave out usage: memories that are stored already are not embedded again, so that a record
    which is made anew counts fewer calls."""
    if isinstance(value, list):
        return [without_usage(item) for item in value]
    if isinstance(value, dict):
        return {name: without_usage(part) for name, part in value.items() if name != "usage"}
    return value


@pytest.mark.slow
def test_what_a_run_made_is_shown_again_without_asking(cli, server, model, store, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(store))
    from textevolve.store.repository import open_store

    for which in ("integrate", "read", "evolve"):
        first_outcome = cli(*COMMANDS[which], "-m", model, "--json")
        assert first_outcome.code == 0, first_outcome.err
        with open_store(store) as opened:
            run = opened.list_runs(limit=1)[0]
            opened.drop_records(run.id)
        calls, memories = server.calls, read_world(store, "insights")
        outcome = cli("runs", "show", run.id, "--json")
        assert outcome.code == 0, outcome.err
        again, payload = json.loads(outcome.out), json.loads(first_outcome.out)
        for key in ("questions", "documents", "made", "batches", "gathered"):
            if key in payload:
                assert without_usage(again[key]) == without_usage(payload[key])
        assert server.calls == calls
        assert read_world(store, "insights") == memories
