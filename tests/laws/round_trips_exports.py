"""The files that we write: exports of runs of each kind, and how to read them without our readers.

A run of each kind has a text in it that files get wrong. It is run once for all cells that look at
its files.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet
import pytest

from laws.round_trips_world import METRIC, SEEN, read_lines
from laws.studies import (
    CHECKS,
    DIALOGUES,
    FIT_PAIRS,
    PAIRS,
    PROMPT,
    RECIPES,
    SUMS,
    TEXTS,
    TRACE,
    Recipe,
    Rows,
    World,
)

AWKWARD = (
    "=1+1; \"two\", 'three'\r\nfour\u2028five\u0085six\t<b>seven</b> &amp; | `eight` e\u0301𝔘"
    ' ["nine"] \\n'
)
"""A text that a spreadsheet runs as a formula, with quotes, separators, line ends, markup and
characters of other planes."""
LINE = " ".join(AWKWARD.split())
"""The same in one line, for files that are read line by line."""


@dataclass(frozen=True)
class Study:
    """A run of one kind with an awkward text.

    Attributes:
        recipe: The run.
        text: The text as the run's records have it.
        column: The column of the records' table that has the text; empty if no text of the user
            reaches the records.
        answer: What the model answers to everything; empty for the usual answers.
    """

    recipe: Recipe
    text: str = ""
    column: str = ""
    answer: str = ""


def _change(rows: Rows, **fields: Any) -> Rows:
    """Return the rows with other fields, which are functions of a row."""
    return [{**row, **{name: make(row) for name, make in fields.items()}} for row in rows]


def _name(row: dict[str, Any]) -> str:
    return AWKWARD + row["id"]


def _candidates(row: dict[str, Any]) -> list[str]:
    return [AWKWARD + text for text in row["candidates"]]


def _with(kind: str, file: str, content: str | Rows) -> Recipe:
    return RECIPES[kind].with_file(file, content)


ITEMS = _change(PAIRS, id=_name)
PROMPTS = {"prompts": {"plain": PROMPT + AWKWARD}}
FILLED = f"What is 0 and 0 more?\n{AWKWARD}"
MEMORIES = str(RECIPES["memory-eval"].files["data.jsonl"])
USER = json.loads(MEMORIES.splitlines()[0])["uuid"]

STUDIES: Mapping[str, Study] = {
    "evaluate": Study(
        _with("evaluate", "cases.jsonl", _change(TEXTS, candidates=_candidates)),
        f"{AWKWARD}A good answer 0.",
        "text",
    ),
    "compare": Study(RECIPES["compare"].changed(**PROMPTS), FILLED, "input"),
    "compare-quants": Study(RECIPES["compare-quants"].changed(**PROMPTS), FILLED, "input"),
    "calibrate": Study(
        _with("calibrate", "template.txt", f"{LINE} {PROMPT}"), f"{LINE} {PROMPT}", "text"
    ),
    "chain": Study(_with("chain", "rows.jsonl", _change(SUMS, id=_name)), f"{AWKWARD}r0", "id"),
    "agreement": Study(_with("agreement", "items.jsonl", ITEMS), f"{AWKWARD}i0", "item"),
    "ablation": Study(_with("ablation", "items.jsonl", ITEMS), f"{AWKWARD}i0", "item"),
    "escalation": Study(_with("escalation", "items.jsonl", ITEMS), f"{AWKWARD}i0", "item"),
    "robustness": Study(
        _with("robustness", "checks.yaml", CHECKS.replace("order-0", "=ordér-0")),
        "=ordér-0",
        "case",
    ),
    "fit": Study(_with("fit", "items.jsonl", _change(FIT_PAIRS, id=_name)), f"{AWKWARD}i0", "item"),
    "rates": Study(RECIPES["rates"]),
    "nodes": Study(
        _with("nodes", "trace.jsonl", _change(TRACE, output=lambda _: {"text": AWKWARD})),
        AWKWARD,
        "output.text",
    ),
    "memory-eval": Study(
        _with("memory-eval", "data.jsonl", MEMORIES.replace(f'"{USER}"', json.dumps(AWKWARD))),
        AWKWARD,
        "user",
    ),
    "optimize": Study(RECIPES["optimize"].changed(task=AWKWARD), AWKWARD, "task"),
    "innovate": Study(RECIPES["innovate"].changed(input=AWKWARD), AWKWARD, "input"),
    "guide": Study(RECIPES["guide"].changed(question=AWKWARD), AWKWARD, "question"),
    "profile": Study(RECIPES["profile"]),
    "summarize": Study(RECIPES["summarize"], f"{AWKWARD}\n\n{AWKWARD}", "text", AWKWARD),
    "create-memories": Study(
        _with("create-memories", "dialogues.jsonl", _change(DIALOGUES, id=_name)),
        f"{AWKWARD}d1",
        "dialogue",
    ),
    "integrate-memories": Study(RECIPES["integrate-memories"]),
    "read-corpus": Study(
        _with("read-corpus", "handbook.md", f"{LINE}\n"),
        LINE,
        "text",
    ),
    "evolve-persona": Study(RECIPES["evolve-persona"]),
}

ENDINGS = (".jsonl", ".json", ".csv", ".parquet", ".html", ".md")
TABLES = (".jsonl", ".csv", ".parquet")
"""The endings of files of rows, which are read back."""


NESTED = (("evaluate", ".jsonl"), ("nodes", ".jsonl"))
"""Files in which the text is no column, but within an object or a list."""


@dataclass
class Run:
    """The files of one run.

    Attributes:
        written: The files that the run wrote, by their endings.
        exported: The files that `runs export` wrote afterwards.
        copied: The JSON lines that `runs export` wrote of a copy of the store.
        junit: The JUnit file of the run.
        shown: What `runs show --json` printed.
        printed: What the run printed with `--json`.
        seen: For each file of rows, the texts that `compare --outputs` gave to a metric.
        logs: The inputs and outputs that `evaluate` read in the files that `runs export` wrote for
            each other program, or its refusal.
    """

    written: dict[str, bytes] = field(default_factory=dict)
    exported: dict[str, bytes] = field(default_factory=dict)
    copied: bytes = b""
    junit: str = ""
    shown: str = ""
    printed: str = ""
    seen: dict[str, list[str] | str] = field(default_factory=dict)
    logs: dict[str, list[tuple[str, str]] | str] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """The records, as the JSON lines have them."""
        return read_lines(self.written[".jsonl"].decode())


_runs: dict[str, Run] = {}


def run_study(request: pytest.FixtureRequest, kind: str) -> Run:
    """Run the study of a kind, write and read its files, and return them."""
    if kind not in _runs:
        _runs[kind] = _run_study(request.getfixturevalue("world"), kind, STUDIES[kind])
    return _runs[kind]


def _run_study(world: World, kind: str, study: Study) -> Run:
    run = Run()
    world.prepare(study.recipe)
    if study.answer:
        world.script = lambda _body, _number: study.answer
    targets = [word for ending in ENDINGS for word in ("-o", f"written{ending}")]
    outcome = world.run(kind, study.recipe, *targets, "--junit", "junit.xml", "--json")
    assert outcome.code == 0, outcome.err
    run.printed = outcome.out
    run.junit = _read(world, "junit.xml").decode()
    run.shown = _do(world, "runs", "show", "last", "--json")
    _do(world, "runs", "export", "last", *(f"exported{ending}" for ending in ENDINGS))
    for ending in ENDINGS:
        run.written[ending] = _read(world, f"written{ending}")
        run.exported[ending] = _read(world, f"exported{ending}")
    _do(world, "config", "store", "copy", "store.db", "copy.db")
    _do(world, "runs", "export", "last", "copied.jsonl", "--store", "copy.db")
    run.copied = _read(world, "copied.jsonl")
    for program in PROGRAMS if kind in LOGGED else ():
        run.logs[program] = _read_log(world, program)
    for ending in TABLES:
        if study.column and (kind, ending) not in NESTED:
            run.seen[ending] = _compare_outputs(world, f"written{ending}", study.column)
    return run


LOGGED: Mapping[str, tuple[str, str]] = {
    "evaluate": ("input", "candidates"),
    "compare": ("input", "text"),
}
"""The kinds of studies that are written for other programs, with the fields of their records that
hold the input and the outputs."""
PROGRAMS: Mapping[str, str] = {
    "inspect": "*.json",
    "every-eval-ever": "data/*/*/*/*_samples.jsonl",
    "atif": "*.json",
}
"""The files with outputs that are written for each other program, within the folder."""


def _read_log(world: World, program: str) -> list[tuple[str, str]] | str:
    """Let `evaluate` read the files that are written for a program. Return the inputs and outputs
    that it read, or its refusal."""
    _do(world, "runs", "export", "last", "--to", f"{program}:{program}")
    pairs: list[tuple[str, str]] = []
    for number, file in enumerate(sorted((world.home / program).glob(PROGRAMS[program]))):
        target = f"{program}-{number}.jsonl"
        store = ("--store", f"{program}.db")
        outcome = world.cli(
            "evaluate", str(file), "--judge", "look:length", "-o", target, "--json", *store
        )
        if outcome.code not in (0, 3):
            return outcome.err
        for row in read_lines(_read(world, target).decode()):
            pairs += [(row["input"], candidate["text"]) for candidate in row["candidates"]]
    return pairs


def list_pairs(run: Run, kind: str) -> list[tuple[str, str]]:
    """Return the inputs and outputs of a run's records."""
    name, place = LOGGED[kind]
    texts = [
        (row[name], [c["text"] for c in row[place]] if kind == "evaluate" else [row[place]])
        for row in run.rows
    ]
    return [(input, text) for input, outputs in texts for text in outputs]


