"""Files that people write, with a field that nobody knows; and files that are imported."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from laws.nothing_vanishes_kinds import PROFILE
from laws.nothing_vanishes_rows import APP
from laws.nothing_vanishes_world import (
    Evidence,
    Place,
    Situation,
    World,
    collect,
    run_command,
    run_study,
    word,
)
from laws.studies import COLLECTIONS, RECIPES, SUMS, TEXTS

UNKNOWN = {"surprise": word("surprise")}
NAMED = {"an unknown field": Place(word("surprise"), ("surprise",))}
"""A field that nobody knows is refused, or named as left out."""

EVALUATE = ("evaluate", "cases.jsonl", "-m", "MODEL")
COMPARE = ("compare", "-d", "rows.jsonl", "--label", "sum", "--metric", "exact")
CASES = {"cases.jsonl": TEXTS[:1]}
ROWS = {"rows.jsonl": SUMS[:1]}
RULE = {"kind": "keywords", "all": ["good"]}
STEP = {"ask": "first", "prompt": "What is {n}?"}
CHECK = {
    "id": "order-1",
    "family": "order",
    "kind": "mine",
    "input": "Is it even?",
    "good": "It is good.",
    "bad": "It is bad.",
}
RUN_CHAIN = ("run", "chains", "run", "c.yaml", "-d", "rows.jsonl", "-m", "MODEL")
PROMPT_CHAT = [{"role": "user", "content": "What is {n}?"}]


def profile_with(**fields: Any) -> dict[str, Any]:
    """Return a profile of one agent with other fields."""
    return {**PROFILE, "agents": [{"name": "Reader", "persona": "You read."}], **fields}


SETTINGS_TOML = """\
{top}
[providers.mine]
base_url = "http://127.0.0.1:9/v1"
{provider}
[prices."mine/big"]
input = 1.0
output = 2.0
{price}
[pools.both]
members = [{{model = "mine/big"{member}}}]
"""


def write_settings(part: str) -> str:
    """Return a file of settings with a field that nobody knows in one part."""
    parts = dict.fromkeys(("top", "provider", "price", "member"), "")
    line = f'surprise = "{word("surprise")}"'
    parts[part] = f", {line}" if part == "member" else line
    return SETTINGS_TOML.format(**parts)


WRITTEN: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "a profile": (
        {**CASES, "p.yaml": profile_with(**UNKNOWN)},
        (*EVALUATE, "--profile", "p.yaml"),
    ),
    "an agent of a profile": (
        {**CASES, "p.yaml": profile_with(agents=[{"name": "A", "persona": "You.", **UNKNOWN}])},
        (*EVALUATE, "--profile", "p.yaml"),
    ),
    "a component of a profile": (
        {
            **CASES,
            "p.yaml": profile_with(components=[{**PROFILE["components"][0], **UNKNOWN}]),
        },
        (*EVALUATE, "--profile", "p.yaml"),
    ),
    "a file of rules": (
        {**CASES, "r.yaml": {"rules": [RULE], **UNKNOWN}},
        (*EVALUATE, "--judge", "rules:r.yaml"),
    ),
    "a rule": (
        {**CASES, "r.yaml": {"rules": [{**RULE, **UNKNOWN}]}},
        (*EVALUATE, "--judge", "rules:r.yaml"),
    ),
    "a chain": (
        {**ROWS, "c.yaml": {"name": "c", "inputs": ["n"], "steps": [STEP], **UNKNOWN}},
        RUN_CHAIN,
    ),
    "a step of a chain": (
        {**ROWS, "c.yaml": {"name": "c", "inputs": ["n"], "steps": [{**STEP, **UNKNOWN}]}},
        RUN_CHAIN,
    ),
    "a file of checks": (
        {"k.yaml": [{**CHECK, **UNKNOWN}]},
        ("bench", "card", "--judge", "probe", "--cases", "k.yaml", "-m", "MODEL"),
    ),
    "a target": (
        {
            **ROWS,
            "listening_app.py": APP,
            "t.yaml": {"target": "python:listening_app.reply", **UNKNOWN},
        },
        (*COMPARE, "--target", "t.yaml"),
    ),
    "a message of a prompt": (
        {**ROWS, "p.yaml": [{**PROMPT_CHAT[0], **UNKNOWN}]},
        (*COMPARE, "-p", "p.yaml", "-m", "MODEL"),
    ),
    "a schema of a metric": (
        {**CASES, "s.json": json.dumps({"type": "object", "surprise": word("surprise")})},
        (*EVALUATE, "--judge", "metric:json-schema:s.json"),
    ),
    **{
        f"the settings, {part}": (
            {**CASES, "textevolve.toml": write_settings(part)},
            (*EVALUATE, "--judge", "look:length"),
        )
        for part in ("top", "provider", "price", "member")
    },
}
"""Files that people write, each with a field that nobody knows, and a command that reads it."""


def list_written() -> dict[str, Situation]:
    """Return each file that people write, and the study file of each kind."""
    situations = {
        name: Situation(run_command(files, *command), NAMED)
        for name, (files, command) in WRITTEN.items()
    }
    for kind in RECIPES:
        situations[f"a study of {kind}"] = Situation(run_unknown(kind), NAMED)
    return situations


def run_unknown(kind: str) -> Callable[[World], Evidence]:
    """Return what runs a study file with a field that nobody knows. The commands before the study
    are left out: the file is read first."""
    recipe = replace(RECIPES[kind].changed(**UNKNOWN), before=())
    return run_study(kind, recipe)


DATED = {"id": "d1", "messages": [{"role": "user", "content": "FACT: Ann has a boat."}]}
IMPORTED: Mapping[str, tuple[Any, Sequence[str]]] = {
    "memories": (
        [{"text": "Ann has a boat.", **UNKNOWN}],
        ("memories", "import", "docs", "x.jsonl"),
    ),
    "a dialogue": (
        [{**DATED, **UNKNOWN}],
        ("memories", "create", "x.jsonl", "--collection", "chats", "-m", "MODEL"),
    ),
    "a message of a dialogue": (
        [{"id": "d1", "messages": [{**DATED["messages"][0], **UNKNOWN}]}],
        ("memories", "create", "x.jsonl", "--collection", "chats", "-m", "MODEL"),
    ),
}
CLOSED = [{"text": "Ann has a boat."}, {"text": "Ann had a car.", "closed": 2}]
LEFT_OUT = {"a closed memory": Place("2 kept", ("1 memory left out",))}
"""A memory that was superseded where it was exported is kept, or counted as left out."""
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "an agent": ("agents",),
    "a namespace": ("agents", "namespaces"),
    "a user": ("agents", "users"),
    "a collection": ("memories", "collections"),
}
NAMES = {
    "an agent": "ada",
    "a namespace": "acme",
    "a user": "ann",
    "a collection": "docs",
}


def import_unknown(command: Sequence[str], name: str) -> Callable[[World], Evidence]:
    """Return what exports a stored thing, adds a field that nobody knows, and imports it."""

    def run(world: World) -> Evidence:
        prepare(world)
        head, *lines = world.cli(*command, "export", name).out.splitlines()
        changed = [json.dumps(add_unknown(json.loads(line))) for line in lines]
        (world.home / "x.jsonl").write_text("\n".join([head, *changed]), encoding="utf-8")
        deleted = world.cli(*command, "delete", name, "--yes")
        assert deleted.code == 0, deleted.err
        return collect(world, world.cli(*command, "import", "x.jsonl"))

    return run


def add_unknown(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of an export with a field that nobody knows in what it describes."""
    described = {}
    for name, value in line.items():
        inner = {**value["spec"], **UNKNOWN} if "spec" in value else None
        described[name] = {**value, "spec": inner} if inner else {**value, **UNKNOWN}
    return described


