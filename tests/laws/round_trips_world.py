"""What the law of round trips works with: awkward texts, files as other programs write them, and
the readers of files of rows, each with a way to see what it read.

What a reader took is never asked of its own report where something else can tell: a metric of the
user, which writes down what it is given, or the request that the scripted server got.
"""

import csv
import gzip
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.parquet

from laws.studies import Rows, World, write_rows

Seen = dict[str, str]
"""The text that was read, by the key of its row."""

GROUPS: Mapping[str, Sequence[str]] = {
    "line ends": ("one\r\ntwo", "one\rtwo", "one\n\n\ntwo", "last line\n"),
    "rare separators": (
        "one\u0085two",
        "one\u2028two\u2029three",
        "one\x0btwo\x0cthree",
        "one\x1ctwo\x1ethree",
        "no-break\u00a0blank, zero\u200bwidth",
    ),
    "blanks at the ends": ("  two blanks  ", "\tone tab\u00a0"),
    "a byte order mark": ("\ufeffone", "one\ufefftwo"),
    "formula signs": ("=1+1", "+1 (555) 010", "-5 degrees", "@home", "-1"),
    "apostrophes": ("'tis", "'=1+1", "''=1", "it''s", "rock 'n' roll"),
    "quotes": ('say "yes"', '"all of it"', '"', 'a "" b', "“curly”", "back\\slash \\n"),
    "separators of cells": ("a,b,,c", "a;b", "a\tb", "sep=;", "# no comment"),
    "texts like lists": ("[]", '["x", "y"]', "['x', 'y']", '[{"a": 1}]'),
    "texts like objects": ('{"a": 1}', "{'a': 1}", '{"role": "user"}'),
    "texts like numbers": ("1", "01", "1.0", "1e3", "1_000", "9007199254740993"),
    "texts like constants": ("null", "true", "None", "NaN", "inf", "N/A"),
    "scripts": ("𝔘𝕀 😀", "e\u0301 é ﬁ", "हिन्दी", "العربية \u202eabc", "ẞ ß İ ı 中文。"),
    "markup": (
        "<b>x</b> &amp; &lt;",
        "# Head\n| a | b |\n|---|---|",
        "`code` **bold** [x](y)",
        "<!-- x --><script>y</script>",
    ),
    "braces": ("{n}", "{{n}}", "{% raw %} \\boxed{4}", "${HOME} %s {row.n!r:>4}"),
    "marks of prompts": ("[[input 12ab]]", "> quoted"),
    "thoughts": ("<think>x</think> y",),
    "a long text": ("word " * 28_000 + "end",),
}
"""Texts that files and readers get wrong, by what is awkward about them. The long one is longer
than the cells that the csv module reads by default."""

KEYS: Mapping[str, str] = {
    f"k{number:02}": text
    for number, text in enumerate(text for group in GROUPS.values() for text in group)
}
"""Each awkward text by the key of the row that has it."""


# Files as other programs write them


def write_json(rows: Rows) -> bytes:
    return json.dumps(rows, ensure_ascii=False, indent=1).encode()


def write_lines(rows: Rows) -> bytes:
    return write_rows(rows).encode()


def write_escaped_lines(rows: Rows) -> bytes:
    """Write JSON lines in ASCII, with a mark at the start and the line ends of Windows."""
    lines = "".join(json.dumps(row) + "\r\n" for row in rows)
    return lines.encode("utf-8-sig")


def _table(rows: Rows, delimiter: str) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, delimiter=delimiter)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return file.getvalue()


def _cell(value: object) -> object:
    """Return a value as a cell: lists and objects as JSON."""
    if isinstance(value, list | dict | bool):
        return json.dumps(value, ensure_ascii=False)
    return value


def write_csv(rows: Rows) -> bytes:
    return _table(rows, ",").encode()


def write_spreadsheet(rows: Rows) -> bytes:
    """Write CSV as a European spreadsheet does: a mark at the start, and semicolons."""
    return _table(rows, ";").encode("utf-8-sig")


def write_tabs(rows: Rows) -> bytes:
    return _table(rows, "\t").encode()


