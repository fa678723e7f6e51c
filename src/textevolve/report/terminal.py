"""The terminal renderer: it prints a report with colours if the terminal has any, and with the same
words without them.

Text from outside is always put into a `Text` with control characters replaced, so that markup and
escape sequences in it have no effect.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from textevolve.report import blocks, wording
from textevolve.report.blocks import (
    Block,
    Column,
    Note,
    PlainBlock,
    Plot,
    Report,
    Section,
    Tone,
    find_differences,
)

# Tables in the terminal. If a table is wider than the terminal, its rows are drawn one below the
# other.

ROWS_SHOWN = 60
TEXT_SHOWN = 4000
CELL_SHOWN = 200
GAP = 3
LEAST_TEXT = 22
MOST_TEXT = 44
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
    rows = table.rows[:ROWS_SHOWN]
    heads = table.heads
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
        remainder = wording.count(len(table.rows) - len(rows), "more row")
        yield Text(f"{remainder} not shown here.", "dim")
    if note := table.remark("*"):
        yield safe(note, "dim")


def _cell(cell: blocks.Cell, column: Column) -> Text:
    value, interval = blocks.cell_parts(cell, column.format, column.digits)
    text = Text(wording.shorten(value, CELL_SHOWN))
    if value == wording.DASH:
        text.stylize("dim")
    elif column.format == "score":
        text.stylize(_score_style(blocks.shade(blocks.score_of(cell), 0.0, column.most)))

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
        number = blocks.is_number(column)
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
        named_figures = [pair for pair in zip(names[1:], figures, strict=True) if pair[1]]
        line = Text(" · ").join(
            Text.assemble((f"{name} ", "dim"), cell) for name, cell in named_figures
        )
        parts += [label, Padding(line, (0, 0, 0, 2))]

    return Group(*parts)


MATRIX_ROWS = 20
SPAN_SHOWN = 16
"""The number of columns on which a tree's waterfall is drawn."""
AGENT_STYLES = ("cyan", "magenta", "blue", "yellow", "green", "red")
TONES: Mapping[Tone, str] = {
    "": "",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "dim": "dim",
    "strong": "bold",
}


def print_report(report: Report, console: Console) -> None:
    """Print the title and the conclusion, the blocks one after the other, and the facts. Of folded
    sections only the number is printed."""
    if report.title:
        _print(console, safe(report.title, "dim" if report.sentence else "bold"))
    if report.sentence:
        _print(console, safe(report.sentence, "bold"))
    _print_blocks(report.blocks, console)
    if report.facts:
        console.print()
        console.print(draw_facts(report.facts.items()))


def _print(console: Console, content: RenderableType) -> None:
    console.print(content, markup=False, highlight=False, emoji=False)


def _print_blocks(blocks: Iterable[Block], console: Console) -> None:
    counted = 0
    for block in blocks:
        if isinstance(block, Plot):
            counted += 1
        elif not isinstance(block, Section):
            console.print()
            if not isinstance(block, Note) and block.title:
                _print(console, safe(block.title, "bold"))
            for piece in _draw(block, console):
                _print(console, piece)
        elif not (block.folded or block.is_long):
            console.print()
            title = Text(wording.shorten(block.title, max(console.width - 8, 8)), "bold")
            _print(console, Rule(title, align="left", style="dim"))
            if block.facts:
                console.print(draw_facts(block.facts.items()))
            _print_blocks(block.blocks, console)
        else:
            counted += 1

    if counted:
        console.print()
        note = f"{wording.count(counted, 'more part')} not shown here; a page in HTML has them."
        _print(console, Text(note, "dim"))


def _draw(block: PlainBlock | blocks.Matrix, console: Console) -> Iterator[RenderableType]:
    match block:
        case blocks.Table():
            yield from draw_table(block, console)
        case blocks.Matrix():
            yield from draw_table(blocks.as_table(block, MATRIX_ROWS), console)
        case blocks.Tree():
            yield from _draw_tree(block)
        case blocks.Plot():
            pass  # counted with the folded sections
        case blocks.Diff():
            yield _draw_diff(block)
        case blocks.Transcript():
            yield from _draw_transcript(block)
        case blocks.Texts():
            yield from _draw_texts(block)
        case blocks.Note():
            yield safe(block.text, TONES[block.tone])


def _draw_tree(tree: blocks.Tree) -> Iterator[RenderableType]:
    for depth, branch in blocks.first_branches(tree):
        line = Text("  " * depth + ("└ " if depth else ""), "dim", overflow="fold")
        if tree.timed:
            line = Text(_draw_span(branch), "cyan", overflow="fold").append_text(line)
        line.append_text(safe(branch.label, TONES[branch.tone] or "not dim", CELL_SHOWN))
        if note := blocks.describe_branch(branch):
            line.append("  ").append(wording.shorten(note, CELL_SHOWN))
        yield line


def _draw_span(branch: blocks.Branch) -> str:
    """Draw when a branch began and how long it took as a bar on `SPAN_SHOWN` columns."""
    bar = ""
    if branch.span is not None:
        start, length = (round(share * SPAN_SHOWN) for share in branch.span)
        bar = " " * min(start, SPAN_SHOWN - 1) + "━" * max(1, length)
    return f"{bar:{SPAN_SHOWN}.{SPAN_SHOWN}}  "


def _draw_diff(diff: blocks.Diff) -> Text:
    """Draw the difference between two texts with marks around changed words, which can be read
    without colours."""
    styles = {"removed": ("[-", "-]", "red"), "added": ("{+", "+}", "green")}
    styles |= {"gap": (" [… ", " …] ", "dim"), "same": ("", "", "")}
    text = Text(overflow="fold")
    for piece in find_differences(diff.before, diff.after):
        begin, end, style = styles[piece.kind]
        text.append(f"{begin}{piece.text}{end}", style)

    return text or Text("No visible difference.", "dim")


def _draw_transcript(transcript: blocks.Transcript) -> Iterator[RenderableType]:
    speakers = list(dict.fromkeys(utterance.speaker for utterance in transcript.utterances))
    for n, utterance in enumerate(transcript.utterances):
        if n:
            yield ""
        colour = AGENT_STYLES[speakers.index(utterance.speaker) % len(AGENT_STYLES)]
        name = safe(utterance.speaker, f"bold {colour}", CELL_SHOWN)
        if utterance.note:
            name = Text.assemble(name, "  ", safe(utterance.note, "dim", CELL_SHOWN))
        yield name
        if utterance.failure:
            yield Padding(safe(utterance.failure, "red"), (0, 0, 0, 2))
        if utterance.text:
            yield Padding(safe(utterance.text), (0, 0, 0, 2))
        for heading, text in utterance.points:
            yield Padding(
                Text.assemble(safe(heading, "dim", CELL_SHOWN), "  ", safe(text)), (0, 0, 0, 4)
            )


def _draw_texts(texts: blocks.Texts) -> Iterator[RenderableType]:
    for n, (name, text) in enumerate(texts.texts):
        if n:
            yield ""
        if name:
            yield safe(name, "dim", CELL_SHOWN)
        yield Padding(safe(text), (0, 0, 0, 2))