def import_file(content: Any, command: Sequence[str]) -> Callable[[World], Evidence]:
    """Return what imports a file into stored collections."""

    def run(world: World) -> Evidence:
        prepare(world)
        world.server.requests.clear()
        return run_command({"x.jsonl": content}, *command)(world)

    return run


def prepare(world: World) -> None:
    """Make collections, an agent, a namespace and a user."""
    commands = (
        *COLLECTIONS,
        ("agents", "namespaces", "create", "acme"),
        ("agents", "users", "create", "ann", "--description", "Ann sails."),
    )
    for command in commands:
        outcome = world.cli(*(text.replace("MODEL", world.model) for text in command))
        assert outcome.code == 0, outcome.err


def list_imported() -> dict[str, Situation]:
    """Return each file that is imported, with a field that nobody knows."""
    situations = {}
    for name, (content, command) in IMPORTED.items():
        situations[name] = Situation(import_file(content, command), NAMED)
    _, command = IMPORTED["memories"]
    situations["closed memories"] = Situation(import_file(CLOSED, command), LEFT_OUT)
    for name, command in RESOURCES.items():
        situations[f"an export of {name}"] = Situation(import_unknown(command, NAMES[name]), NAMED)
    return situations


FIRST_ROWS = [
    {"id": f"plain-{n}", "input": f"Question {n}?", "candidates": ["Good.", "Poor."]}
    for n in range(3)
]
LABELLED: Mapping[str, Mapping[str, Any]] = {
    "a row with one text": {"input": "Why?", "candidates": ["Alone."]},
    "a row with an empty text": {"input": "Why?", "candidates": ["Good.", ""]},
    "a row with two equal texts": {"input": "Why?", "candidates": ["Same.", "Same."]},
    "a row without an input": {"input": "", "candidates": ["Good.", "Poor."]},
    "a chat that ends with the user": {
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "So."},
            {"role": "user", "content": "Thanks."},
        ]
    },
}
"""Rows that a task for people to label may leave out."""


def create_labels(row: Mapping[str, Any]) -> Callable[[World], Evidence]:
    """Return what makes a task of three pairs and one further row."""
    rows = [*FIRST_ROWS, {"id": "left-over", **row}]
    return run_command({"rows.jsonl": rows}, "labels", "create", "mine", "rows.jsonl")


def list_labelled() -> dict[str, Situation]:
    """Return each row that a task to label may leave out: the task has it, or it is named."""
    places = {"its text": Place(": 4 pairs to label", ("left-over",), exported=True)}
    return {name: Situation(create_labels(row), places) for name, row in LABELLED.items()}
