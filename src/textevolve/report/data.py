"""A report, and the rows of a run, for programs: JSON, JSON lines, CSV, Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import islice
from typing import IO, Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Callable[[], Iterable[Row]]
"""Gives the rows anew each time: columns are found in a first pass."""

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""With one of these a spreadsheet takes a text for a formula."""

ROWS_AT_ONCE = 1000


def plain(value: Any) -> Any:
    """JSON-ready data: dataclasses as objects, and what is no finite number as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [plain(one) for one in cast("Iterable[Any]", value)]
    return str(value)


def write_rows(rows: Rows, target: IO[bytes], suffix: str) -> None:
    """Write rows, which may nest, in the format of the suffix. In CSV and Parquet a nested value
    becomes the column `a.b`, and a list is JSON; what is missing stays missing.

    Raises:
        InputError: there is no such format. SettingsError: Parquet needs a package.
    """
    if suffix == ".jsonl":
        for row in rows():
            target.write(_line(row))
    elif suffix == ".json":
        target.write(b"[")
        for n, row in enumerate(rows()):
            target.write((b",\n" if n else b"\n") + _line(row).rstrip(b"\n"))
        target.write(b"\n]\n")
    elif suffix == ".csv":
        _write_csv(rows, target)
    elif suffix == ".parquet":
        _write_parquet(rows, target)
    else:
        raise InputError(f"rows are written as .jsonl, .json, .csv or .parquet, not '{suffix}'")


def _line(row: Row) -> bytes:
    text = json.dumps(plain(row), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _flat(row: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The cells of a row, each with the name of its column; those without a value are left out."""
    for name, value in row.items():
        column = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flat(cast(Row, value), f"{column}.")
        elif (cell := _cell(value)) is not None:
            yield column, cell


def _cell(value: Any) -> Any:
    ready = plain(value)
    if isinstance(ready, list):
        ready = json.dumps(ready, ensure_ascii=False)
    if isinstance(ready, str):  # half a surrogate pair, which no format can hold, is written out
        return ready.encode("utf-8", "backslashreplace").decode()
    return ready


def _find_columns(rows: Rows) -> dict[str, type]:
    """Every column in the order of its first cell, with the type that holds all of its cells."""
    found: dict[str, type] = {}
    for row in rows():
        for name in _names(row):
            found.setdefault(name, type(None))
        for name, cell in _flat(row):
            found[name] = _wider(found.get(name, type(None)), type(cell))
    return {name: str if kind is type(None) else kind for name, kind in found.items()}


def _names(row: Row, prefix: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _names(cast(Row, value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _wider(one: type, other: type) -> type:
    if one is type(None) or one is other:
        return other
    return float if {one, other} == {int, float} else str


def _write_csv(rows: Rows, target: IO[bytes]) -> None:
    columns = _find_columns(rows)
    text = io.TextIOWrapper(target, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(columns)
        for row in rows():
            cells = dict(_flat(row))
            writer.writerow([_csv_cell(cells.get(name)) for name in columns])
    finally:
        text.detach()


def _csv_cell(value: Any) -> Any:
    """A spreadsheet must not take a text for a formula; numbers stay what they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _write_parquet(rows: Rows, target: IO[bytes]) -> None:
    pa, parquet = _import_pyarrow()
    columns = _find_columns(rows)
    kinds: dict[type, Any] = {
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        str: pa.string(),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    left = iter(rows())
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(left, ROWS_AT_ONCE)):
            cells = [_typed(dict(_flat(row)), columns) for row in batch]
            writer.write_table(pa.Table.from_pylist(cells, schema=schema))


def _typed(cells: Mapping[str, Any], columns: Mapping[str, type]) -> dict[str, Any]:
    return {
        name: None if cells.get(name) is None else kind(cells[name])
        for name, kind in columns.items()
    }


def _import_pyarrow() -> Sequence[Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise SettingsError(
            'Parquet files need pyarrow: pip install "textevolve[parquet]"'
        ) from None
