"""Reports of any size: sections are taken one by one, once, and let go."""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from textevolve.report.blocks import Block, Column, Entry, Matrix, MatrixRow, Report, Section, Table
from textevolve.report.html import html_fragment, write_html
from textevolve.report.markdown import write_markdown
from textevolve.report.terminal import MATRIX_ROWS, print_report


class Rows(list[list[str]]):
    """Rows of which it can be told whether anybody still holds them."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Nowhere(io.RawIOBase):
    def write(self, data: object) -> int:  # type: ignore[override]
        return 0


def print_all(report: Report) -> None:
    print_report(report, Console(file=io.StringIO(), width=80))


WRITERS: dict[str, Callable[[Report], object]] = {
    "html": lambda report: write_html(report, Nowhere()),  # type: ignore[arg-type]
    "fragment": html_fragment,
    "markdown": lambda report: write_markdown(report, Nowhere()),  # type: ignore[arg-type]
    "terminal": print_all,
}


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "fragment"])
def test_memory_holds_a_few_sections_of_many(name: str) -> None:
    alive: weakref.WeakSet[Rows] = weakref.WeakSet()
    most = drawn = 0

    def tables(rows: Rows) -> Iterator[Block]:
        nonlocal drawn
        drawn += 1
        yield Table("", [Column("a")], rows)

    def sections() -> Iterator[Block]:
        nonlocal most
        for n in range(100):
            rows = Rows([["x"]])
            alive.add(rows)
            most = max(most, len(alive))
            yield Section(str(n), tables(rows))

    WRITERS[name](Report("t", "", sections()))
    assert most <= 4
    assert drawn == 100


@pytest.mark.parametrize("name", WRITERS)
def test_memory_holds_a_few_rows_of_a_matrix_of_many(name: str) -> None:
    alive: weakref.WeakSet[Rows] = weakref.WeakSet()
    most = 0

    def rows() -> Iterator[MatrixRow]:
        nonlocal most
        for n in range(500):
            rows = Rows([["x"]])
            alive.add(rows)
            most = max(most, len(alive))
            yield MatrixRow(str(n), "", [Entry("x", details=[Table("", [Column("a")], rows)])])

    WRITERS[name](Report("t", "", [Matrix("", ["one"], rows())]))
    assert most <= {"terminal": MATRIX_ROWS + 2, "markdown": 202}.get(name, 4)
