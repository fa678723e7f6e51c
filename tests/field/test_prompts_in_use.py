"""A release edits a prompt, and people give their commands again in the stores that they have."""

import json

import pytest

from textevolve.llm import prompts as shipped_prompts
from textevolve.store.repository import open_store
from textevolve.store.runs import reopen_run

pytestmark = pytest.mark.slow
ROWS = [{"id": f"r{n}", "q": f"{n}?", "out": f"yes {n}", "input": f"{n}?"} for n in range(2)]
EVALUATE = ("evaluate", "rows.jsonl", "--map", "output=out")
COMPARE = ("compare", "-d", "rows.jsonl", "--outputs", "out", "--input", "q")
DEBATE = "debate:general+rounds=1+convergence=none"


@pytest.fixture
def edited(monkeypatch):
    """Change the version of a shipped prompt, as an edit of its file does."""

    def edit(room, name):
        read = shipped_prompts._read_source

        def read_edited(package, prompt):
            source = read(package, prompt)
            is_edited = (package, prompt) == (f"textevolve.{room}", name)
            return f"{source} Edited." if is_edited else source

        monkeypatch.setattr(shipped_prompts, "_read_source", read_edited)

    return edit


@pytest.fixture
def run_ids(home, cli, server):
    """Return the ids of all runs after the command was given."""
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def give(*command):
        outcome = cli(*command, "-m", f"{server.url}#m")
        assert outcome.code == 0, outcome.err
        return {run["id"] for run in cli("runs", "list", "--json").rows}

    return give


@pytest.mark.parametrize(
    ("command", "judge", "room", "name", "runs"),
    [
        (EVALUATE, "probe", "debate", "case", 1),
        (EVALUATE, "look:length", "judges", "question", 1),
        (EVALUATE, DEBATE, "judges", "question", 1),
        (EVALUATE, "probe", "judges", "question", 2),
        (EVALUATE, DEBATE, "debate", "case", 2),
        (COMPARE, "probe", "judges", "question", 2),
        (COMPARE, "probe", "debate", "case", 1),
    ],
)
def test_used_prompts_identify(run_ids, edited, command, judge, room, name, runs):
    before = run_ids(*command, "-j", judge)
    edited(room, name)
    assert len(run_ids(*command, "-j", judge) | before) == runs


def test_earlier_names_resumed(home, cli, server, run_ids):
    """Runs of before name the prompts of debates although they hold none."""
    (run_id,) = run_ids(*EVALUATE, "-j", "probe")
    with open_store(str(home / "store.db")) as store:
        prompts = store.get_run(run_id).spec["prompts"]
        store.respecify(run_id, {"prompts": {**prompts, "case": "another"}})
        store.write(reopen_run, run_id)
    calls = server.calls
    outcome = cli("runs", "resume", run_id)
    assert outcome.code == 0, outcome.err
    assert server.calls == calls
    with open_store(str(home / "store.db")) as store:
        store.respecify(run_id, {"prompts": {**prompts, "judges.question": "another"}})
        store.write(reopen_run, run_id)
    assert "prompts.judges.question was" in cli("runs", "resume", run_id).err