def write_unicode_text(rows: Rows) -> bytes:
    """Write the text with tabs that a spreadsheet saves for all scripts: in UTF-16 with a mark."""
    return _table(rows, "\t").encode("utf-16")


def write_titled(rows: Rows) -> bytes:
    """Write CSV as a spreadsheet does that has a title above the table and empty rows below it."""
    table = _table(rows, ";")
    marks = ";" * table.partition("\r\n")[0].count(";")
    return f"Rows of May{marks}\r\n{marks}\r\n{table}{marks}\r\n{marks}\r\n".encode()


def pack_lines(rows: Rows) -> bytes:
    return gzip.compress(write_lines(rows))


def pack_csv(rows: Rows) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/rows.csv", write_csv(rows))
    return file.getvalue()


def write_wrapped(rows: Rows) -> bytes:
    """Write JSON as services do, with the rows under a name."""
    return json.dumps({"total": len(rows), "data": rows}).encode()


def write_parquet(rows: Rows) -> bytes:
    file = io.BytesIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    full_records = [{name: row.get(name) for name in columns} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(full_records), file)
    return file.getvalue()


FORMATS: Mapping[str, tuple[str, Callable[[Rows], bytes]]] = {
    "JSON lines": (".jsonl", write_lines),
    "JSON lines of Windows": (".ndjson", write_escaped_lines),
    "JSON": (".json", write_json),
    "CSV": (".csv", write_csv),
    "CSV of a spreadsheet": (".csv", write_spreadsheet),
    "TSV": (".tsv", write_tabs),
    "Parquet": (".parquet", write_parquet),
    "JSON lines named as JSON": (".json", write_lines),
    "JSON with a head": (".json", write_wrapped),
    "JSON lines in gzip": (".jsonl.gz", pack_lines),
    "CSV in an archive": (".zip", pack_csv),
    "CSV with a title": (".csv", write_titled),
    "TSV in UTF-16": (".tsv", write_unicode_text),
}
"""The ending of each format of rows, and a writer of it that is not ours."""
WITHOUT_WRITER = {
    ".eval": "a log of another program, which no program but that one writes",
    ".traj": "a trajectory of another program, which no program but that one writes",
    ".xlsx": "a workbook has no control characters and no long texts; tests/field has others",
}
"""Endings of files of rows that no writer here makes, each with the reason."""


# Readers of files of rows

SEEN = "seen.jsonl"
METRIC = f"""\
import json


def keep(output, label):
    with open("{SEEN}", "a", encoding="utf-8") as file:
        file.write(json.dumps([label, output]) + "\\n")
    return 1.0
"""
"""A metric of the user that writes down what it is given."""
KEEP = "metric.py:keep"
KEEPER = ("--judge", f"metric:{KEEP}")
FILES: Mapping[str, str] = {
    "metric.py": METRIC,
    "prompt.txt": "{key}:{text}:{key}",
    "chain.yaml": "name: c\ninputs: {key: text, text: text}\noutputs: [told]\n"
    'steps:\n  - {ask: told, prompt: "{key}:{text}:{key}"}\n',
}


def read_metric(world: World) -> Seen:
    """Return the outputs that the metric was given, by their labels."""
    lines = (world.home / SEEN).read_text(encoding="utf-8").splitlines()
    return {label: output for label, output in map(json.loads, lines) if output != OTHER}


def read_metric_labels(world: World) -> Seen:
    """Return the labels that the metric was given, by the outputs."""
    lines = (world.home / SEEN).read_text(encoding="utf-8").splitlines()
    return {output: label for label, output in map(json.loads, lines)}


def read_requests(world: World) -> Seen:
    """Return the texts between two keys and colons in the requests that the server got."""
    texts: Seen = {}
    for body in world.server.requests:
        content = body["messages"][-1]["content"]
        match = re.match(r"(k\d\d):(.*):\1", content, re.DOTALL)
        if match:
            texts[match[1]] = match[2]
    return texts


