"""Files row by row: what is wrong with one is named with its line, and what can be read is kept."""

import pytest

from textevolve.bench.items import load_items
from textevolve.errors import InputError
from textevolve.rows import mend_halves, read_rows
from textevolve.studies.rows import read_cases

HALF, PAIR = r"\ud800", r"\ud83d\ude00"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", f'{{"a": "1"}}\n{{"a": "x {HALF} {PAIR}"}}\n{{"a": "{HALF}"}}\n'),
        ("a.json", f'[{{"a": "1"}}, {{"a": "x {HALF} {PAIR}"}}, {{"a": "{HALF}"}}]'),
        ("a.csv", f'a\n1\n"""x {HALF} {PAIR}"""\n"""{HALF}"""\n'),
    ],
)
def test_half_a_surrogate_pair_is_replaced(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    rows = [row["a"] for _, row in read_rows(str(path), "row", lambda _: False)]
    assert rows[1:] == ["x \ufffd \U0001f600", "\ufffd"]


def test_cases_and_labelled_items_are_kept(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(f'{{"input": "Why?", "candidates": ["a {HALF}", "b"], "winner": 1}}\n')
    (case,) = read_cases(str(path))
    assert case.candidates == ("a \ufffd", "b")
    (item,) = load_items(path)
    assert item.candidates == case.candidates


@pytest.mark.parametrize(
    "line", ['{"input": "a", "input": "b"}', '{"input": "a", "parameters": {"x": 1, "x": 2}}']
)
def test_a_key_that_is_there_twice_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"input": "q", "candidates": ["a"]}\n' + line)
    with pytest.raises(InputError, match=r"cases\.jsonl:2: the key '(input|x)' is there twice"):
        list(read_rows(str(path), "case", lambda _: True))


def test_a_backslash_that_is_itself_escaped_begins_no_escape():
    given = r'{"a": "\\ud800 \" \\\\ud800 \n"}'
    assert mend_halves(given) == given
    assert mend_halves(r'"\\\ud800"') == r'"\\\ufffd"'
    assert mend_halves(r'"\ud800\ud83d\ude00"') == r'"\ufffd\ud83d\ude00"'


def read(tmp_path, text):
    file = tmp_path / "rows.csv"
    file.write_text(text, newline="")
    rows = read_rows(str(file), "row", lambda _: True)
    return [(where.split(":")[-1], row) for where, row in rows]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("lines", "opened"),
    [
        (["a,b", 'x,"open', "y,z"], 2),
        (["a,b", "x,y", '"two', 'lines",y', 'x,"open ""still""', "y,z", "", "w,v"], 5),
    ],
)
def test_a_quote_that_is_never_closed_is_named_with_its_line(tmp_path, lines, opened, newline):
    with pytest.raises(InputError, match=rf"rows.csv:{opened}: a quote opens in this row and is"):
        read(tmp_path, newline.join(lines) + newline)


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_quotes_that_are_closed_or_part_of_a_text_are_fine(tmp_path, end):
    text = 'a,b\n"x, ""y""\nz",5" pipe\n"",""\n\nlast,"one"'
    assert read(tmp_path, text + end) == [
        ("3", {"a": 'x, "y"\nz', "b": '5" pipe'}),
        ("4", {}),
        ("6", {"a": "last", "b": "one"}),
    ]


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv:1: two columns have the name 'a'"):
        read(tmp_path, "a,b,a\n1,2,3\n")


def test_a_cell_that_is_nested_too_deeply_stays_text(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a\n" + "[" * 100_000 + "\n")
    ((_, row),) = read_rows(str(file), "row", lambda _: False)
    assert row["a"] == "[" * 100_000
