"""What the renderers of a matrix share: an entry in a word, and the first of any number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from textevolve.report.blocks import Entry, MatrixRow
from textevolve.report.wording import DASH, number


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
