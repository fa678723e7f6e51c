"""Rows with columns that nothing reads, with pictures, and for applications under test."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from laws.nothing_vanishes_world import (
    PICTURE,
    PICTURE_URL,
    Evidence,
    Place,
    Situation,
    World,
    collect,
    run_command,
    run_study,
    word,
    write_files,
)
from laws.studies import CHAIN, RECIPES, Recipe

SPARE: Mapping[str, Any] = {
    "surprise": word("surprise"),
    "nested": {"deep": word("deep")},
    "weigths": {"accuracy": 1},
}
"""Columns that nothing reads: one of an unknown name, one of an object, a misspelt parameter."""
SPARE_PLACES: Mapping[str, Place] = {
    "an unknown column": Place(word("surprise"), ("surprise",)),
    "an object": Place(word("deep"), ("nested",)),
    "a misspelt parameter": Place(word("weights"), ("weigths",)),
}
ROWS_OF: Mapping[str, str] = {
    "evaluate": "cases.jsonl",
    "compare": "rows.jsonl",
    "compare-quants": "rows.jsonl",
    "calibrate": "values.jsonl",
    "chain": "rows.jsonl",
    "agreement": "items.jsonl",
    "ablation": "items.jsonl",
    "escalation": "items.jsonl",
    "fit": "items.jsonl",
    "rates": "judged.jsonl",
    "nodes": "trace.jsonl",
    "create-memories": "dialogues.jsonl",
}
"""The file of rows of each kind that reads one."""
ROWLESS: Mapping[str, str] = {
    "robustness": "its file of checks has fields, not columns",
    "memory-eval": "the same",
    "optimize": "its rows are in a situation of their own",
    **dict.fromkeys(("innovate", "guide", "profile", "summarize"), "it reads texts"),
    **dict.fromkeys(("integrate-memories", "evolve-persona", "read-corpus"), "the same"),
    "assertions": "a test session makes such runs itself",
}
"""The other kinds, each with the reason."""


def add_columns(kind: str, columns: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a kind whose rows have further columns."""
    recipe = RECIPES[kind]
    rows = recipe.files[ROWS_OF[kind]]
    assert isinstance(rows, list)
    return recipe.with_file(ROWS_OF[kind], [{**row, **columns} for row in rows])


def list_unread_columns() -> dict[str, Situation]:
    """Return each kind that reads rows, on rows with columns that nothing reads."""
    situations = {
        kind: Situation(run_study(kind, add_columns(kind, SPARE)), SPARE_PLACES) for kind in ROWS_OF
    }
    tasks = [{"task": "Say what moves the sea.", **SPARE}]
    optimize = run_command(
        {"tasks.jsonl": tasks},
        *("optimize", "tasks.jsonl", "--judge", "probe", "--max-iterations", "1", "-m", "MODEL"),
    )
    return {**situations, "optimize": Situation(optimize, SPARE_PLACES)}


PICTURED_PLACES = {"a picture": Place(PICTURE, ("image", "picture"))}
SUM = "What is {n} and {n} more?\n"
SEARCH = ("--strategy", "protegi", "--beam", "1", "--depth", "1", "--successors", "1")
PICTURED: Mapping[str, Sequence[str]] = {
    "evaluate": ("evaluate", "rows.jsonl", "--judge", "probe", "-m", "MODEL"),
    "evaluate by debate": ("evaluate", "rows.jsonl", "--rounds", "1", "-m", "MODEL"),
    "compare": (
        *("compare", "-p", "p.txt", "-d", "rows.jsonl", "--label", "sum", "--metric", "exact"),
        *("-m", "MODEL"),
    ),
    "compare of columns": (
        *("compare", "--outputs", "before", "-d", "rows.jsonl", "--judge", "probe"),
        *("--judge-model", "MODEL"),
    ),
    "compare-quants": (
        *("models", "compare-quants", "MODEL", "MODEL-small", "-p", "p.txt", "-d", "rows.jsonl"),
        *("--label", "sum", "--metric", "exact"),
    ),
    "calibrate": (
        *("calibrate", "p.txt", "-d", "rows.jsonl", "--label", "sum", "--metric", "exact"),
        *(*SEARCH, "-m", "MODEL"),
    ),
    "optimize": (
        *("optimize", "tasks.jsonl", "--judge", "probe", "--max-iterations", "1", "-m", "MODEL"),
    ),
    "chain": ("run", "chains", "run", "twice.yaml", "-d", "rows.jsonl", "-m", "MODEL"),
    "agreement": (
        *("bench", "agreement", "rows.jsonl", "--judge", "probe", "--limit", "2", "-m", "MODEL"),
    ),
    "ablation": ("bench", "ablate", "rows.jsonl", "--limit", "1", "-m", "MODEL"),
    "escalation": (
        *("bench", "escalation", "rows.jsonl", "--first", "probe", "--then", "single"),
        *("--limit", "1", "-m", "MODEL"),
    ),
    "fit": ("judges", "fit", "rows.jsonl", "--signals", "probe,length", "-m", "MODEL"),
    "labels create": ("labels", "create", "mine", "rows.jsonl"),
}
"""Commands on rows with pictures."""
MANY = {"calibrate": 20, "fit": 20}
"""How many rows a command needs at least, if more than two."""


