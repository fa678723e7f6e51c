"""Tables and charts in the terminal, each as wide as there is room for.

A table that is too wide is split into several, each with its labels again. Charts are lines of
characters.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from textevolve.report import blocks, cells, charts, matrices, wording
from textevolve.report.blocks import Column, Estimate
from textevolve.report.charts import Bar, find_ends, place

SPARKS = "▁▂▃▄▅▆▇█"
PLAIN_SPARKS = "_.-=+*#@"


def _cell_of_plot(percentage: float, width: int) -> int:
    return min(width - 1, max(0, round(percentage / 100 * (width - 1))))


def plot_interval(estimate: Estimate, low: float, high: float, width: int) -> str:
    """`  |--o--|  ` on an axis of so many characters; blank where there is no figure."""
    middle = place(estimate.value, low, high)
    if middle is None:
        return " " * width
    line = [" "] * width
    ends = [place(end, low, high) for end in (estimate.low, estimate.high)]
    places = [_cell_of_plot(middle if end is None else end, width) for end in ends]
    for n in range(min(places), max(places) + 1):
        line[n] = "-"
    for end, cell in zip(ends, places, strict=True):
        if end is not None:
            line[cell] = "|"
    line[_cell_of_plot(middle, width)] = "o"
    return "".join(line)


def plot_axis(low: str, high: str, width: int) -> str:
    """The ends of an axis, each below its end."""
    return low + high.rjust(max(width - len(low), len(high) + 1))


def plot_bar(bar: Bar, limit: float | None, width: int, *, plain: bool) -> str:
    """A bar of characters; a limit is a stroke across it, or beyond its end."""
    line = [" "] * width
    if bar.width is not None:
        start, end = (round(at / 100 * width) for at in (bar.start, bar.start + bar.width))
        # What is not nothing shows, however small it is.
        end = max(end, start + 1) if bar.width else end
        line[start:end] = ["#" if plain else "█"] * (min(end, width) - start)
    if limit is not None:
        line[_cell_of_plot(limit, width)] = "|" if plain else "┆"
    return "".join(line)


def plot_line(values: Sequence[float], width: int, *, plain: bool) -> str:
    """A row of marks, the higher the value the higher; many values are averaged."""
    known = [value for value in values if math.isfinite(value)]
    low, high = find_ends(known)
    size = min(width, len(known))
    bounds = [round(n * len(known) / size) for n in range(size + 1)] if size else []
    marks = PLAIN_SPARKS if plain else SPARKS
    found = ""
    for a, b in pairwise(bounds):
        share = (sum(known[a:b]) / (b - a) - low) / (high - low)
        found += marks[min(len(marks) - 1, int(share * len(marks)))]
    return found


ROWS_SHOWN = 60
MATRIX_ROWS = 20
POINTS_SHOWN = 12
TEXT_SHOWN = 4000
CELL_SHOWN = 200
GAP = 3
LEAST_LABEL, LEAST_TEXT, MOST_TEXT, MOST_WORD = 16, 22, 44, 14
# Ink and ground are both given, so that a cell is readable on a light and on a dark terminal.
HEAT = (
    *("#1b2530", "#1f2e3e", "#23384d", "#28445f", "#2e5274", "#36638d"),
    *("#5a92c4", "#73a8d6", "#8dbde6", "#a9d1f3", "#c7e3fb"),
)
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
        yield fit_columns(columns[0], [columns[1:]], console)
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
    yield fit_columns(label, [columns], console)
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


def fit_columns(label: Drawn, groups: Sequence[Sequence[Drawn]], console: Console) -> Group:
    """The columns beside their label where the width allows it, else in as many tables as it takes,
    each with the label; a group of columns stays together where it can."""
    wanted = min(label.room, max(LEAST_LABEL, console.width // 3))
    room = max(1, console.width - wanted)
    sets: list[list[Drawn]] = [[]]
    whole = [column for group in groups for column in group]
    narrow = _narrow(whole, room)
    for group in [narrow] if _width(narrow) <= room else groups:
        if sets[-1] and _width([*sets[-1], *group]) > room:
            sets.append([])
        for column in group:
            if sets[-1] and _width([*sets[-1], column]) > room:
                sets.append([])
            sets[-1].append(column)
    tables: list[RenderableType] = []
    for columns in sets:
        tables += ["", _draw_columns(label, columns, console)]
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
    figures = [cells.cell_parts(estimate, chart.format) for _, estimate in chart.rows]
    said = [f"{value} {ends}".rstrip() for value, ends in figures]
    low, high = (cells.cell_parts(end, chart.format)[0] for end in (chart.low, chart.high))

    def line(n: int, room: int) -> str:
        return plot_interval(chart.rows[n][1], chart.low, chart.high, room)

    names = [name for name, _ in chart.rows]
    yield _draw_strips(names, said, line, width, lambda room: plot_axis(low, high, room))


def draw_bars(chart: blocks.BarChart, width: int, *, plain: bool) -> Iterator[RenderableType]:
    bars = charts.draw_bars(chart)

    def line(n: int, room: int) -> str:
        return plot_bar(bars.rows[n], bars.limit, room, plain=plain)

    names, said = [bar.label for bar in bars.rows], [bar.said for bar in bars.rows]
    yield _draw_strips(names, said, line, width)
    if bars.limit is not None:
        yield safe(f"{'|' if plain else '┆'} {bars.limit_label}", "dim")


def _draw_strips(
    names: Sequence[str],
    said: Sequence[str],
    line: Callable[[int, int], str],
    width: int,
    axis: Callable[[int], str] | None = None,
) -> Grid:
    """A row for each name: what it is called, its line of characters, its figure."""
    labels = [wording.shorten(name, max(10, width // 3)) for name in names]
    label_room = max(map(cell_len, labels), default=0)
    said_room = max(map(cell_len, said), default=0)
    room = max(10, min(80, width - label_room - said_room - 4))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="blue")
    grid.add_column(no_wrap=True)
    for n, label in enumerate(labels):
        value = Text(said[n], "dim" if said[n] == wording.DASH else "")
        grid.add_row(Text(label), Text(line(n, room)), value)
    if axis is not None:
        grid.add_row("", Text(axis(room), "dim"), "")
    return grid


def draw_lines(chart: blocks.LineChart, console: Console) -> Iterator[RenderableType]:
    known = {name: charts.finite_points(points) for name, points in chart.lines.items()}
    places = sorted({x for points in known.values() for x, _ in points})
    names = [Text(wording.shorten(name, 40)) for name in known]
    label = drawn(chart.x_label, names, right=False)
    if len(places) <= POINTS_SHOWN:
        columns = [_values_at(x, list(known.values())) for x in places]
    else:
        columns = _summaries(list(known.values()), console)
    yield fit_columns(label, [columns], console)
    if chart.y_label:
        yield safe(f"Values: {chart.y_label}", "dim")


def _values_at(x: float, lines: Sequence[Sequence[tuple[float, float]]]) -> Drawn:
    values = [dict(points).get(x) for points in lines]
    return drawn(f"{x:g}", [Text(wording.number(value)) for value in values])


def _summaries(lines: Sequence[Sequence[tuple[float, float]]], console: Console) -> Sequence[Drawn]:
    """A line of marks for each, from its first point to its last, and the figures that say most."""
    ys = [[y for _, y in points] for points in lines]
    plain, width = is_plain(console), max(10, min(60, console.width - 60))
    sparks = [Text(plot_line(y, width, plain=plain), "blue") for y in ys]
    figures: dict[str, list[float | None]] = {
        "first": [y[0] if y else None for y in ys],
        "last": [y[-1] if y else None for y in ys],
        "least": [min(y, default=None) for y in ys],
        "most": [max(y, default=None) for y in ys],
    }
    found = [Drawn(Text(""), sparks, max((s.cell_len for s in sparks), default=0), right=False)]
    for name, values in figures.items():
        found.append(drawn(name, [Text(wording.number(value)) for value in values]))
    return found


def draw_heat_map(chart: blocks.HeatMap, console: Console) -> RenderableType:
    columns: list[Drawn] = []
    for n, name in enumerate(chart.columns):
        found = [_heat_cell(row[n], chart.low, chart.high) for row in chart.values]
        columns.append(drawn(wording.shorten(name, 20), found))
    runs = charts.starts(chart.column_groups, len(columns)) or [(0, "", len(columns))]
    groups: list[list[Drawn]] = []
    for at, name, size in runs:
        head = wording.shorten(name, 20)
        first, *rest = columns[at : at + size]
        named = drawn(f"{head}\n{first.title.plain}", first.cells) if head else first
        groups.append([named, *rest])
    groups.append(columns[sum(size for _, _, size in runs) :])
    labels = _row_labels(chart)
    return fit_columns(drawn("", labels, right=False), groups, console)


def _row_labels(chart: blocks.HeatMap) -> list[Text]:
    """Each row's name, after that of its group where one begins."""
    heads = {at: wording.shorten(name, 14) for at, name, _ in charts.starts(chart.row_groups, 9999)}
    room = max(map(cell_len, heads.values()), default=-2) + 2
    labels: list[Text] = []
    for n, name in enumerate(chart.rows):
        head = Text(heads.get(n, ""), "dim")
        head.pad_right(max(0, room - head.cell_len))
        labels.append(head.append(wording.shorten(name, 24), "not dim"))
    return labels


def _heat_cell(value: float | None, low: float, high: float) -> Text:
    said = cells.cell_parts(value, "score")[0]
    shade = cells.shade(value, low, high)
    if shade is None:
        return Text(f" {said} ", "dim")
    ink = "#ffffff" if shade < 6 else "#0d1a27"
    return Text(f" {said} ", f"{ink} on {HEAT[shade]}")
