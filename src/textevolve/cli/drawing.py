"""The pieces that tables and displays are drawn with.

What a model, a user or a file wrote is always put into a `Text`, with control characters written
out, so that neither markup nor escape sequences in it are obeyed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from textevolve.cli import process
from textevolve.export import wording

AGENT_STYLES = ("cyan", "magenta", "blue", "yellow", "green", "red")
GAP = 3


class _Console(Console):
    """Rich ends with SystemExit where nobody reads, which would end a thread's event loop."""

    def on_broken_pipe(self) -> None:
        process.lose_reader(sys.stderr if self.stderr else sys.stdout)


def open_console(*, stderr: bool = False) -> Console:
    """The terminal to draw on. What its encoding cannot express is written out, not refused."""
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return _Console(stderr=stderr, highlight=False, emoji=False, markup=False, soft_wrap=False)


def safe(text: str, style: str = "") -> Text:
    """A text from outside, ready to be drawn."""
    return Text(wording.visible(text), style)


def agent_style(agent: int) -> str:
    return AGENT_STYLES[agent % len(AGENT_STYLES)]


def score_style(score: float) -> str:
    """A colour for a score from 0 to 10; the terminal's own, so that light and dark both do."""
    if not math.isfinite(score):
        return "dim"
    return "red" if score < 4 else "yellow" if score < 6.5 else "green"


def score_cell(score: float | None, digits: int = 1) -> Text:
    value = math.nan if score is None else score
    return Text(wording.figure(value, digits), score_style(value))


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cells: Sequence[Text]

    @property
    def width(self) -> int:
        return max([cell_len(self.title), *(cell.cell_len for cell in self.cells)])


def draw_columns(labels: Sequence[Text], columns: Sequence[Column], width: int) -> Table:
    """A table with the labels first, which get what room the figures leave."""
    room = width - sum(c.width + GAP for c in columns)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=max(room, 4))
    for column in columns:
        title = Text(column.title)
        table.add_column(title, justify="right", no_wrap=True, min_width=column.width)
    for row, label in enumerate(labels):
        table.add_row(label, *(c.cells[row] for c in columns))
    return table


def fit_columns(
    labels: Sequence[Text], groups: Sequence[Sequence[Column]], width: int, label_room: int
) -> RenderableType:
    """The groups of columns side by side where the width allows it, else one below the other, and
    a group that is too wide by itself in pieces."""
    everything = [column for group in groups for column in group]
    if _width(everything) + label_room <= width:
        return draw_columns(labels, everything, width)
    tables: list[RenderableType] = []
    for group in groups:
        rest = list(group)
        while rest:
            number = 1
            while number < len(rest) and _width(rest[: number + 1]) + label_room <= width:
                number += 1
            tables += ["", draw_columns(labels, rest[:number], width)]
            rest = rest[number:]
    return Group(*tables[1:])


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in columns)


def draw_facts(facts: Iterable[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(safe(name), value)
    return grid
