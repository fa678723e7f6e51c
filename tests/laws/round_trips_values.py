"""Rows with other values than texts (lists, numbers, truth values, missing ones), whose figures
must not depend on the format of the file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from laws.judges import ACTED, GROUNDED
from laws.round_trips_world import FORMATS, read_lines, write_csv
from laws.studies import (
    DIALOGUES,
    PAIRS,
    PROMPT,
    RECIPES,
    VERDICT_LABELS,
    VERDICTS,
    Recipe,
    Rows,
    World,
)


def write_frame_csv(rows: Rows) -> bytes:
    """Write CSV as a data frame does: lists and truth values as Python prints them."""
    printed = [
        {
            name: str(value) if isinstance(value, list | bool) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return write_csv(printed)


def write_frame_lines(rows: Rows) -> bytes:
    """Write JSON lines as a data frame does that has no whole numbers beside missing ones."""
    floats = [
        {name: float(value) if type(value) is int else value for name, value in row.items()}
        for row in rows
    ]
    return FORMATS["JSON lines"][1](floats)


OTHERS: Mapping[str, tuple[str, Any]] = {
    "JSON": FORMATS["JSON"],
    "CSV": FORMATS["CSV"],
    "Parquet": FORMATS["Parquet"],
    "CSV of a data frame": (".csv", write_frame_csv),
    "JSON lines of a data frame": (".jsonl", write_frame_lines),
}
"""The formats whose figures must be those of JSON lines."""
USUAL = ("CSV", "Parquet")


@dataclass(frozen=True)
class Valued:
    """A study of rows with values of some kind.

    Attributes:
        kind: The kind of study.
        spec: Its specification, in which FILE is the file of rows.
        rows: The rows.
        files: Other files.
        formats: The formats in which a program writes such rows.
    """

    kind: str
    spec: Mapping[str, Any]
    rows: Rows
    files: Mapping[str, str | Rows]
    formats: Sequence[str] = USUAL


def _rows(row: Mapping[str, Any], name: str, values: Sequence[Any]) -> Rows:
    return [{**row, "id": f"v{number}", name: value} for number, value in enumerate(values)]


def _single(number: int) -> dict[str, Any]:
    return {"id": f"v{number}", "input": f"{number}?", "output": f"A good {number}."}


PASSAGES = (["Oslo is a city.", "Bergen, too."], [], ["One passage alone."], None)
NUMBERS = (0.1, 1e-300, 1e22, -0.0, 7, 2**53 + 1, 123456789012)
FRAMES = ("CSV of a data frame",)
CONTEXTS = {
    "input": GROUNDED["input"],
    "reference": GROUNDED["reference"],
    "output": "Oslo is the capital.",
}

VALUES: Mapping[str, Valued] = {
    "evaluate, lists of passages": Valued(
        "evaluate",
        {"cases": "FILE", "judge": "context-precision"},
        _rows(CONTEXTS, "context", PASSAGES),
        {},
        (*USUAL, *FRAMES),
    ),
    "evaluate, numbers": Valued(
        "evaluate",
        {"cases": "FILE", "judge": "look:length"},
        _rows({"input": "i"}, "output", NUMBERS),
        {},
        ("JSON", "CSV"),
    ),
    "evaluate, whole numbers": Valued(
        "evaluate",
        {"cases": "FILE", "judge": "metric:exact"},
        [{"id": f"v{n}", "input": "i", "output": str(n), "reference": n} for n in range(3)],
        {},
        (*USUAL, "JSON lines of a data frame"),
    ),
    "evaluate, fields of the debate": Valued(
        "evaluate",
        {"cases": "FILE", "judge": "debate"},
        _rows({"input": "Why?", "candidates": ["A good one.", "No."]}, "rounds", (1, 2)),
        {},
    ),
    "evaluate, tool calls": Valued(
        "evaluate", {"cases": "FILE", "judge": "trajectory"}, [ACTED], {}
    ),
    "compare, whole numbers as labels": Valued(
        "compare",
        {"prompts": {"plain": PROMPT}, "data": "FILE", "label": "sum", "metric": "exact"},
        [{"id": f"v{n}", "n": n, "sum": 2 * n} for n in range(4)],
        {},
        (*USUAL, "JSON lines of a data frame"),
    ),
    "compare, turns": Valued(
        "compare",
        {"prompts": {"plain": "Be kind."}, "data": "FILE", "judge": "probe"},
        _rows({}, "turns", (["Hello?", "And then?"], ["Why?"])),
        {},
    ),
    "chain, numbers": Valued(
        "chain",
        {"chain": "own.yaml", "data": "FILE"},
        [{"id": f"v{n}", "n": n, "x": n / 3, "is": n > 1} for n in range(3)],
        {
            "own.yaml": "name: own\ninputs: {n: integer, x: number, is: boolean}\n"
            "outputs: [told]\nsteps:\n  - {ask: told, prompt: '{n} {x} {is}'}\n"
        },
    ),
    "chain, lists": Valued(
        "chain",
        {"chain": "own.yaml", "data": "FILE"},
        _rows({}, "some", (["a", "b"], [])),
        {
            "own.yaml": "name: own\ninputs: {some: list}\noutputs: [told]\n"
            "steps:\n  - {ask: told, prompt: 'All: {some}'}\n"
        },
        ("JSON", "Parquet"),  # a cell of CSV with a list is refused
    ),
    "agreement, scores": Valued(
        "agreement",
        {"items": "FILE", "judge": "probe"},
        [
            {**{k: v for k, v in row.items() if k != "winner"}, "scores": [n, 2.5]}
            for n, row in enumerate(PAIRS)
        ],
        {},
    ),
    "agreement, winners": Valued("agreement", {"items": "FILE", "judge": "probe"}, PAIRS, {}),
    "agreement, grades of two people": Valued(
        "agreement",
        {"items": "FILE", "judge": "probe"},
        [
            {
                "id": f"v{n}",
                "input": f"{n}?",
                "output": f"A good {n}.",
                "label_ann": n,
                "label_bob": 5,
            }
            for n in range(1, 6)
        ],
        {},
        (*USUAL, "JSON lines of a data frame"),
    ),
    "agreement, verdicts": Valued(
        "agreement",
        {"items": "FILE", "judge": "probe"},
        [{**_single(n), "label": n % 2 > 0} for n in range(6)],
        {},
        (*USUAL, *FRAMES),
    ),
    "rates, verdicts": Valued(
        "rates",
        {"judged": "FILE", "labelled": "labelled.jsonl"},
        VERDICTS,
        {"labelled.jsonl": VERDICT_LABELS},
        (*USUAL, *FRAMES),
    ),
    "rates, labels": Valued(
        "rates",
        {"judged": "judged.jsonl", "labelled": "FILE"},
        VERDICT_LABELS,
        {"judged.jsonl": VERDICTS},
        (*USUAL, *FRAMES),
    ),
    "optimize, whole numbers as ids": Valued(
        "optimize",
        {"task": "FILE", "judge": "probe", "max_iterations": 1},
        [{"id": n, "task": f"Say {n}."} for n in range(3)],
        {},
        (*USUAL, "JSON lines of a data frame"),
    ),
    "create-memories, turns": Valued(
        "create-memories",
        {"data": "FILE", "collection": "chats"},
        DIALOGUES,
        {},
    ),
}

_SPENT = re.compile(r"seconds|usage|calls|tokens|cost|minutes")
_figures: dict[tuple[str, str], Rows | str] = {}


def read_figures(request: pytest.FixtureRequest, name: str, format: str) -> Rows | str:
    """Run a study on rows in a format and return its records, without what they took; if the file
    was refused, the sentence."""
    key = (name, format)
    if key not in _figures:
        _figures[key] = _read_figures(request.getfixturevalue("world"), VALUES[name], format)
    return _figures[key]


def _read_figures(world: World, valued: Valued, format: str) -> Rows | str:
    for file in world.home.glob("store.db*"):
        # Nothing of the run in another format may help this one.
        file.unlink()
    ending, write = {**FORMATS, **OTHERS}[format]
    spec = {name: _fill(value, f"rows{ending}") for name, value in valued.spec.items()}
    recipe = Recipe(spec, valued.files, RECIPES[valued.kind].before)
    world.prepare(recipe)
    (world.home / f"rows{ending}").write_bytes(write(valued.rows))
    outcome = world.run(valued.kind, recipe, "-o", "out.jsonl", "--json")
    if outcome.code not in (0, 3):
        return outcome.err
    text = (world.home / "out.jsonl").read_bytes().decode()
    # The server has another port, and a memory another id, in each world.
    return _drop_spent(read_lines(re.sub(r"127\.0\.0\.1:\d+|me_[0-9a-f]{32}", "", text)))


def _fill(value: Any, file: str) -> Any:
    return file if value in ("FILE", "items.jsonl") else value


def _drop_spent(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_spent(inner) for inner in value]
    if isinstance(value, dict):
        return {k: _drop_spent(v) for k, v in value.items() if not _SPENT.search(k)}
    return value
