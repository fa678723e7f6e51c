"""The columns of a data frame are those of the CSV file, as the pages promise, and values of one
column have one type, without which polars makes no frame.

The right columns are those that the csv module reads from the export.
"""

import csv
import sys
from types import SimpleNamespace

import pytest

from textevolve import Client
from textevolve.rows.writing import frame_rows

ROWS = [{"text": "Noon.", "due": "Noon."}, {"text": "Late.", "due": "late"}]


def scorer(output, label):
    """The second row has no score, and a reason that the first one lacks."""
    if label == "late":
        raise ValueError("no tide table")
    return float(output == label)


@pytest.fixture
def client(home):
    return Client(store=str(home / "store.db"))


def exported(client, path):
    client.runs.get("last").export(path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_comparison_has_the_columns_of_its_file(client, home, monkeypatch, package):
    if package == "polars":
        polars = SimpleNamespace(DataFrame=lambda rows, infer_schema_length: rows)
        monkeypatch.setitem(sys.modules, "pandas", None)
        monkeypatch.setitem(sys.modules, "polars", polars)
    compared = client.compare(ROWS, outputs="text", label="due", metric=scorer)
    lines = exported(client, home / "rows.csv")
    for result in (compared, client.runs.get("last")):
        frame = result.to_frame()
        assert len(frame) == 2
        assert list(frame if package == "pandas" else frame[0]) == list(lines[0])
    assert "usage.calls" in lines[0]


def test_judgement_has_the_columns_of_its_file(client, home):
    def brief(case):
        return [len(text) / 10 for text in case.candidates]

    result = client.evaluate("When is high tide?", ["Noon.", "Late."], judge=brief)
    lines = exported(client, home / "rows.csv")
    for shown in (result, result.record):
        assert list(shown.to_frame()) == list(lines[0])


def test_values_of_a_column_have_one_type():
    rows = [{"a": 1, "b": {"c": "x"}}, {"a": 2.5, "b": {"c": [1]}}, {"d": True, "b": {"c": 3}}]
    assert frame_rows(rows) == [
        {"a": 1, "b.c": "x", "d": None},
        {"a": 2.5, "b.c": "[1]", "d": None},
        {"a": None, "b.c": "3", "d": True},
    ]