def picture_row(number: int) -> dict[str, Any]:
    """Return a row that each of these commands reads, with a picture."""
    return {
        "id": f"k{number}",
        "n": number,
        "sum": str(2 * number),
        "input": f"Question {number}?",
        "candidates": ["A good one.", "A poor one."],
        "winner": 1 + number % 2,
        "before": "Yes.",
        "images": [PICTURE_URL],
    }


def list_pictures() -> dict[str, Situation]:
    """Return each command on rows with pictures."""
    situations = {}
    for name, command in PICTURED.items():
        files = {
            "rows.jsonl": [picture_row(number) for number in range(MANY.get(name, 2))],
            "tasks.jsonl": [{"task": "Say what it is.", "images": [PICTURE_URL]}],
            "p.txt": SUM,
            "twice.yaml": CHAIN,
        }
        situations[name] = Situation(run_command(files, *command), PICTURED_PLACES)
    return situations


RUBRIC_JUDGES = ("checklist", "probe", "pairwise", "decide", "single", "trajectory")


def list_rubrics() -> dict[str, Situation]:
    """Return each judge that takes a rubric, with one whose levels are the words."""
    row = {"input": "Why?", "candidates": ["The moon.", "The wind."]}
    step = {"input": "Why?", "output": "The moon.", "tool_calls": []}
    levels = {name: Place(word(name), ("1 scale",)) for name in ("low level", "high level")}
    rubric = f"It is clear. [{' | '.join(place.word for place in levels.values())}]"
    situations = {}
    for judge in RUBRIC_JUDGES:
        rows = [step if judge == "trajectory" else row]
        command = ("evaluate", "rows.jsonl", "--judge", judge, "--rubric", rubric, "-m", "MODEL")
        situations[judge] = Situation(run_command({"rows.jsonl": rows}, *command), levels)
    return situations


APP = """\
import json, sys

def reply(row):
    with open("seen.txt", "a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False, default=str))
    return "yes"

if __name__ == "__main__":
    print(reply(json.load(sys.stdin)))
"""
APP_ROW = {
    "id": "r1",
    "question": word("question"),
    "notes": {"deep": word("deep")},
    "tags": [word("tag")],
    "sum": "1",
}
APP_PLACES = {name: Place(word(name), exported=True) for name in ("question", "deep", "tag")}
TALK = {"id": "r1", "turns": [word("turn 1"), word("turn 2")], "sum": "1"}
TALK_PLACES = {name: Place(word(name), exported=True) for name in ("turn 1", "turn 2")}
SEEN = {"a picture": Place(PICTURE, ("image", "picture"), exported=True)}


def compare_target(
    target: str, row: Mapping[str, Any], fields: Mapping[str, Any] | None = None
) -> Callable[[World], Evidence]:
    """Return what compares an application on one row; what the application saw is a file.
    `fields`: the further fields of a file of the target."""

    def run(world: World) -> Evidence:
        files = {"listening_app.py": APP, "rows.jsonl": [row]}
        write_files(world, files)
        named_name = target
        if fields is not None:
            named_name = "target.yaml"
            (world.home / named_name).write_text(
                yaml.safe_dump({"target": target, **fields}), "utf-8"
            )
        outcome = world.cli(
            *("compare", "--target", named_name, "-d", "rows.jsonl", "--label", "sum"),
            *("--metric", "exact"),
        )
        return collect(world, outcome, ["seen.txt"])

    return run


def list_targets() -> dict[str, Situation]:
    """Return each kind of application on rows, conversations and pictures."""
    pictured = {"id": "r1", "question": "Why?", "images": [PICTURE_URL], "sum": "1"}
    situations = {}
    for name, target in {
        "python": "python:listening_app.reply",
        "cmd": f"cmd:{sys.executable} listening_app.py",
    }.items():
        for kind, row, places in (
            ("rows", APP_ROW, APP_PLACES),
            ("conversations", TALK, TALK_PLACES),
            ("pictures", pictured, SEEN),
        ):
            situations[f"{name} / {kind}"] = Situation(compare_target(target, row), places)
    return situations
