"""Rows for other programs: they come back as they went, missing stays missing, memory is flat."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.rows.formats import write_rows
from textevolve.rows.writing import find_columns, flatten, plain

from .conftest import hostile

scalars = st.one_of(*(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), hostile))
names = st.text("abc=-,\"'\n|é", min_size=1, max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
tables = st.lists(st.dictionaries(names, values, max_size=4), max_size=5)


def written(rows: Sequence[Mapping[str, Any]], suffix: str) -> bytes:
    target = io.BytesIO()
    assert write_rows(lambda: iter(rows), target, suffix) == len(rows)
    return target.getvalue()


def read_parquet(data: bytes) -> list[dict[str, Any]]:
    return parquet.read_table(io.BytesIO(data)).to_pylist()  # pyright: ignore


@given(tables)
def test_json_lines_come_back_as_they_went(rows: list[dict[str, Any]]) -> None:
    expected = [plain(row) for row in rows]
    lines = written(rows, ".jsonl").decode().splitlines()
    assert [json.loads(line) for line in lines] == expected


@given(tables)
def test_csv_holds_every_cell(rows: list[dict[str, Any]]) -> None:
    expected = [flatten(row) for row in rows]
    columns = find_columns(rows)
    found = list(csv.reader(io.StringIO(written(rows, ".csv").decode(), newline="")))
    if not columns:
        return
    assert all(name in (c, f"'{c}") for name, c in zip(found[0], columns, strict=True))
    assert len(found) == len(rows) + 1
    for row, cells in zip(expected, found[1:], strict=True):
        for name, cell in zip(columns, cells, strict=True):
            value = row.get(name)
            if isinstance(value, str):
                assert cell in (value, f"'{value}")
                number = re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?\s?%?", cell, re.IGNORECASE)
                assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
            else:
                plain = str(value).lower() if isinstance(value, bool) else str(value)
                assert cell == ("" if value is None else plain)


@given(tables)
def test_parquet_comes_back_as_it_went(rows: list[dict[str, Any]]) -> None:
    expected = [flatten(row) for row in rows]
    columns = find_columns(rows)
    if not columns:
        return
    for row, found in zip(expected, read_parquet(written(rows, ".parquet")), strict=True):
        assert list(found) == list(columns)
        for name, value in found.items():
            want = row.get(name)
            if columns[name] is str and want is not None and not isinstance(want, str):
                want = json.dumps(want)
            assert value == want
            assert value is None or type(value) is columns[name]


def test_types_are_those_that_hold_every_row() -> None:
    rows = [
        {"i": 1, "f": 1, "b": True, "s": "a", "mixed": 1, "none": None, "big": 2**60, "odd": True},
        {"i": None, "f": 0.5, "mixed": "x", "big": 1, "odd": 1},
        {"f": None, "wide": 2**64, "exact": 2**60},
        {"exact": 0.5},
    ]
    kinds = ["int", "float", "bool", "str", "str", "str", "int", "str", "str", "str"]
    names = ["i", "f", "b", "s", "mixed", "none", "big", "odd", "wide", "exact"]
    found = {name: kind.__name__ for name, kind in find_columns(rows).items()}
    assert found == dict(zip(names, kinds, strict=True))
    back = read_parquet(written(rows, ".parquet"))
    assert back[0]["mixed"] == "1"
    assert back[0]["odd"] == "true"
    assert back[2]["exact"] == str(2**60)
    assert back[1]["b"] is None
    assert back[1]["f"] == 0.5


@pytest.mark.parametrize(("suffix", "later"), [(".csv", {"b": 1}), (".parquet", {"b": 1})])
def test_rows_that_change_while_they_are_written_are_noticed(
    suffix: str, later: dict[str, Any]
) -> None:
    answers = iter([[{"a": 1}], [{"a": 1}, later]])
    with pytest.raises(InputError, match="the rows changed"):
        write_rows(lambda: next(answers), io.BytesIO(), suffix)
