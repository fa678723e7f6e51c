"""A user's metric, judge, program or generator fails on every row, for example since its service
has no key. The run stops after the first rows instead of paying for all of them.

One result is enough to go on: what fails on some rows only fails there.
"""

import json

import pytest

ROWS = 60
CODE = """
def fails(output):
    raise RuntimeError("the grading service has no key")


def answers(prompts, row):
    raise RuntimeError("the client has no key")


def writes(task, **_options):
    raise RuntimeError("the client has no key")


def works_once(output, label):
    if output == "0":
        return 1.0
    raise RuntimeError("the grading service has no key")
"""
DATA = ("--data", "rows.jsonl", "--label", "label")
PROMPT = ("-p", "t.txt", *DATA, "--metric")
COMMANDS = {
    "compare by a metric": ("compare", *PROMPT, "own.py:fails"),
    "compare by a judge": ("compare", "-p", "t.txt", *DATA, "--judge", "metric:own.py:fails"),
    "compare with labels that are no numbers": ("compare", *PROMPT, "numeric"),
    "compare with a chain": ("compare", "-m", "chain.yaml", *DATA, "--metric", "exact"),
    "compare with a target": (
        "compare",
        "--target",
        "python:own.fails",
        *DATA,
        "--metric",
        "exact",
    ),
    "calibrate by a metric": ("calibrate", "t.txt", *DATA, "--metric", "own.py:fails"),
    "calibrate by a judge": ("calibrate", "t.txt", *DATA, "--judge", "metric:own.py:fails"),
    "calibrate a program": (
        *("calibrate", "prompts.yaml", "--program", "own.py:answers", *DATA),
        *("--metric", "exact"),
    ),
    "optimize by a judge": ("optimize", "tasks.jsonl", "--judge", "metric:own.py:fails"),
    "optimize a generator": (
        *("optimize", "tasks.jsonl", "--generator", "own.py:writes"),
        *("--judge", "look:length"),
    ),
    "evaluate": ("evaluate", "outputs.jsonl", "--judge", "metric:own.py:fails"),
}


@pytest.fixture
def folder(server, model, home, monkeypatch):
    server.script = lambda body, _number: body["messages"][-1]["content"].split()[-1]
    files = {
        "rows.jsonl": [{"n": str(n), "output": str(n), "label": "sheep"} for n in range(ROWS)],
        "tasks.jsonl": [{"input": f"Say {n}"} for n in range(ROWS)],
        "outputs.jsonl": [{"input": f"Say {n}", "output": str(n)} for n in range(ROWS)],
    }
    for name, rows in files.items():
        (home / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "t.txt").write_text("The number is {n}")
    (home / "own.py").write_text(CODE)
    (home / "prompts.yaml").write_text('main: "The number is {n}"\n')
    asking = f'{{ask: said, prompt: "{{n}}", model: "{model}"}}'
    calling = "{call: out, function: own.py:fails, inputs: said}"
    (home / "chain.yaml").write_text(f"name: two\ninputs: [n]\nsteps: [{asking}, {calling}]")
    monkeypatch.syspath_prepend(str(home))
    return home


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", COMMANDS)
def test_run_stops_early(name, server, model, cli):
    arguments = COMMANDS[name]
    models = () if "-m" in arguments or "--target" in arguments else ("-m", model)
    outcome = cli(*arguments, *models, "--concurrency", "1")
    assert "each of the first 10 calls failed, so the run stops" in outcome.err
    assert outcome.code not in (0, 3)
    assert len(server.requests) < ROWS / 2


@pytest.mark.usefixtures("folder")
def test_one_score_is_enough(model, cli):
    outcome = cli("compare", *PROMPT, "own.py:works_once", "-m", model, "--concurrency", "1")
    assert outcome.code == 3
    assert f"{ROWS - 1} failed without a score" in outcome.out
