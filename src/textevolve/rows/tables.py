"""Rows of tables: CSV files with any of the usual delimiters, and Parquet."""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from textevolve.errors import InputError
from textevolve.reach import allowed_path
from textevolve.rows.content import Placed, import_pyarrow, mend_halves
from textevolve.rows.results import has_outputs

DELIMITERS = ",;\t"
"""The possible delimiters of cells. European spreadsheets write semicolons, since their numbers
contain commas."""

_NUMBER = re.compile(r"[-+]?(\d[\d.,]*|\.\d+)(e[-+]?\d+)?\s?%?", re.IGNORECASE | re.ASCII)
_FORMULA = re.compile(r"'*[-=+@\t\r\n]")
"""The beginning of a text that a spreadsheet may run as a formula, or of one that `defuse` has
changed."""
_EXPORTS: tuple[set[str], ...] = (
    {"status", "reason"},
    {"failure", "seconds"},
    {"failure", "feedback"},
    {"superseded_by"},
    {"labeller"},
    {"human", "output"},
    {"candidate_1", "scores"},
)
"""The columns by which a table that this package exported is recognised: tables of cases, of chains
and refined inputs, of guided answers, of memories, of labels."""

Header = Callable[[Sequence[str]], None]
"""A function that is called with the names of a table's columns, before its rows."""


def defuse(text: str) -> str:
    """Return a text as a cell that no spreadsheet runs as a formula: a leading apostrophe is added
    if it starts like a formula and is no number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _restore(cell: str) -> str:
    """Return the text of a cell without the apostrophe that `defuse` added."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def read_csv(
    file: IO[str], name: str, is_text: Callable[[str], bool], header: Header
) -> Iterator[Placed]:
    """Yield the rows of a CSV file with their positions. The first line has the column names; the
    delimiter is the most frequent of `DELIMITERS` in that line. In files that this package
    exported, the apostrophes that `defuse` added are removed."""
    csv.field_size_limit(sys.maxsize)
    header_line = next(iter(file), "")
    lines = itertools.chain([header_line] if header_line else [], file)
    delimiter = max(DELIMITERS, key=re.sub('"[^"]*"', "", header_line).count)
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
    begins = 1  # the line in which the row begins that is being read
    try:
        columns = list(reader.fieldnames or ())
        restore = _restore if any(map(set(columns).issuperset, _EXPORTS)) else str
        reader.fieldnames = columns = [restore(name) for name in columns]
        double = [column for column in columns if column.strip() and columns.count(column) > 1]
        if not (is_export := has_outputs(columns)) and double:
            raise InputError(f"{name}:1: two columns have the name '{double[0]}'; rename one")
        header(columns)
        begins = reader.line_num + 1
        for row in reader:
            where, begins = f"{name}:{reader.line_num}", reader.line_num + 1
            if None in row:
                raise InputError(f"{where}: more cells than the header has columns")
            filled = {k: restore(v) for k, v in row.items() if v or (v == "" and is_export)}
            yield where, {k: v if is_text(k) else _cell(v) for k, v in filled.items()}
    except csv.Error as error:
        if "unexpected end" not in str(error):
            raise InputError(f"{name}:{reader.line_num}: not valid CSV: {error}") from None
        raise InputError(
            f"{name}:{begins}: a quote opens in this row and is never closed; close it, or double"
            " it where it is part of a text"
        ) from None


def _cell(value: str) -> Any:
    """Return the value of a cell if it is JSON, otherwise its text."""
    try:
        return json.loads(mend_halves(value))
    except (ValueError, RecursionError):
        return value


def read_parquet(path: str, name: str, header: Header) -> Iterator[Placed]:
    """Yield the rows of a Parquet file with their positions; one batch of rows is loaded at a
    time."""
    parquet = import_pyarrow("pyarrow.parquet", f"{name}: reading Parquet")
    counter = itertools.count(1)
    try:
        table: Any = parquet.ParquetFile(allowed_path(path))
        header([str(column) for column in table.schema_arrow.names])
        for batch in table.iter_batches(batch_size=200):
            for row in batch.to_pylist():
                yield f"{name}: row {next(counter)}", row
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # pyarrow's own errors of content are of this kind
        raise InputError(f"{name}: not a Parquet file ({error})") from None
