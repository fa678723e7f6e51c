"""The terminal renderer: it prints a report with colours if the terminal has any, and with the same
words without them.

Text from outside is always put into a `Text` with control characters replaced, so that markup and
escape sequences in it have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from textevolve.report import blocks, matrices, wording
from textevolve.report.blocks import Block, Note, PlainBlock, Report, Section, Tone, walk
from textevolve.report.differences import find_differences
from textevolve.report.terminal_tables import (
    CELL_SHOWN,
    draw_facts,
    draw_table,
    safe,
)

MATRIX_ROWS = 20
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
        if not isinstance(block, Section):
            console.print()
            if not isinstance(block, Note) and block.title:
                _print(console, safe(block.title, "bold"))
            for piece in _draw(block, console):
                _print(console, piece)
        elif not block.folded:
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
        note = f"{wording.count(counted, 'more section')} not shown here; a page in HTML has them."
        _print(console, Text(note, "dim"))


def _draw(block: PlainBlock | blocks.Matrix, console: Console) -> Iterator[RenderableType]:
    match block:
        case blocks.Table():
            yield from draw_table(block, console)
        case blocks.Matrix():
            yield from draw_table(matrices.as_table(block, MATRIX_ROWS), console)
        case blocks.Tree():
            yield from _draw_tree(block)
        case blocks.Diff():
            yield _draw_diff(block)
        case blocks.Transcript():
            yield from _draw_transcript(block)
        case blocks.Texts():
            yield from _draw_texts(block)
        case blocks.Note():
            yield safe(block.text, TONES[block.tone])


def _draw_tree(tree: blocks.Tree) -> Iterator[RenderableType]:
    for depth, branch in walk(tree.roots):
        line = Text("  " * depth + ("└ " if depth else ""), "dim", overflow="fold")
        line.append_text(safe(branch.label, TONES[branch.tone] or "not dim", CELL_SHOWN))
        if branch.note:
            line.append("  ").append_text(safe(branch.note, "", CELL_SHOWN))
        yield line


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
