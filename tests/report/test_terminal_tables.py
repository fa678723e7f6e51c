"""Tables and sections as they stand in a terminal of 80 columns."""

import io

from rich.console import Console

from textevolve.report.blocks import Column, Estimate, Note, Report, Section, Table
from textevolve.report.terminal import print_report


def draw(*blocks):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_report(Report("Title", "", blocks), console)
    return console.file.getvalue()


def test_the_last_column_of_a_full_table_is_not_cut():
    columns = [Column("")]
    columns += [Column(name, "number", 3) for name in ("all", "valid")] + [Column("of", "count")]
    one = Estimate(0.5, 0.25, 0.75)
    shown = draw(Table("T", columns, [("a label that is much too long " * 2, one, one, 1234)]))
    assert "1,234" in shown
    assert shown.count("0.500 [0.250, 0.750]") == 2
    assert max(map(len, shown.splitlines())) <= 80


def test_a_folded_section_is_counted():
    shown = draw(Section("Open", [Note("seen")]), Section("Closed", [Note("hidden")], folded=True))
    assert "seen" in shown
    assert "1 more section not shown here" in shown
    assert "hidden" not in shown
