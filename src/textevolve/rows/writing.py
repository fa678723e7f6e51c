"""Values as plain JSON data, and the rows of a run as tables for other programs.

Rows are mappings of scalars, lists and mappings. JSON has them as they are; in CSV and Parquet a
mapping becomes columns of its own (`usage.tokens`), and a list its JSON. A missing value is an
empty cell or null, never 0. Rows are read one by one, and twice if their columns must be known
first, so that memory does not grow with their number.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import IO, Any, cast

from textevolve.errors import InputError
from textevolve.json_texts import is_array, is_mapping, is_object, write_text
from textevolve.portions import measure, split_portions
from textevolve.rows.spreadsheets import defuse
from textevolve.rows.tables import import_pyarrow

FlatRow = Mapping[str, Any]  # a row before it is flattened: values that JSON can express, by column
RowSource = Callable[[], Iterable[FlatRow]]  # is called for each pass over the rows
RowWriter = Callable[[RowSource, IO[bytes]], int]
"""A function that writes rows to a file, and returns their number."""
Scalar = str | int | float | bool | None

ROWS_AT_ONCE = 2000
EXACT = 2**53
"""The largest whole number up to which all whole numbers are exact as floats."""


def plain(value: Any) -> Any:
    """Convert a value to plain JSON data. Lone surrogates, which no file can contain, are escaped;
    NaN and infinity become None.

    Raises:
        TypeError: the value is of a type that JSON cannot express.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if is_mapping(value):
        return {str(plain(str(name))): plain(inner) for name, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Set):
        return sorted(plain(inner) for inner in cast(Set[Any], value))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(inner) for inner in cast(Sequence[Any], value)]
    raise TypeError(f"a value of the type {type(value).__name__} cannot be written as data")


def write_lines(rows: RowSource, target: IO[bytes]) -> int:
    number = 0
    for row in rows():
        # ASCII: some readers take U+2028 and its like for the end of a line.
        target.write(json.dumps(plain(row)).encode() + b"\n")
        number += 1

    return number


def flatten(row: FlatRow) -> dict[str, Scalar]:
    """Return a row as flat cells: a value within a mapping gets the name `mapping.key`, and lists
    become JSON.

    Raises:
        InputError: two cells would have the same name.
    """
    cells: dict[str, Scalar] = {}
    for name, value in flat_cells(plain(row)):
        if name in cells:
            raise InputError(f"two values of a row are named '{name}'; write the rows as .jsonl")
        cells[name] = value

    return cells


def flat_cells(row: FlatRow, before: str = "") -> Iterator[tuple[str, Scalar]]:
    """Yield the cells of a row as `flatten` does, several of one name, too. `before`: the beginning
    of their names."""
    for name, value in row.items():
        if is_object(value):
            yield from flat_cells(value, f"{before}{name}.")
        else:
            yield before + name, write_text(value) if is_array(value) else value


FlatColumns = dict[str, type]  # the type of each column of a table, in order


def find_columns(rows: Iterable[FlatRow]) -> FlatColumns:
    """Return the columns of all rows in the order of their first appearance, with the type of each:
    `int`, `float` or `bool`; `str` for columns with mixed types, without values, or with integers
    too large for a number column. Integers and floats together make a `float` column."""
    kinds: dict[str, set[type]] = {}
    greatest: dict[str, int] = {}

    for row in rows:
        for name, value in flatten(row).items():
            kinds.setdefault(name, set()).add(type(value))
            if type(value) is int:
                greatest[name] = max(greatest.get(name, 0), abs(value))

    columns: FlatColumns = {}

    for name, column_types in kinds.items():
        types = column_types - {type(None)}
        size = greatest.get(name, 0)
        columns[name] = next(iter(types)) if len(types) == 1 and size < 2**63 else str
        if types == {int, float} and size <= EXACT:
            columns[name] = float

    return columns


def _cells(row: FlatRow, columns: FlatColumns) -> dict[str, Scalar]:
    cells = flatten(row)
    if not cells.keys() <= columns.keys():
        raise InputError("the rows changed while they were written; try again")
    return {name: cells.get(name) for name in columns}


def write_csv(rows: RowSource, target: IO[bytes]) -> int:
    columns = find_columns(rows())
    number = 0
    with _text(target) as text:
        writer = csv.writer(text)
        if columns:
            writer.writerow(list(map(_csv_cell, columns)))
        for row in rows():
            writer.writerow(list(map(_csv_cell, _cells(row, columns).values())))
            number += 1

    return number


@contextmanager
def _text(target: IO[bytes]) -> Generator[IO[str]]:
    text = io.TextIOWrapper(target, encoding="utf-8", newline="", write_through=True)
    try:
        yield text
    finally:
        text.detach()


def _csv_cell(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return "true" if value else "false"
    return defuse(value) if isinstance(value, str) else value


def write_parquet(rows: RowSource, target: IO[bytes]) -> int:
    pa, parquet = (import_pyarrow(m, "writing Parquet") for m in ("pyarrow", "pyarrow.parquet"))
    columns = find_columns(rows())
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    number = 0
    typed = (_typed(row, columns) for row in rows())
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in split_portions(typed, ROWS_AT_ONCE, lambda row: measure(row.values())):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            number += len(batch)

    return number


def frame_rows(rows: Iterable[FlatRow]) -> list[dict[str, Scalar]]:
    """Return the rows for a data frame, with the columns of the CSV file."""
    listed = list(rows)
    columns = find_columns(listed)
    return [_typed(row, columns) for row in listed]


def _typed(row: FlatRow, columns: FlatColumns) -> dict[str, Scalar]:
    """Return a row in which values of a text column that are no texts are written as JSON."""
    cells = _cells(row, columns)
    for name, value in cells.items():
        if columns[name] is str and value is not None and not isinstance(value, str):
            cells[name] = json.dumps(value)
    return cells
