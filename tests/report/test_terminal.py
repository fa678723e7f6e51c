"""The terminal: every block at every width, and nothing that a text could steer it with."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from rich.cells import cell_len

from textevolve.report.blocks import (
    Branch,
    Column,
    Diff,
    Entry,
    Estimate,
    IntervalChart,
    Matrix,
    MatrixRow,
    Note,
    Report,
    Section,
    Table,
    Transcript,
    Tree,
    Utterance,
)

from .conftest import as_terminal, hostile, make_blocks, report_of


def drawn(*blocks: Any, width: int = 100, **options: Any) -> str:
    return as_terminal(Report("", "", blocks), width, **options)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_every_block_fits_the_width(width: int, colour: bool) -> None:
    options = {"force_terminal": True, "color_system": "truecolor"} if colour else {}
    said = as_terminal(report_of(make_blocks("words here"), "title"), width, **options)
    assert ("\x1b[" in said) == colour
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    assert max(map(cell_len, plain.split("\n"))) <= width
    for word in ("71.0 %", "[62.0, 80.0]", "7.2", "< 0.001", "12,000", "$0.020", "No rows."):
        assert word in plain
    assert "None" not in plain
    assert plain.count("–") >= 8 + 1 + 1


@given(hostile, hostile)
def test_no_text_steers_the_terminal(one: str, two: str) -> None:
    for options in ({}, {"force_terminal": True, "color_system": "truecolor"}):
        said = as_terminal(report_of(make_blocks(one, two), one), 60, **options)
        ours = re.sub(r"\x1b\[[\d;]*m", "", said) if options else said
        # The texts have no letters before such a code that would make it ours: \x1b is written out.
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", ours)
        said.encode()


def test_a_table_that_is_too_wide_is_drawn_row_by_row() -> None:
    columns = [Column("judge"), *(Column(f"figure {n}", "count") for n in range(12))]
    rows = [["the first judge", *range(1000, 1012)], ["another judge", *range(12)]]
    said = drawn(Table("", columns, rows), width=60)
    assert said.count("the first judge") == said.count("another judge") == 1
    for n in range(12):
        assert re.search(rf"^ *figure {n} +1,0{n:02d}$", said, re.MULTILINE)
    assert drawn(Table("", columns, rows), width=200).count("figure 3") == 1


def test_long_tables_and_folded_sections_are_counted() -> None:
    table = Table("", [Column("n")], [[str(n)] for n in range(100)])
    assert "40 more rows not shown here." in drawn(table)
    sections = [Section(f"s{n}", [Note(f"in {n}")], folded=n > 1) for n in range(30)]
    said = drawn(*sections, Note("after"))
    assert "in 1" in said
    assert "in 2" not in said
    assert "after" in said
    assert "28 more sections not shown here" in said


def test_a_chart_is_a_table_of_its_figures() -> None:
    rows = [("a", Estimate(0.5, 0.25, 0.75)), ("b", Estimate(None, 0.1, 0.2))]
    said = drawn(IntervalChart("", rows))
    assert re.search(r"a +0.50 \[0.25, 0.75\]", said)
    assert re.search(r"b +–", said)


def test_differences_are_told_without_colour() -> None:
    before = " ".join(["first", "old words", *(f"word {n}" for n in range(200))])
    said = " ".join(drawn(Diff("", before, before.replace("old", "new"))).split())
    assert "first [-old -]{+new +}words word 0" in said
    assert "unchanged characters …]" in said
    assert "No visible difference." in drawn(Diff("", "a", "a"))


def test_a_deep_tree_and_a_transcript_with_a_failure() -> None:
    root = Branch("0")
    for n in range(1, 500):
        root = Branch(str(n), children=[root])
    assert "\n  └ 498\n" in drawn(Tree("", [root]))
    said = drawn(Transcript("", [Utterance("A", "", failure="timed out"), Utterance("B", "yes")]))
    assert "  timed out" in said
    assert "  yes" in said


def test_a_matrix_is_a_line_for_each_of_the_first_rows() -> None:
    entries = [Entry("a", {"j": 0.9}, True), Entry(failure="no answer"), None]
    rows = (MatrixRow(f"r{n}", "asked", entries) for n in range(10_000))
    shown = as_terminal(Report("", "", [Matrix("", ["one", "two", "three"], rows)]))
    assert len(re.findall(r"r\d+ +0.90 pass +failed +– +asked", shown)) == 20
    assert "9,980 more rows not shown here; a page in HTML has them." in shown
    assert shown.count("\n") < 30