def read_fenced(world: World) -> Seen:
    """Return each row's text if it stands in a request with the row's key, and an empty text if it
    does not. Prompts quote or indent texts line by line, so lines are compared, and neither what
    ends them nor what stands before them."""
    texts: Seen = {}
    for body in world.server.requests:
        content = "\n".join(str(message["content"]) for message in body["messages"])
        key = next((key for key in KEYS if f"<{key}>" in content), None)
        if key is None:
            continue
        if _strip_lines(KEYS[key]) in _strip_lines(content):
            texts[key] = KEYS[key]
        else:
            texts.setdefault(key, "")
    return texts


def _strip_lines(text: str) -> str:
    lines = [line.strip().removeprefix(">").strip() for line in text.splitlines()]
    return "\n".join(lines)


def read_lines(text: str) -> list[dict[str, Any]]:
    """Read JSON lines as their standard has them: only a line feed ends a line."""
    return [json.loads(line) for line in text.split("\n") if line]


def read_export(*path: str) -> Callable[[World], Seen]:
    """Return a function that reads a field of each row of the run's export, by the row's id."""

    def read(world: World) -> Seen:
        rows = read_lines((world.home / "out.jsonl").read_text(encoding="utf-8"))
        return {str(row.get("id", row.get("case"))): _follow(row, path) for row in rows}

    return read


def _follow(row: Any, path: Sequence[str]) -> str:
    for name in path:
        row = row[name]
    return row


OTHER = "another text"
"""A text beside the awkward one, which nobody looks at."""


@dataclass(frozen=True)
class Reader:
    """A reader of files of rows.

    Attributes:
        command: The command that reads FILE. MODEL stands for the scripted server's model.
        row: The row with a key and a text.
        read: Returns the texts that were read.
        formats: The formats that it reads.
        before: The commands before it.
        after: The commands after it.
        without: Groups of texts that mean something else to it, or that it refuses.
        samples: Whether it leaves some rows aside.
    """

    command: Sequence[str]
    row: Callable[[str, str], dict[str, Any]]
    read: Callable[[World], Seen]
    formats: Sequence[str] = ("JSON lines", "CSV", "Parquet")
    before: Sequence[Sequence[str]] = ()
    after: Sequence[Sequence[str]] = ()
    without: Sequence[str] = ()
    samples: bool = False

    @property
    def printing(self) -> Sequence[str]:
        """The option by which a run prints lines and no report, which takes longer than the run."""
        is_study = self.command[0] != "labels" and self.command[1] != "import"
        return ("--json",) if is_study else ()


ALL = tuple(FORMATS)
"""The formats of the readers on which each format is tried. The others read three of them."""
TWO = ("JSON lines", "CSV")
"""The formats of readers that cost more."""
OUT = ("-o", "out.jsonl")
EVALUATE = ("evaluate", "FILE")
COMPARE = ("compare", "--data", "FILE")
AGREEMENT = ("bench", "agreement", "FILE", "--orders", "given")
NOTES = ("memories", "collections", "create", "notes", "--embedder", "MODEL-embeddings")


NOTE = 'Odd; "is it?"\n=1'


def label_all(world: World) -> None:
    """Label each item of every task, as the page for people does."""
    with sqlite3.connect(world.home / "store.db") as store:
        items = store.execute("select task_id, position, item from labelling_items").fetchall()
        for number, (task, position, item) in enumerate(items):
            pair = len(json.loads(item)["texts"]) > 1
            answers = ("second", "first") if pair else ("0", "1")
            label = json.dumps({"answer": answers[number % 2], "note": NOTE, "swapped": False})
            row = (task, position, "ann", 1.0, label)
            store.execute("insert or replace into labels values (?, ?, ?, ?, ?)", row)
    store.close()


