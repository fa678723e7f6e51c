"""A spreadsheet or a data frame wrote the table: with its separator, a title, empty rows, quotes.

The right rows are those that the program shows.
"""

import pytest

from textevolve.errors import InputError
from textevolve.rows import read_rows
from textevolve.rows.columns import is_text_column


def read(tmp_path, text, name="rows.csv"):
    file = tmp_path / name
    file.write_text(text, newline="")
    return [
        (where.rpartition(":")[2], *row.values())
        for where, row in read_rows(str(file), "case", is_text_column)
    ]


FIRST_LINES = {
    "sep=;\ninput;output\nSay a;b": [("3", "Say a", "b")],
    '"sep=;"\r\ninput;output\r\nSay a, b;c\r\n': [("3", "Say a, b", "c")],
    "SEP=,\ninput,output\nSay a;b": [("3", "Say a;b")],
    "sep=|\ninput|output\nSay a|b": [("3", "Say a", "b")],
    "\n\ninput,output\nSay a,b": [("4", "Say a", "b")],
    "Tickets of May\ninput,output\nSay a,b": [("3", "Say a", "b")],
    "Tickets of May,\n,\ninput,output\nSay a,b": [("4", "Say a", "b")],
    "Tickets of May\n\nfrage;antwort\nWer, wann?;b": [("4", "Wer, wann?", "b")],
    # A table with one column has no title.
    "input\nSay a\nSay b": [("2", "Say a"), ("3", "Say b")],
}


@pytest.mark.parametrize("text", FIRST_LINES)
def test_lines_before_the_header(tmp_path, text):
    assert read(tmp_path, text) == FIRST_LINES[text]


def test_titles_are_said(tmp_path, caplog):
    read(tmp_path, "Tickets of May\ninput,output\nSay a,b")
    assert "'Tickets of May' is read as a title" in caplog.text


def test_texts_are_no_titles(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv:2: more cells than the header has columns"):
        read(tmp_path, "question\nWhat, when?\nWho, where?")


@pytest.mark.parametrize("end", ["", ",\n,,\n", ",\n ,\n\n,\n"])
def test_empty_last_rows_are_none(tmp_path, end):
    assert read(tmp_path, f"input,output\na,b\n,\nc,d\n{end}") == [
        ("2", "a", "b"),
        ("3",),
        ("4", "c", "d"),
    ]


def test_empty_cells_beyond_the_header(tmp_path):
    assert read(tmp_path, "input,output\na,b,,\n") == [("2", "a", "b")]


BARE_QUOTES = 'input\toutput\n"Oh, he said\tb\nc\td\ne\t"f\n'


def test_bare_quotes_swallow_nothing(tmp_path, caplog):
    rows = [("2", '"Oh, he said', "b"), ("3", "c", "d"), ("4", "e", '"f')]
    assert read(tmp_path, BARE_QUOTES, "rows.tsv") == rows
    assert "read without quoting, since the quotes of line 2" in caplog.text


def test_words_in_quotes_stay(tmp_path):
    text = 'input\toutput\n"Oh" he said\tb\nc\td\n'
    assert read(tmp_path, text, "rows.tsv") == [("2", '"Oh" he said', "b"), ("3", "c", "d")]


def test_closed_quotes_enclose_cells(tmp_path):
    text = 'input\toutput\n"one\ttab"\t"two\nlines"\n"a ""b"""\td\n'
    assert read(tmp_path, text, "rows.tsv") == [
        ("3", "one\ttab", "two\nlines"),
        ("4", 'a "b"', "d"),
    ]


def test_broken_quotes_name_their_line(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv:3: not valid CSV: ',' expected after"):
        read(tmp_path, 'input,output\na,b\n"c" d,e\nf,g\n')


WHOLE = "id,input,output,reference\n1.0,a,3,3.0\n2.0,b,4,\n3.0,c,5,5.0\n"


def test_floats_of_missing_values(tmp_path):
    assert read(tmp_path, WHOLE) == [
        ("2", "1", "a", "3", "3"),
        ("3", "2", "b", "4"),
        ("4", "3", "c", "5", "5"),
    ]


def test_decimals_as_written_stay(tmp_path):
    # Other texts of the table have such numbers, too: somebody writes them so.
    text = "input,output,reference\na,4.0,4.0\nb,about 3.5,3.0\n"
    assert read(tmp_path, text) == [("2", "a", "4.0", "4.0"), ("3", "b", "about 3.5", "3.0")]


def test_columns_of_decimals_agree(tmp_path):
    # In a column of numbers 4.0 is the number 4, whatever the other numbers are.
    text = "input,output,reference\na,4.0,4.0\nb,3.5,3.0\n"
    assert read(tmp_path, text) == [("2", "a", "4", "4"), ("3", "b", "3.5", "3")]


def test_broken_quotes_beside_floats(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv:4: a quote opens in this row"):
        read(tmp_path, 'id,output\n1.0,b\n2.0,c\n3.0,"d\n4.0,e\n')
