"""Results as tables for other programs: JSONL, CSV, Parquet; streamed, in flat memory.

JSONL holds whole results, one a line. CSV and Parquet are in long form: a row for each case and
candidate, or, as `turns`, for each turn and candidate. What is missing is an empty cell or a null,
never 0. What belongs to a whole case (`case_tokens`, ...) or turn stands in each of its rows.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from textevolve.debate import tensor as arithmetic
from textevolve.debate.record import finite, result_figures
from textevolve.debate.result import DebateResult, Turn
from textevolve.errors import InputError, SettingsError
from textevolve.export import wording
from textevolve.export.files import open_target

Format = Literal["jsonl", "csv", "parquet"]
Row = dict[str, Any]
Add = Callable[[DebateResult], None]

SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
CASE_COLUMNS: Mapping[str, type] = {
    "index": int,
    "id": str,
    "candidate": int,
    "text": str,
    "score": float,
    "s_norm": float,
    "probability": float,
    "passed": bool,
    "best": bool,
    "spread": float,
    "round_one_s_norm": float,
    "coverage": float,
    "rounds": int,
    "stopped": str,
    "voters": int,
    "certainty": float,
    "status": str,
    "reason": str,
    "winner_changes": int,
    "case_calls": int,
    "case_tokens": int,
    "case_cost": float,
    "case_seconds": float,
    "feedback": str,
}
TURN_COLUMNS: Mapping[str, type] = {
    "index": int,
    "id": str,
    "round": int,
    "agent": str,
    "model": str,
    "candidate": int,
    "label": int,
    "place": int,
    "weighted": float,
    "strengths": str,
    "weaknesses": str,
    "instructions": str,
    "argument": str,
    "rung": str,
    "status": str,
    "reason": str,
    "turn_calls": int,
    "turn_tokens": int,
    "turn_cost": float,
    "turn_seconds": float,
}
COMPONENT = "component_"
ROWS_AT_ONCE = 2000
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_results(
    results: Iterable[DebateResult],
    path: str | Path,
    format: str | None = None,
    *,
    turns: bool = False,
) -> int:
    """Write all results, and say how many there were; `-` is standard output (JSONL, CSV).

    The format is that of the suffix where none is given; JSONL on standard output.

    Raises:
        InputError: the format is not known, or the file cannot be written.
        SettingsError: Parquet is wanted and pyarrow is not installed.
    """
    number = 0
    with open_results(path, format, turns=turns) as add:
        for result in results:
            add(result)
            number += 1
    return number


@contextmanager
def open_results(
    path: str | Path, format: str | None = None, *, turns: bool = False
) -> Generator[Add]:
    """As `write_results`, for results that come one by one: yields a function that takes each.

    The file appears when the block is left without an error.
    """
    chosen = choose_format(path, format)
    if chosen == "jsonl":
        with open_target(path) as target:
            yield lambda result: _write_lines(result, target, turns)
        return
    known, rows_of = (TURN_COLUMNS, turn_rows) if turns else (CASE_COLUMNS, case_rows)
    columns = dict(known)
    with open_rows(path, columns, chosen) as add_row:

        def add(result: DebateResult) -> None:
            # Cases may have components of their own, so the columns are known only at the end.
            columns.update(dict.fromkeys((COMPONENT + name for name in result.components), float))
            for row in rows_of(result):
                add_row(row)

        yield add


@contextmanager
def open_rows(
    path: str | Path, columns: Mapping[str, type], format: str | None = None
) -> Generator[Callable[[Row], None]]:
    """As `open_results`, for rows of any kind: yields a function that takes each. `columns` are
    those of CSV and Parquet, and are read when the block is left; JSONL holds the rows whole."""
    chosen = choose_format(path, format)
    if chosen == "parquet":
        _import_pyarrow()
    with open_target(path, binary=chosen == "parquet") as target:
        if chosen == "jsonl":
            yield lambda row: _write_line(json.dumps(row), target)
            return
        with tempfile.TemporaryFile("w+", encoding="utf-8", dir=_folder(path)) as staged:
            yield lambda row: print(json.dumps(row, ensure_ascii=True), file=staged)
            staged.seek(0)
            rows = (json.loads(line) for line in staged)
            (_write_csv if chosen == "csv" else _write_parquet)(rows, columns, target)


def choose_format(path: str | Path, format: str | None = None) -> Format:
    """Raises InputError, naming the formats there are, where it is none of them."""
    if format is None and str(path) == "-":
        return "jsonl"
    suffix = Path(path).suffix.lower() if format is None else f".{format.lower()}"
    known = SUFFIXES.get(suffix)
    if known is None:
        given = f"{path}: " if format is None else f"format '{format}': "
        raise InputError(
            f"{given}results are written as .jsonl, .csv or .parquet, and a report as .html"
        )
    return known


def _folder(path: str | Path) -> Path | None:
    """Where to put rows aside: on the target's own disk, which has room for them or nothing has."""
    parent = Path(path).absolute().parent
    return parent if str(path) != "-" and parent.is_dir() and parent != Path("/dev") else None