READERS: Mapping[str, Reader] = {
    "evaluate, output": Reader(
        (*EVALUATE, *KEEPER),
        lambda key, text: {"input": "i", "output": text, "reference": key},
        read_metric,
        formats=ALL,
    ),
    "evaluate, candidates": Reader(
        (*EVALUATE, *KEEPER),
        lambda key, text: {"input": "i", "candidates": [text, OTHER], "reference": key},
        read_metric,
    ),
    "evaluate, reference": Reader(
        (*EVALUATE, *KEEPER),
        lambda key, text: {"input": "i", "output": key, "reference": text},
        read_metric_labels,
    ),
    "evaluate, input": Reader(
        (*EVALUATE, "--judge", "look:length", *OUT),
        lambda key, text: {"id": key, "input": text, "output": "o"},
        read_export("input"),
    ),
    "evaluate, id": Reader(
        (*EVALUATE, "--judge", "look:length", *OUT),
        lambda key, text: {"id": text, "input": key, "output": "o"},
        lambda world: {row["input"]: row["id"] for row in _export_rows(world)},
    ),
    "evaluate, chat": Reader(
        (*EVALUATE, *KEEPER),
        lambda key, text: {
            "messages": [
                {"role": "user", "content": "i"},
                {"role": "assistant", "content": text},
            ],
            "reference": key,
        },
        read_metric,
        without=("thoughts",),  # those of a recorded reply are no part of it
    ),
    "evaluate, context": Reader(
        (*EVALUATE, "--judge", "faithfulness", "-m", "MODEL"),
        lambda key, text: {"input": "i", "output": f"<{key}>", "context": text},
        read_fenced,
        without=("texts like lists", "blanks at the ends"),  # a list is several passages
    ),
    "compare, column of a prompt": Reader(
        (*COMPARE, "-p", "prompt.txt", "-m", "MODEL", "--metric", "regex:."),
        lambda key, text: {"key": key, "text": text},
        read_requests,
        formats=ALL,
    ),
    "compare, outputs": Reader(
        (*COMPARE, "--outputs", "text", "--label", "key", "--metric", KEEP),
        lambda key, text: {"key": key, "text": text},
        read_metric,
    ),
    "compare, label": Reader(
        (*COMPARE, "--outputs", "key", "--label", "text", "--metric", KEEP),
        lambda key, text: {"key": key, "text": text},
        read_metric_labels,
    ),
    "calibrate, column": Reader(
        (
            *("calibrate", "prompt.txt", "--data", "FILE", "--label", "right"),
            *("--metric", "exact", "-m", "MODEL", "--strategy", "protegi", "--depth", "1"),
            *("--minibatch", "99", "--selection-minibatch", "99", "--validation", "0.05"),
        ),
        lambda key, text: {"key": key, "text": text, "right": "x"},
        read_requests,
        samples=True,
        formats=TWO,
    ),
    "chain, column": Reader(
        ("run", "chains", "run", "chain.yaml", "--data", "FILE", "-m", "MODEL"),
        lambda key, text: {"key": key, "text": text},
        read_requests,
    ),
    "agreement, output": Reader(
        (*AGREEMENT, *KEEPER),
        lambda key, text: {"input": key, "output": text, "reference": key, "label": "pass"},
        read_metric,
    ),
    "agreement, response": Reader(
        (*AGREEMENT, *KEEPER),
        lambda key, text: {"input": key, "response": text, "reference": key, "label": "pass"},
        read_metric,
        formats=TWO,
    ),
    "agreement, pair": Reader(
        (*AGREEMENT, *KEEPER),
        lambda key, text: {
            "input": key,
            "candidate_1": text,
            "candidate_2": OTHER,
            "reference": key,
            "winner": 1,
        },
        read_metric,
    ),
    "agreement, question": Reader(
        (*AGREEMENT, "--judge", "probe", "-m", "MODEL"),
        lambda key, text: {"question": text, "output": f"<{key}>", "label": "pass"},
        read_fenced,
        formats=TWO,
    ),
    "agreement, reference": Reader(
        (*AGREEMENT, *KEEPER),
        lambda key, text: {"input": key, "output": key, "reference": text, "label": "pass"},
        read_metric_labels,
        formats=TWO,
    ),
    "escalation, pair": Reader(
        ("bench", "escalation", "FILE", "--first", f"metric:{KEEP}", "--then", "look:length"),
        lambda key, text: {
            "input": key,
            "a": text,
            "b": OTHER,
            "reference": key,
            "winner": "a",
        },
        read_metric,
    ),
    "fit, pair": Reader(
        ("judges", "fit", "FILE", "--orders", "given", "--signals", f"metric:{KEEP},length"),
        lambda key, text: {
            "input": key,
            "output_1": text,
            "output_2": OTHER,
            "reference": key,
            "label": 1 + int(key[1:]) % 2,
        },
        read_metric,
        formats=TWO,
    ),
    "labels create, output": Reader(
        ("labels", "create", "task", "FILE"),
        lambda key, text: {"id": key, "input": "i", "output": text},
        read_export("output"),
        after=[("labels", "export", "task", *OUT)],
    ),
    "memories import, text": Reader(
        ("memories", "import", "notes", "FILE"),
        lambda key, text: {"text": text, "source": key},
        lambda world: {row["source"]: row["text"] for row in _export_rows(world)},
        before=[NOTES],
        after=[("memories", "export", "notes", "out.jsonl")],
        without=("a long text",),  # a memory has 20,000 characters at most
        formats=ALL,
    ),
    "memories import, source": Reader(
        ("memories", "import", "notes", "FILE"),
        lambda key, text: {"text": key, "source": text},
        lambda world: {row["text"]: row["source"] for row in _export_rows(world)},
        before=[NOTES],
        after=[("memories", "export", "notes", "out.jsonl")],
    ),
    "optimize, task": Reader(
        (
            "optimize",
            "FILE",
            "--judge",
            "look:length",
            "--max-iterations",
            "1",
            "-m",
            "MODEL",
            *OUT,
        ),
        lambda key, text: {"id": key, "task": text},
        read_export("task"),
    ),
    "nodes, output": Reader(
        ("nodes", "evaluate", "FILE", "--judge", "look:length", *OUT),
        lambda key, text: {
            "episode": key,
            "step": 0,
            "node": "n",
            "input": {"text": "i"},
            "output": {"text": text},
        },
        lambda world: {row["episode"]: row["output"]["text"] for row in _export_rows(world)},
        formats=("JSON lines", "JSON lines of Windows"),
    ),
    "memories create, turn": Reader(
        ("memories", "create", "FILE", "--collection", "notes", "-m", "MODEL"),
        lambda key, text: {
            "id": key,
            "turns": [{"role": "user", "content": f"<{key}> {text}"}],
        },
        read_fenced,
        before=[NOTES],
        formats=TWO,
        without=("blanks at the ends", "a long text"),  # it is shown in parts
    ),
}
"""Each reader of rows by its command and the column that the text stands in."""


