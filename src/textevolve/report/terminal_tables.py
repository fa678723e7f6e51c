"""Tables and charts in the terminal, each as wide as there is room for.

A table that is too wide is split into several, each with its labels again. An interval is a line of
characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from textevolve.report import blocks, cells, charts, matrices, wording
from textevolve.report.blocks import Column
from textevolve.report.charts import IntervalMark


def plot_mark(mark: IntervalMark, limit: float | None, width: int) -> str:
    """`  |--o--|  ` on an axis of so many characters, with `:` at a limit; without an interval a
    bar, `=====o`."""

    def cell(percentage: float) -> int:
        return min(width - 1, max(0, round(percentage / 100 * (width - 1))))

    line = [" "] * width
    if mark.middle is not None:
        if mark.low is None and mark.high is None:
            line[: cell(mark.middle)] = "=" * cell(mark.middle)
        ends = [mark.middle if end is None else end for end in (mark.low, mark.high)]
        low, high = (cell(end) for end in ends)
        line[low : high + 1] = "-" * (high + 1 - low)
        for end in (mark.low, mark.high):
            if end is not None:
                line[cell(end)] = "|"
    if limit is not None:
        line[cell(limit)] = ":"
    if mark.middle is not None:
        line[cell(mark.middle)] = "o"
    return "".join(line)


ROWS_SHOWN = 60
MATRIX_ROWS = 20
TEXT_SHOWN = 4000
CELL_SHOWN = 200
GAP = 3
LEAST_LABEL, LEAST_TEXT, MOST_TEXT, MOST_WORD = 16, 22, 44, 14
HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def safe(text: str, style: str = "", most: int = TEXT_SHOWN) -> Text:
    """A text from outside, ready to be drawn."""
    return Text(wording.visible(wording.clip(text, most)), style, overflow="fold")


def is_plain(console: Console) -> bool:
    """Whether only ASCII can be drawn."""
    return console.options.ascii_only


@dataclass(frozen=True, slots=True)
class Drawn:
    """A column with its cells ready; `room` is how wide it has to be."""

    title: Text
    cells: Sequence[Text]
    room: int
    right: bool = True


def draw_table(table: blocks.Table, console: Console) -> Iterator[RenderableType]:
    rows = table.rows[:ROWS_SHOWN]
    if not rows or not table.columns:
        yield Text("No rows.", "dim")
    else:
        columns = [_column(table, n, rows) for n in range(len(table.columns))]
        yield fit_columns(columns[0], columns[1:], console)
    if len(table.rows) > len(rows):
        left = wording.count(len(table.rows) - len(rows), "more row")
        yield Text(f"{left} not shown here.", "dim")
    if table.note:
        yield safe(table.note, "dim")


def draw_matrix(matrix: blocks.Matrix, console: Console) -> Iterator[RenderableType]:
    """A line for each of the first rows: its id, the scores of each variant, what was asked."""
    rows, left = matrices.take_first(matrix.rows, MATRIX_ROWS)
    if not rows:
        yield Text("No rows.", "dim")
        return
    names = [Text(wording.shorten(row.id, 30)) for row in rows]
    columns = [
        drawn(wording.shorten(name, MOST_TEXT), [_entry(row.entries[n]) for row in rows])
        for n, name in enumerate(matrix.variants)
    ]
    label = drawn("", names, right=False)
    room = max(LEAST_TEXT, console.width - label.room - _width(columns) - GAP)
    asked = [_asked(row, room) for row in rows]
    columns.append(Drawn(Text("input", "dim"), asked, room, right=False))
    yield fit_columns(label, columns, console)
    if left:
        said = f"{wording.count(left, 'row')} more: write the report to a page, -o report.html"
        yield Text(said, "dim")


def _asked(row: blocks.MatrixRow, room: int) -> Text:
    """What was asked, or why there is no score at all."""
    found = [entry for entry in row.entries if entry is not None]
    if found and all(e.failure and matrices.main_score(e) is None for e in found):
        return Text(wording.shorten(found[0].failure, room), "red")
    return Text(wording.shorten(row.input, room))


def _entry(entry: blocks.Entry | None) -> Text:
    said = matrices.say_entry(entry)
    if said == wording.DASH:
        return Text(said, "dim")
    if entry is None or entry.passed is not None or said == "failed":
        return Text(said, "green" if entry is not None and entry.passed else "red")
    return Text(said, _score_style(cells.shade(matrices.main_score(entry), 0.0, 1.0)))


def _column(table: blocks.Table, n: int, rows: Sequence[Sequence[blocks.Cell]]) -> Drawn:
    column = table.columns[n]
    found = [_cell(row[n], column) for row in rows]
    if n == 0 and table.best:
        for place, text in enumerate(found):
            best = place in table.best
            found[place] = Text.assemble("* " if best else "  ", text)
    for place in table.best:
        if place < len(found):
            found[place].stylize("bold green" if n == 0 else "bold")
    return drawn(column.name, found, right=cells.is_number(column))


def _cell(cell: blocks.Cell, column: Column) -> Text:
    value, interval = cells.cell_parts(cell, column.format, column.digits)
    text = Text(wording.shorten(value, CELL_SHOWN))
    if value == wording.DASH:
        text.stylize("dim")
    elif column.format == "score":
        text.stylize(_score_style(cells.shade(cells.score_of(cell), 0.0, column.most)))
    return text.append(f" {interval}", "dim") if interval else text


def _score_style(shade: int | None) -> str:
    """The terminal's own colours, so that light and dark both do."""
    if shade is None:
        return ""
    return "red" if shade < 4 else "yellow" if shade < 7 else "green"


