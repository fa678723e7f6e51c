"""Read and write recorded runs of agents as JSON lines: one node a line, read lazily, and written
completely or not at all.

`node_lines.py` converts a line. Files of OpenTelemetry spans are detected and passed to `otel.py`.
"""

from __future__ import annotations

import ast
import csv
import itertools
import json
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.json_texts import CONTAINERS, parse_text
from textevolve.node_eval.documents import VALUES, is_export, read_documents
from textevolve.node_eval.episodes import Episode, EpisodeInstructions, Reading, split_history
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.node_lines import (
    NodeLine,
    as_item,
    describe_node,
    encode_line,
    parse_node,
)
from textevolve.node_eval.otel import read_spans
from textevolve.rows import parse_row, read_lines, read_rows
from textevolve.rows.content import open_text

HEADER = {"format": "textevolve-nodes", "version": 1}
"""The first line of a file in TextEvolve's own format."""

OTLP = re.compile('"resource(Spans|Logs|Metrics|_spans|_logs|_metrics)"')
"""The names by which the JSON of OTLP is detected."""
TABLES = (".csv", ".tsv", ".parquet")
"""The endings of files that are tables of spans."""
NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""The characters that Python reads for bytes that are not UTF-8."""


def read_episodes(
    path: str | Path,
    reading: Reading | None = None,
    instructions: EpisodeInstructions | None = None,
) -> Iterator[Episode]:
    """Yield the runs in a trace one by one: our own JSON lines, OpenTelemetry spans as OTLP JSON,
    or an export of Phoenix, MLflow or LangSmith.

    A line or span that cannot be used is reported to `reading`, and the rest is read. `-` is
    standard input. `instructions`: the types of nodes by their names, which override those of the
    file.

    Raises:
        InputError: the file cannot be read, or nothing in it can be used.
    """
    source, found = str(path), reading if reading is not None else Reading()
    if Path(source).suffix.lower() in TABLES:
        yield from read_spans([(source, _read_table(source))], source, found, instructions or {})
    else:
        lines = read_lines(source)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{source}: no nodes: it is empty")
        lines = itertools.chain([first], lines)
        if _begins_spans(first[1]):
            documents = read_documents(lines, source, found)
            yield from read_spans(documents, source, found, instructions or {})
        else:
            # The lines of an episode must come one after another.
            nodes = (node for where, line in lines if (node := _read_line(where, line, found)))
            yield from gather_episodes(nodes, instructions)
    if not found.nodes:
        why = found.faults[0] if found.faults else f"{source}: it has a header and nothing else"
        raise InputError(f"no node can be used: {why}")


def _read_table(path: str) -> list[dict[str, Any]]:
    """Read the rows of a data frame. pandas writes its index next to the column of the same
    name."""
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet":
        return [dict(row) for _, row in read_rows(path, "span", lambda _name: True)]
    csv.field_size_limit(sys.maxsize)
    with open_text(path) as file:
        reader = csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",")
        return [{name: _read_cell(name, cell) for name, cell in row.items()} for row in reader]


def _read_cell(name: str, cell: Any) -> Any:
    """Parse a cell in which pandas writes a container, as JSON or as a Python literal. The whole
    input or output of a span may be a text that looks like one."""
    if isinstance(cell, str) and cell.startswith(CONTAINERS) and not name.endswith(VALUES):
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return parse(cell)
    return cell


def _begins_spans(line: str) -> bool:
    """Return whether a file has spans or an export, by its first line. A document may have many
    lines."""
    start = line.strip()
    if start == "{" or start.startswith("[") or OTLP.search(line):
        return True
    record = parse_text(line, "{")
    return isinstance(record, dict) and is_export(cast("dict[str, object]", record))


def _read_line(where: str, line: str, reading: Reading) -> NodeLine | None:
    try:
        if NOT_UTF8.search(line):
            raise InputError(f"{where}: not UTF-8 text; convert it first")
        row = parse_row(line, where, "node")
        if "format" in row and "node" not in row:
            if {name: row.get(name) for name in HEADER} != HEADER:
                raise InputError(f"{where}: is of another format; this TextEvolve reads {HEADER}")
            return None
        node = parse_node(where, row)
        reading.nodes += 1
        return node
    except InputError as error:
        reading.report(str(error))
        return None


def gather_episodes(
    lines: Iterable[NodeLine], instructions: EpisodeInstructions | None = None
) -> Iterator[Episode]:
    """Combine lines into episodes, sorted by superstep. A node without a superstep gets a new one,
    after that of the line before it."""
    for episode, group in itertools.groupby(lines, lambda line: line.episode):
        steps: dict[tuple[int, int], list[HistoryItem]] = {}
        last = 0
        for number, line in enumerate(group, 1):
            place = (last, number) if line.step is None else (line.step, 0)
            last = place[0]
            item = as_item(line)
            item.instruction = (instructions or {}).get(line.node, line.instruction)
            item.order = line.order or number
            steps.setdefault(place, []).append(item)
        yield Episode(episode, History([steps[place] for place in sorted(steps)]))


def write_history(history: History, path: str | Path, episode: str = "") -> None:
    """Write a history as JSON lines, each run as an episode, named by the run's id or by `episode`
    (`episode/id` if there are several runs). An existing file is replaced once everything is
    written.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            file.write(encode_line(HEADER))
            for each in split_history(history, episode):
                for step, item in each.nodes:
                    file.write(encode_line(describe_node(each.id, step, item)))
        beside.replace(target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            beside.unlink()