READ_BY_EVALUATE: Mapping[str, tuple[str, str]] = {
    "compare": ("input", "text"),
    "guide": ("question", "text"),
    "chain": ("input.n", "output.story"),
    "optimize": ("task", "output"),
}
"""The columns with the input and the output, in exports that `evaluate` reads with `--map`."""


def evaluate_export(request: pytest.FixtureRequest, kind: str, ending: str) -> tuple[Any, Any]:
    """Let `evaluate` read the file of a run. Return the inputs and outputs of its rows, and those
    that were read, or the refusal."""
    run = run_study(request, kind)
    world = request.getfixturevalue("world")
    (world.home / f"file{ending}").write_bytes(run.written[ending])
    columns = READ_BY_EVALUATE.get(kind)
    command = ["evaluate", f"file{ending}", "--judge", "look:length", "-o", "again.jsonl", "--json"]
    if columns is None:
        pairs = [(row["input"], [c["text"] for c in row["candidates"]]) for row in run.rows]
    else:
        pairs = [(row[columns[0]], [row[columns[1]]]) for row in run.rows]
        names = zip(("input", "output"), columns, strict=True)
        command += [w for new, old in names if new != old for w in ("--map", f"{new}={old}")]
    outcome = world.cli(*command)
    if outcome.code not in (0, 3):
        return pairs, outcome.err
    rows = read_lines(_read(world, "again.jsonl").decode())
    return pairs, [(row["input"], [c["text"] for c in row["candidates"]]) for row in rows]


