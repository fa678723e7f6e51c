"""A report in the terminal; plain text, without control codes, where it is not one.

What comes from outside is put into a `Text` with control characters written out, so that neither
markup nor escape sequences in it are obeyed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree as RichTree

from textevolve.report import wording
from textevolve.report.blocks import (
    BarChart,
    Block,
    Branch,
    Cell,
    Column,
    Diff,
    HeatMap,
    IntervalChart,
    LineChart,
    Note,
    Report,
    Section,
    Table,
    Texts,
    Tone,
    Transcript,
    Tree,
    Utterance,
)
from textevolve.report.cells import cell_parts, cell_text, is_figure, score_of, shade
from textevolve.report.differences import find_changed_lines

SECTIONS_SHOWN = 10
ROWS_SHOWN = 40
TEXT_SHOWN = 4_000
BRANCH_SHOWN = 160
GAP = 2
LABEL_SHARE = 3
"""A table's label column gets at most one part in so many of the width beside many figures."""

SPARKS = "▁▂▃▄▅▆▇█"
STYLES: dict[Tone, str] = {
    "": "",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "dim": "dim",
    "strong": "bold",
}
LINE_STYLES = {"same": "", "removed": "red", "added": "green", "gap": "dim"}
LINE_MARKS = {"same": "  ", "removed": "- ", "added": "+ ", "gap": "  … "}


def open_console(*, stderr: bool = False) -> Console:
    """The terminal to draw on. What its encoding cannot express is written out, not refused."""
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return Console(stderr=stderr, highlight=False, emoji=False, markup=False, soft_wrap=False)


def safe(text: str, style: str = "") -> Text:
    """A text from outside, ready to be drawn."""
    return Text(wording.visible(text), style)


def print_report(report: Report, console: Console, *, sections: int = SECTIONS_SHOWN) -> None:
    """Draw the report. Sections that a page begins folded away, and those beyond the limit, are
    counted, not drawn."""
    console.print(safe(report.title, "bold"))
    console.print()
    drawn = left_out = 0
    for block in report.blocks:
        if isinstance(block, Section):
            if block.folded or drawn == sections:
                left_out += 1
                continue
            drawn += 1
        for part in draw_block(block, console.width):
            console.print(part)
        console.print()
    if left_out:
        left = wording.count(left_out, "more section")
        console.print(Text(f"{left}: export the run to see all of it", "dim"))
        console.print()
    if report.sentence:
        console.print(safe(report.sentence, "bold"))
        console.print()
    if report.facts:
        console.print(draw_facts((name, safe(said)) for name, said in report.facts.items()))


def draw_facts(facts: Iterable[tuple[str, Text]]) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(safe(name), value)
    return grid


def draw_block(block: Block, width: int) -> Iterator[RenderableType]:
    """One block, for a display of its own."""
    title = getattr(block, "title", "")
    if isinstance(block, Section):
        yield Rule(safe(title, "bold"), style="dim", align="left")
        if block.facts:
            yield draw_facts((name, safe(said)) for name, said in block.facts.items())
        for one in block.blocks:
            yield from draw_block(one, width)
        return
    if title:
        yield safe(title, "bold")
    yield from _draw(block, width)


@singledispatch
def _draw(block: Block, width: int) -> Iterator[RenderableType]:
    raise TypeError(f"no block: {block!r}")


@_draw.register
def _(block: Note, width: int) -> Iterator[RenderableType]:
    yield safe(block.text, STYLES[block.tone])