def case_rows(result: DebateResult) -> Iterator[Row]:
    """A row for each candidate; one without a candidate for a case that has none."""
    figures = result_figures(result)
    candidates = result.case.candidates
    case: Row = {
        "index": result.index,
        "id": write_text(result.case.id),
        "coverage": figures["coverage"],
        "rounds": figures["rounds"],
        "stopped": result.stopped,
        "voters": figures["voters"][-1] if figures["voters"] else None,
        "certainty": figures["certainty"],
        "status": figures["status"],
        "reason": write_text(wording.reason(result)) or None,
        "winner_changes": figures["winner_changes"] if result.scored else None,
        "case_calls": figures["calls"],
        "case_tokens": figures["tokens"],
        "case_cost": figures["cost"],
        "case_seconds": figures["seconds"],
    }
    for j, text in enumerate(candidates):
        components: dict[str, float] = figures["components"][j] or {}
        yield {
            **case,
            "candidate": j + 1,
            "text": write_text(text),
            "score": figures["scores"][j],
            "s_norm": figures["s_norm"][j],
            "probability": figures["probabilities"][j],
            "passed": figures["passed"][j],
            "best": j == result.best if result.scored else None,
            "spread": figures["spread"][j] if figures["spread"] else None,
            "round_one_s_norm": figures["round_one"][j],
            "feedback": write_text(str(result.feedback[j])) or None,
            **{COMPONENT + name: value for name, value in components.items()},
        }
    if not candidates:
        yield case


def turn_rows(result: DebateResult) -> Iterator[Row]:
    """A row for each turn and candidate."""
    for turn in result.turns:
        yield from _rows_of_turn(result, turn)


def _rows_of_turn(result: DebateResult, turn: Turn) -> Iterator[Row]:
    whole: Row = {
        "index": result.index,
        "id": write_text(result.case.id),
        "round": turn.round + 1,
        "agent": result.agents[turn.agent],
        "model": write_text(turn.model),
        "argument": write_text(turn.argument) or None,
        "rung": turn.rung,
        "status": turn.failure.kind if turn.failure else "scored",
        "reason": write_text(turn.failure.reason) if turn.failure else None,
        "turn_calls": turn.usage.calls,
        "turn_tokens": turn.usage.tokens,
        "turn_cost": turn.usage.cost,
        "turn_seconds": round(turn.seconds, 3),
    }
    weighted: list[float | None] = [None] * len(result.case.candidates)
    if turn.scores is not None:
        scores = arithmetic.turn_scores(np.array(turn.scores), result.weights)
        weighted = finite(scores.tolist())
    for j in range(len(result.case.candidates)):
        points = turn.points[j] if turn.points else None
        row = turn.scores[j] if turn.scores is not None else ()
        yield {
            **whole,
            "candidate": j + 1,
            "label": result.labels[j] if result.labels else None,
            "place": turn.order.index(j) + 1 if j in turn.order else None,
            "weighted": weighted[j],
            "strengths": write_text(points.strengths) if points else None,
            "weaknesses": write_text(points.weaknesses) if points else None,
            "instructions": write_text(points.instructions) if points else None,
            **{COMPONENT + name: s for name, s in zip(result.components, row, strict=False)},
        }


def write_text(text: str) -> str:
    """Half surrogate pairs, which no file format can hold, are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _write_lines(result: DebateResult, target: IO[bytes], turns: bool) -> None:
    lines = (json.dumps(row) for row in turn_rows(result)) if turns else (result.to_json(),)
    for line in lines:
        _write_line(line, target)


def _write_line(line: str, target: IO[bytes]) -> None:
    target.write(line.encode() + b"\n")


def _write_csv(rows: Iterable[Row], columns: Mapping[str, type], target: IO[bytes]) -> None:
    text = io.TextIOWrapper(target, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_csv_cell(row.get(name)) for name in columns])
    finally:
        text.detach()


def _csv_cell(value: Any) -> Any:
    """A spreadsheet must not take a text for a formula; numbers stay what they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise SettingsError(
            'Parquet files need pyarrow: pip install "textevolve[parquet]"'
        ) from None


def _write_parquet(rows: Iterator[Row], columns: Mapping[str, type], target: IO[bytes]) -> None:
    pa, parquet = _import_pyarrow()
    kinds: dict[type, Any] = {
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        str: pa.string(),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(_complete(batch, columns), schema=schema))


def _complete(rows: Sequence[Row], columns: Mapping[str, type]) -> list[Row]:
    return [{name: row.get(name) for name in columns} for row in rows]
