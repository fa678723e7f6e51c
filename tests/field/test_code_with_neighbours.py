"""A scorer's file imports a file next to it, or is a module of the working folder (raylight 43).

The right scores are those of Python itself, which finds both. The command `textevolve` runs from a
folder of its own, so the folder of the code is not in its path, as it is for `python -m`.
"""

import json
import sys

import pytest


@pytest.fixture
def rows(home, monkeypatch):
    script_path = [path for path in sys.path if path not in ("", str(home))]
    monkeypatch.setattr(sys, "path", script_path)
    texts = ("one", "a longer text")
    (home / "rows.jsonl").write_text(
        "".join(json.dumps({"input": "Say it.", "output": text}) + "\n" for text in texts)
    )
    yield home
    for name in ("neighbour_limit", "working_scorer"):
        sys.modules.pop(name, None)


def read_scores(path):
    rows = map(json.loads, path.read_text().splitlines())
    return [row["candidates"][0]["score"] for row in rows]


SCORER = """
from neighbour_limit import LIMIT

def brief(output):
    return 1.0 if len(output) < LIMIT else 0.25
"""


@pytest.mark.parametrize(
    ("folder", "judge"), [("own", "own/scorer.py:brief"), ("", "working_scorer:brief")]
)
def test_neighbours_are_found(rows, cli, folder, judge):
    place = rows / folder
    place.mkdir(exist_ok=True)
    (place / "neighbour_limit.py").write_text("LIMIT = 5\n")
    for name in ("scorer.py", "working_scorer.py"):
        (place / name).write_text(SCORER)

    outcome = cli("evaluate", "rows.jsonl", "--judge", f"metric:{judge}", "-o", "out.jsonl")
    assert outcome.code == 0, outcome.err
    assert read_scores(rows / "out.jsonl") == [1.0, 0.25]


def test_edited_neighbours_make_another_run(rows, cli):
    (rows / "working_scorer.py").write_text(SCORER)
    command = ("evaluate", "rows.jsonl", "--judge", "metric:working_scorer:brief", "--json")
    runs = set()
    for limit in (5, 1):
        (rows / "neighbour_limit.py").write_text(f"LIMIT = {limit}\n")
        for name in ("neighbour_limit", "working_scorer"):
            sys.modules.pop(name, None)
        outcome = cli(*command)
        assert outcome.code == 0, outcome.err
        runs.add(json.loads(cli("runs", "list", "--json").out.splitlines()[0])["id"])
    assert len(runs) == 2
