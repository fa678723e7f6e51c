"""JSON from outside in which half a surrogate pair is escaped, which no text can have."""

import pytest

from textevolve.bench.items import load_items
from textevolve.rows import mend_halves, read_rows
from textevolve.runs.intake import read_cases

HALF, PAIR = r"\ud800", r"\ud83d\ude00"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", f'{{"a": "1"}}\n{{"a": "x {HALF} {PAIR}"}}\n{{"a": "{HALF}"}}\n'),
        ("a.json", f'[{{"a": "1"}}, {{"a": "x {HALF} {PAIR}"}}, {{"a": "{HALF}"}}]'),
        ("a.csv", f'a\n1\n"""x {HALF} {PAIR}"""\n"""{HALF}"""\n'),
    ],
)
def test_it_is_replaced_and_said_once_for_a_file(tmp_path, caplog, name, text):
    path = tmp_path / name
    path.write_text(text)
    rows = [row["a"] for _, row in read_rows(str(path), "row", lambda _: False)]
    assert rows[1:] == ["x \ufffd \U0001f600", "\ufffd"]
    (said,) = caplog.messages
    assert name in said
    assert "read as U+FFFD" in said


def test_cases_and_labelled_items_are_kept(tmp_path, caplog):
    path = tmp_path / "cases.jsonl"
    path.write_text(f'{{"input": "Why?", "candidates": ["a {HALF}", "b"], "winner": 1}}\n')
    (case,) = read_cases(str(path))
    assert case.candidates == ("a \ufffd", "b")
    (item,) = load_items(path)
    assert item.candidates == case.candidates
    assert all("cases.jsonl:1: half a surrogate pair" in said for said in caplog.messages)


def test_a_backslash_that_is_itself_escaped_begins_no_escape():
    given = r'{"a": "\\ud800 \" \\\\ud800 \n"}'
    assert mend_halves(given) == (given, False)
    assert mend_halves(r'"\\\ud800"') == (r'"\\\ufffd"', True)
    assert mend_halves(r'"\ud800\ud83d\ude00"') == (r'"\ufffd\ud83d\ude00"', True)
