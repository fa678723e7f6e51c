"""Files row by row: what is wrong with one is named with its line."""

import pytest

from textevolve.errors import InputError
from textevolve.rows import read_rows


def read(tmp_path, text):
    file = tmp_path / "rows.csv"
    file.write_text(text, newline="")
    rows = read_rows(str(file), "row", lambda _: True)
    return [(where.split(":")[-1], row) for where, row in rows]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    ("lines", "opened"),
    [
        (["a,b", 'x,"open', "y,z"], 2),
        (["a,b", "x,y", '"two', 'lines",y', 'x,"open ""still""', "y,z", "", "w,v"], 5),
        (["a,b", '"two', 'lines","open'], 3),
        (['a,"b', "x,y"], 1),
        (["a,b", 'x,"'], 2),
    ],
)
def test_a_quote_that_is_never_closed_is_named_with_its_line(tmp_path, lines, opened, end, newline):
    with pytest.raises(InputError, match=rf"rows.csv:{opened}: a quote opens in this line and is"):
        read(tmp_path, newline.join(lines) + end)


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
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
