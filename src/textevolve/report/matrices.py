"""What the renderers of a matrix share: an entry in a word, the first of any number of rows, and
what can be opened of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from textevolve.report.blocks import Entry, Matrix, MatrixRow, Section
from textevolve.report.wording import DASH, number, shorten


def main_score(entry: Entry | None) -> float | None:
    """The first of its scores, by which rows are sorted and coloured."""
    return None if entry is None else next(iter(entry.scores.values()), None)


def say_entry(entry: Entry | None) -> str:
    """`0.71 pass`, `failed`, or a dash where there is nothing."""
    if entry is None:
        return DASH
    if entry.failure and main_score(entry) is None:
        return "failed"
    verdict = {True: " pass", False: " fail", None: ""}[entry.passed]
    return f"{number(main_score(entry))}{verdict}"


def take_first(rows: Iterable[MatrixRow], most: int) -> tuple[Sequence[MatrixRow], int]:
    """So many rows, and the number of those after them, of which none is held."""
    rows = iter(rows)
    return list(islice(rows, most)), sum(1 for _ in rows)


def find_details(row: MatrixRow, matrix: Matrix) -> Iterator[tuple[int | None, Section]]:
    """What can be opened of a row as a whole (None) and of its entries, by the variant's number."""
    if row.details:
        title = f"{row.id}: {shorten(row.input, 90)}"
        yield None, Section(title, row.details, row.facts, folded=True)
    for n, entry in enumerate(row.entries):
        if entry is not None and entry.details:
            title = f"{row.id}, {matrix.variants[n]}"
            yield n, Section(title, entry.details, entry.facts, folded=True)
