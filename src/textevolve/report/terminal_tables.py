"""Tables in the terminal. If a table is wider than the terminal, its rows are drawn one below the
other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from textevolve.report import blocks, cells, wording
from textevolve.report.blocks import Column

ROWS_SHOWN = 60
TEXT_SHOWN = 4000
CELL_SHOWN = 200
GAP = 3
LEAST_TEXT, MOST_TEXT = 22, 44
HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def safe(text: str, style: str = "", most: int = TEXT_SHOWN) -> Text:
    """Return a text from outside for the terminal, shortened and with control characters
    replaced."""
    return Text(wording.visible(wording.clip(text, most)), style, overflow="fold")


def draw_facts(facts: Iterable[tuple[str, str | Text]]) -> Grid:
    """Draw names and values in two columns; a value of the type `Text` keeps its style."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", max_width=24, overflow="fold")
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(safe(name), safe(value) if isinstance(value, str) else value)
    return grid


def draw_table(table: blocks.Table, console: Console) -> Iterator[RenderableType]:
    rows, heads = table.rows[:ROWS_SHOWN], table.heads
    if not rows or not heads:
        yield Text("No rows.", "dim")
    else:
        drawn = [
            [_cell(cell, column) for cell, column in zip(row, heads, strict=True)] for row in rows
        ]
        for place, row in enumerate(drawn):
            if table.best:
                row[0] = Text.assemble("* " if place in table.best else "  ", row[0])
            if place in table.best:
                row[0].stylize("bold green")
        yield draw_grid(heads, drawn, console)
    if len(table.rows) > len(rows):
        left = wording.count(len(table.rows) - len(rows), "more row")
        yield Text(f"{left} not shown here.", "dim")
    if note := table.remark("*"):
        yield safe(note, "dim")


def _cell(cell: blocks.Cell, column: Column) -> Text:
    value, interval = cells.cell_parts(cell, column.format, column.digits)
    text = Text(wording.shorten(value, CELL_SHOWN))
    if value == wording.DASH:
        text.stylize("dim")
    elif column.format == "score":
        text.stylize(_score_style(cells.shade(cells.score_of(cell), 0.0, column.most)))
    return text.append(f" {interval}", "dim") if interval else text


def _score_style(shade: int | None) -> str:
    """Return the colour for a score's shade. It is one of the terminal's own colours, which fit
    dark and light themes."""
    if shade is None:
        return ""
    return "red" if shade < 4 else "yellow" if shade < 7 else "green"


def draw_grid(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], console: Console
) -> RenderableType:
    """Draw a table. If the terminal is too narrow, draw each row as its label with its figures
    below."""
    box = HEAD if console.options.ascii_only else SIMPLE_HEAD
    grid = Grid(box=box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="")
    needed = 0
    for n, column in enumerate(columns):
        number = cells.is_number(column)
        widest = max(row[n].cell_len for row in rows)
        room = widest if number else min(widest, LEAST_TEXT)
        words = textwrap.wrap(wording.visible(column.name), max(room, 12))
        room = max([room, *map(cell_len, words)])
        needed += room + GAP
        grid.add_column(
            Text("\n".join(words), "dim"),
            justify="right" if number else "left",
            min_width=room,
            max_width=max(room, MOST_TEXT),
            no_wrap=number,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*row)
    if needed <= console.width + GAP:
        return grid
    names = [wording.visible(column.name) for column in columns]
    parts: list[RenderableType] = []
    for label, *figures in rows:
        named = [pair for pair in zip(names[1:], figures, strict=True) if pair[1]]
        line = Text(" · ").join(Text.assemble((f"{name} ", "dim"), cell) for name, cell in named)
        parts += [label, Padding(line, (0, 0, 0, 2))]
    return Group(*parts)