def _export_rows(world: World) -> list[dict[str, Any]]:
    return read_lines((world.home / "out.jsonl").read_text(encoding="utf-8"))


def read_texts(world: World, reader: Reader, format: str) -> dict[str, Seen | str]:
    """Give a reader a file with each awkward text and return what it read, by the group of texts;
    for a group that it refused, its sentence."""
    for name, content in FILES.items():
        (world.home / name).write_text(content, encoding="utf-8")
    world.server.script = world.script
    for command in reader.before:
        outcome = world.cli(*_fill(command, world, ""))
        assert outcome.code == 0, outcome.err
    groups = [group for group in GROUPS if group not in reader.without]
    seen = _read_file(world, reader, format, groups)
    if isinstance(seen, str):
        # One text may have spoiled the whole file: the others are read without it.
        return {group: _read_file(world, reader, format, [group]) for group in groups}
    return dict.fromkeys(groups, seen)


def _read_file(world: World, reader: Reader, format: str, groups: Sequence[str]) -> Seen | str:
    ending, write = FORMATS[format]
    texts = {text for group in groups for text in GROUPS[group]}
    rows = [reader.row(key, text) for key, text in KEYS.items() if text in texts]
    (world.home / f"rows{ending}").write_bytes(write(rows))
    (world.home / SEEN).unlink(missing_ok=True)
    world.server.requests.clear()
    outcome = world.cli(*_fill(reader.command, world, f"rows{ending}"), *reader.printing)
    if outcome.code not in (0, 3):
        return outcome.err
    if reader.command[0] == "labels":
        label_all(world)
    for command in reader.after:
        outcome = world.cli(*_fill(command, world, ""))
        assert outcome.code == 0, outcome.err
    return reader.read(world)


def _fill(command: Sequence[str], world: World, file: str) -> list[str]:
    words = [file if word == "FILE" else word for word in command]
    return [word.replace("MODEL", world.model) for word in words]