def _compare_outputs(world: World, file: str, column: str) -> list[str] | str:
    """Let `compare` score a column of a file; return the texts that it read, or its refusal."""
    (world.home / "metric.py").write_text(METRIC, encoding="utf-8")
    (world.home / SEEN).unlink(missing_ok=True)
    (world.home / SEEN).touch()
    outcome = world.cli(
        *("compare", "--data", file, "--outputs", column, "--label", column),
        *("--metric", "metric.py:keep", "--json"),
    )
    if outcome.code not in (0, 3):
        return outcome.err
    return [output for _, output in read_lines(_read(world, SEEN).decode())]


def _do(world: World, *command: str) -> str:
    outcome = world.cli(*command)
    assert outcome.code == 0, outcome.err
    return outcome.out


def _read(world: World, name: str) -> bytes:
    return (world.home / name).read_bytes()


# Reading without our readers

Flat = dict[str, Any]


def flatten(row: Mapping[str, Any], before: str = "") -> Flat:
    """Return a row of JSON lines as the cells that a table has of it: a value within an object is
    in a column `object.key`, and a list is its JSON."""
    cells: Flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            cells |= flatten(value, f"{before}{name}.")
        else:
            cells[before + name] = value
    return cells


def expand_cases(rows: Rows) -> Rows:
    """Return a row for each candidate of the cases that `evaluate` writes as JSON lines, with the
    columns that it has in a table."""
    return [
        {"index": row["index"], "id": row["id"], "candidate": number, **candidate}
        for row in rows
        for number, candidate in enumerate(row["candidates"], 1)
    ]


def read_table(content: bytes, ending: str) -> list[Flat]:
    """Return the rows of a file as they stand in it, with an object's values in columns."""
    if ending == ".jsonl":
        return [flatten(row) for row in read_lines(content.decode())]
    if ending == ".csv":
        text = io.StringIO(content.decode(), newline="")
        return [dict(row) for row in csv.DictReader(text, strict=True)]
    return pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()


def find_differences(rows: Rows, table: Sequence[Flat]) -> Iterator[str]:
    """Yield each cell of a table that is not the value of the JSON lines."""
    if len(rows) != len(table):
        yield f"{len(table)} rows for {len(rows)}"
        return
    columns = {name for row in rows for name in flatten(row)}
    if not columns <= set(table[0]):
        yield f"no column {sorted(columns - set(table[0]))}"
        return
    for number, (row, cells) in enumerate(zip(rows, table, strict=True)):
        values = flatten(row)
        for name in columns:
            if not _is_same(values.get(name), cells[name]):
                yield f"row {number}, {name}: {cells[name]!r} for {values.get(name)!r}"


def _is_same(value: Any, cell: Any) -> bool:
    """Tell whether a cell holds a value: as itself, or as the text that stands for it in CSV and in
    columns of several types."""
    if not isinstance(cell, str) or isinstance(value, str):
        # A text that a spreadsheet would run has an apostrophe in front.
        is_formula = isinstance(value, str) and cell == f"'{value}"
        return value == cell or is_formula
    if value is None:
        return cell == ""
    return json.loads(cell) == value
