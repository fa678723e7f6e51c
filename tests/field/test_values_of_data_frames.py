"""A data frame hands over its rows: whole numbers as floats, arrays, missing values, printed lists.

The right values are those that the frame was made of.
"""

import json
from datetime import date

import numpy as np
import pytest

from textevolve.rows import clean_row
from textevolve.rows.cases import RowReading, take_cases
from textevolve.rows.columns import join_passages, list_answers
from textevolve.studies.rows import read_cases

ROW = {"input": "Why?", "output": "So."}


class NAType:
    """Stands for the missing value of pandas, whose truth value is an error."""

    def __bool__(self):
        raise TypeError


VALUES = [
    (3.0, 3),
    (3.5, 3.5),
    (float("nan"), None),
    (NAType(), None),
    (np.float64("nan"), None),
    (np.float64(3.0), 3),
    (np.int64(3), 3),
    (np.array(["a", "b"]), ["a", "b"]),
    (("a", "b"), ("a", "b")),
    (1e22, 1e22),
    ("3.0", "3.0"),
    (True, True),
    (date(2026, 1, 1), date(2026, 1, 1)),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_values_are_plain(value, expected):
    cleaned = clean_row({"x": value})["x"]
    assert cleaned == expected
    assert type(cleaned) is type(expected)


def test_negative_zero_stays():
    assert str(clean_row({"x": -0.0})["x"]) == "-0.0"


def test_rows_of_programs_are_clean():
    row = {**ROW, "id": 7.0, "reference": np.array([3.0, 4.0]), "context": np.array(["a", "b"])}
    (case,) = take_cases([row])
    assert (case.id, case.context) == ("7", "a\n\nb")
    assert list_answers(case.reference) == ("3", "4")


def test_paths_open_rows_of_programs():
    row = {"q": {"text": "Why?"}, "a": ["So."]}
    (case,) = take_cases([row], reading=RowReading({"input": "q.text", "output": "a.0"}))
    assert (case.input, case.candidates) == ("Why?", ("So.",))


@pytest.mark.parametrize("row_id", [None, float("nan")])
def test_missing_ids_are_numbers(tmp_path, row_id):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({**ROW, "id": row_id}) + "\n" for _ in range(2)))
    assert [case.id for case in read_cases(str(file))] == ["1", "2"]


def test_null_ids_name_no_row(cli, home):
    (home / "rows.jsonl").write_text('{"id": null, "said": "a", "right": "a"}\n' * 2)
    options = ("--outputs", "said", "--label", "right", "--metric", "exact", "-o", "out.jsonl")
    assert cli("compare", "--data", "rows.jsonl", *options).code == 0
    lines = (home / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == ["1", "2"]


CONTEXTS = {
    "[]": "",
    "['One.', 'Two.']": "One.\n\nTwo.",
    '["One.", "Two."]': "One.\n\nTwo.",
    "[One], two": "[One], two",
    "[1, 2]": "[1, 2]",
    '["It\'s one."]': "It's one.",
    '["One.\\n\\nStill one."]': "One.\nStill one.",
    "": "",
}


@pytest.mark.parametrize("cell", CONTEXTS)
def test_cells_have_passages(cell):
    assert join_passages(cell) == CONTEXTS[cell]