def drawn(name: str, found: Sequence[Text], *, right: bool = True) -> Drawn:
    """A column of cells. A long name is broken into lines, a long text cell when it is drawn."""
    widest = max((cell.cell_len for cell in found), default=0)
    widest = widest if right else min(widest, MOST_TEXT)
    lines = [wording.visible(line) for line in name.split("\n")]
    longest = max((cell_len(word) for word in name.split()), default=0)
    room = max(widest, 10, min(longest, MOST_WORD))
    words = [part for line in lines for part in textwrap.wrap(line, room)]
    title = Text("\n".join(words), "dim", justify="right" if right else "left")
    return Drawn(title, found, max([widest, *map(cell_len, words)]), right)


def fit_columns(label: Drawn, columns: Sequence[Drawn], console: Console) -> Group:
    """The columns beside their label where the width allows it, else in as many tables as it takes,
    each with the label."""
    room = max(1, console.width - min(label.room, max(LEAST_LABEL, console.width // 3)))
    narrow = _narrow(columns, room)
    sets: list[list[Drawn]] = [[]]
    for column in narrow if _width(narrow) <= room else columns:
        if sets[-1] and _width([*sets[-1], column]) > room:
            sets.append([])
        sets[-1].append(column)
    tables: list[RenderableType] = []
    for part in sets:
        tables += ["", _draw_columns(label, part, console)]
    return Group(*tables[1:])


def _narrow(columns: Sequence[Drawn], room: int) -> list[Drawn]:
    """The columns with those of texts as narrow as they have to be to stand beside the others."""
    found = list(columns)
    for n, column in enumerate(found):
        over = _width(found) - room
        if over > 0 and not column.right and column.room > LEAST_TEXT:
            found[n] = replace(column, room=max(LEAST_TEXT, column.room - over))
    return found


def _width(columns: Sequence[Drawn]) -> int:
    return sum(column.room + GAP for column in columns)


def _draw_columns(label: Drawn, columns: Sequence[Drawn], console: Console) -> Grid:
    box = HEAD if is_plain(console) else SIMPLE_HEAD
    grid = Grid(box=box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="")
    left = max(4, console.width - _width(columns))
    for n, column in enumerate((label, *columns)):
        room = min(column.room, left) if n == 0 else min(column.room, max(4, console.width - 8))
        grid.add_column(
            column.title,
            justify="right" if column.right else "left",
            min_width=room,
            max_width=room,
            overflow="fold",
        )
    for row in range(len(label.cells)):
        grid.add_row(*(column.cells[row] for column in (label, *columns)))
    return grid


def draw_intervals(chart: blocks.IntervalChart, width: int) -> Iterator[RenderableType]:
    drawn = charts.draw_intervals(chart)
    labels = [wording.shorten(mark.label, max(10, width // 3)) for mark in drawn.rows]
    values = [f"{mark.said} {mark.ends}".rstrip() for mark in drawn.rows]
    taken = sum(max(map(cell_len, texts), default=0) for texts in (labels, values))
    room = max(10, min(80, width - taken - 4))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for style in ("", "blue", ""):
        grid.add_column(no_wrap=True, style=style)
    for mark, label, value in zip(drawn.rows, labels, values, strict=True):
        grid.add_row(Text(label), Text(plot_mark(mark, drawn.limit, room)), Text(value))
    yield grid
    if drawn.limit is not None:
        yield safe(f": {drawn.limit_label}", "dim")