@_draw.register
def _(block: Table, width: int) -> Iterator[RenderableType]:
    rows = block.rows[:ROWS_SHOWN]
    labels = [_label(row[0], block.columns[0], n in block.best) for n, row in enumerate(rows)]
    figures = [
        (column, [_cell(row[n], column) for row in rows])
        for n, column in enumerate(block.columns)
        if n
    ]
    label_width = max([cell_len(block.columns[0].name), *(text.cell_len for text in labels), 1])
    for group in _fit(figures, width, min(label_width, max(16, width // LABEL_SHARE))):
        yield _draw_columns(block.columns[0], labels, group, width)
    if left := len(block.rows) - len(rows):
        yield Text(f"{wording.count(left, 'more row')}: export the run to see them all", "dim")
    if block.note:
        yield safe(block.note, "dim")


def _label(cell: Cell, column: Column, stands_out: bool) -> Text:
    return safe(cell_text(cell, column), "bold green" if stands_out else "")


def _cell(cell: Cell, column: Column) -> Text:
    value, interval = cell_parts(cell, column.format, column.digits)
    style = ""
    if column.format == "score" and (level := shade(score_of(cell), 0.0, column.most)) is not None:
        style = "red" if level < 4 else "yellow" if level < 7 else "green"
    text = safe(value, style)
    if interval:
        text.append(f" {wording.visible(interval)}", "dim")
    return text


def _fit(
    columns: Sequence[tuple[Column, Sequence[Text]]], width: int, label_room: int
) -> Iterator[list[tuple[Column, Sequence[Text]]]]:
    """The columns in groups that fit beside the label, in their order."""
    group: list[tuple[Column, Sequence[Text]]] = []
    used = label_room
    for column, cells in columns:
        wanted = _width(column, cells)
        if group and used + wanted + GAP > width:
            yield group
            group, used = [], label_room
        group.append((column, cells))
        used += wanted + GAP
    if group or not columns:
        yield group


def _width(column: Column, cells: Sequence[Text]) -> int:
    widest = max([cell_len(column.name), *(cell.cell_len for cell in cells)])
    return widest if is_figure(column) else min(widest, 40)


def _draw_columns(
    first: Column,
    labels: Sequence[Text],
    columns: Sequence[tuple[Column, Sequence[Text]]],
    width: int,
) -> RichTable:
    used = sum(_width(*column) + GAP for column in columns)
    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    room = max(width - used - GAP, 8)
    table.add_column(safe(first.name), no_wrap=True, overflow="ellipsis", max_width=room)
    for column, cells in columns:
        figure = is_figure(column)
        table.add_column(
            safe(column.name),
            justify="right" if figure else "left",
            no_wrap=figure,
            min_width=_width(column, cells) if figure else min(cell_len(column.name), 12),
            overflow="fold",
        )
    for n, label in enumerate(labels):
        table.add_row(label, *(cells[n] for _, cells in columns))
    return table


@_draw.register
def _(block: IntervalChart, width: int) -> Iterator[RenderableType]:
    room = max(10, min(60, width - 50))
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(overflow="ellipsis", no_wrap=True, max_width=max(12, width // LABEL_SHARE))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for name, one in block.rows:
        bar = [" "] * room

        def place(value: float) -> int:
            share = (value - block.low) / ((block.high - block.low) or 1.0)
            return min(room - 1, max(0, round(share * (room - 1))))

        if one.low is not None and one.high is not None:
            low, high = place(one.low), place(one.high)
            bar[low : high + 1] = "─" * (high - low + 1)
            bar[low], bar[high] = "├", "┤"
        if one.value is not None:
            bar[place(one.value)] = "●"
        value, interval = cell_parts(one, block.format)
        grid.add_row(safe(name), Text("".join(bar), "cyan"), safe(f"{value} {interval}".strip()))
    yield grid


@_draw.register
def _(block: BarChart, width: int) -> Iterator[RenderableType]:
    known = [value for _, value in block.bars if value is not None]
    highest = max([*known, block.limit or 0.0, 1e-12])
    room = max(10, min(40, width - 40))
    grid = RichTable.grid(padding=(0, 2))
    for name, value in block.bars:
        bar = "█" * round((value or 0.0) / highest * room)
        said = cell_parts(value, block.format)[0]
        grid.add_row(safe(name), Text(bar, "cyan"), safe(said))
    yield grid
    if block.limit is not None:
        yield safe(
            f"{block.limit_label or 'limit'}: {cell_parts(block.limit, block.format)[0]}", "dim"
        )


@_draw.register
def _(block: LineChart, width: int) -> Iterator[RenderableType]:
    grid = RichTable.grid(padding=(0, 2))
    for name, points in block.lines.items():
        values = [y for _, y in points]
        if not values:
            continue
        low, high = min(values), max(values)
        steps = [round((y - low) / ((high - low) or 1.0) * (len(SPARKS) - 1)) for y in values]
        drawn = "".join(SPARKS[step] for step in steps[: max(10, width - 50)])
        ends = f"{wording.figure(values[0], 3)} → {wording.figure(values[-1], 3)}"
        grid.add_row(safe(name), Text(drawn, "cyan"), safe(ends))
    yield grid
    if block.x_label or block.y_label:
        yield safe(f"{block.y_label} by {block.x_label}", "dim")


@_draw.register
def _(block: HeatMap, width: int) -> Iterator[RenderableType]:
    columns = [Column(""), *(Column(name, "score", 1, block.high) for name in _named(block))]
    rows = [(name, *values) for name, values in zip(block.rows, block.values, strict=True)]
    yield from _draw(Table("", columns, rows), width)


def _named(block: HeatMap) -> list[str]:
    """The columns with their groups' names before them."""
    groups = [name for name, number in block.column_groups for _ in range(number)]
    if len(groups) != len(block.columns):
        return list(block.columns)
    return [f"{group} {name}" for group, name in zip(groups, block.columns, strict=True)]


@_draw.register
def _(block: Tree, width: int) -> Iterator[RenderableType]:
    for root in block.roots:
        tree = RichTree(_branch(root), guide_style="dim")
        waiting = [(tree, child) for child in reversed(root.children)]
        while waiting:
            parent, branch = waiting.pop()
            grown = parent.add(_branch(branch))
            waiting += [(grown, child) for child in reversed(branch.children)]
        yield tree


def _branch(branch: Branch) -> Text:
    text = safe(wording.shorten(branch.label, BRANCH_SHOWN), STYLES[branch.tone])
    if branch.note:
        text.append(f"  {wording.shorten(branch.note, BRANCH_SHOWN)}", "dim")
    return text


@_draw.register
def _(block: Diff, width: int) -> Iterator[RenderableType]:
    for line in find_changed_lines(block.before, block.after):
        drawn = Text(LINE_MARKS[line.kind], LINE_STYLES[line.kind])
        for piece in line.pieces:
            changed = line.kind in ("removed", "added") and piece.kind != "same"
            drawn.append(piece.text, "bold underline" if changed else "")
        yield drawn


@_draw.register
def _(block: Transcript, width: int) -> Iterator[RenderableType]:
    for one in block.utterances:
        yield from _utterance(one)


def _utterance(one: Utterance) -> Iterator[RenderableType]:
    title = safe(one.speaker, "bold cyan")
    if one.note:
        title.append(f"  {wording.visible(one.note)}", "dim")
    yield title
    body: list[RenderableType] = []
    if one.failure:
        body.append(safe(one.failure, "red"))
    if one.text:
        body.append(safe(wording.clip(one.text, TEXT_SHOWN)))
    body += [safe(f"{name}: {said}" if name else said, "dim") for name, said in one.points]
    yield Padding(Group(*body), (0, 0, 0, 2))


@_draw.register
def _(block: Texts, width: int) -> Iterator[RenderableType]:
    for name, text in block.texts:
        if name:
            yield safe(name, "dim")
        yield Padding(safe(wording.clip(text.rstrip("\n"), TEXT_SHOWN)), (0, 0, 0, 2))
