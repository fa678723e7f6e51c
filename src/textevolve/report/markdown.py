"""The Markdown renderer: it writes a report in GitHub-flavoured Markdown, in which no text from
outside can act as markup.

Whole texts and differences are put into fences that are longer than any fence in them; everything
else is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from textevolve.loading import late_re
from textevolve.report import blocks, wording
from textevolve.report.blocks import Block, PlainBlock, Report, Section, find_differences
from textevolve.texts.prose import join_lines

TEXT_SHOWN = 20_000
CELL_SHOWN = 1000
MATRIX_ROWS = 200
DEEPEST_HEADING = 6

# As entities: a backslash before a pipe is read in two ways by those who split rows into cells.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "|": "&#124;"}
_MARKS = late_re(
    r"[&<>\\|`*\[\]~#$]|(?<![^\W_])_|_(?![^\W_])"  # a _ within a word is none
    r"|:(?=//|[a-z_+-][\w+-]*:)|(?<=www)\.",  # links and emoji
    re.IGNORECASE,
)
_LINE_START = late_re(r"([-+=])|(\d{1,9})([.)])(?=\s|$)")


def write_markdown(report: Report, target: IO[bytes]) -> None:
    """Write the whole report, block by block, in UTF-8."""
    for piece in _draw_report(report):
        target.write(f"{piece}\n".encode())


def escape(text: str) -> str:
    """Return a text on one line of Markdown, escaped so that it is shown literally; control
    characters are replaced."""
    return _start_line(_escape_marks(join_lines(wording.visible(text))))


def escape_cell(text: str) -> str:
    """Escape a text for the cell of a table, where line breaks become `<br>`."""
    lines = wording.visible(wording.clip(text, CELL_SHOWN)).strip().split("\n")
    return "<br>".join(_escape_marks(line.strip()) for line in lines)


def _escape_marks(line: str) -> str:
    return _MARKS.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), line)


def _start_line(line: str) -> str:
    """Escape the beginning of a line, so that it starts no list and underlines no heading."""
    return _LINE_START.sub(r"\2\\\1\3", line, count=1) if _LINE_START.match(line) else line


def _escape_lines(text: str) -> str:
    """Escape a text with its line breaks, so that it stays one Markdown paragraph."""
    lines = [line.strip() for line in wording.visible(wording.clip(text, TEXT_SHOWN)).split("\n")]
    return "\\\n".join(_start_line(_escape_marks(line)) or "&nbsp;" for line in lines)


def _fence(text: str) -> str:
    excerpt = wording.visible(wording.clip(text, TEXT_SHOWN))
    longest = max((len(run) for run in re.findall(r"`{3,}", excerpt)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}text\n{excerpt}\n{marks}\n"


def _draw_report(report: Report) -> Iterator[str]:
    yield f"# {escape(report.title)}\n"
    if report.sentence:
        yield f"{escape(report.sentence)}\n"
    yield from _draw_blocks(report.blocks, 2)
    yield from _draw_facts(report.facts)


def _draw_facts(facts: Mapping[str, str]) -> Iterator[str]:
    if facts:
        lines = [f"- **{escape(name)}:** {escape_cell(value)}" for name, value in facts.items()]
        yield "\n".join(lines) + "\n"


def _draw_blocks(members: Iterable[Block], level: int) -> Iterator[str]:
    for block in members:
        if isinstance(block, Section):
            yield f"{_heading(level)} {escape(block.title)}\n"
            yield from _draw_facts(block.facts)
            yield from _draw_blocks(block.blocks, level + 1)
            continue

        if not isinstance(block, blocks.Note) and block.title:
            yield f"{_heading(level + 1)} {escape(block.title)}\n"
        yield from _draw(block)


def _heading(level: int) -> str:
    return "#" * min(level, DEEPEST_HEADING)


def _draw(block: PlainBlock | blocks.Matrix) -> Iterator[str]:
    match block:
        case blocks.Table():
            yield from _draw_table(block)
        case blocks.Tree():
            yield _draw_tree(block)
        case blocks.Plot():
            yield "A plot, which a page in HTML has.\n"
        case blocks.Diff():
            yield _draw_diff(block)
        case blocks.Transcript():
            yield from _draw_transcript(block)
        case blocks.Texts():
            for name, text in block.texts:
                yield from [f"**{escape(name)}**\n"] if name.strip() else []
                yield _fence(text)
        case blocks.Note():
            yield f"{_escape_lines(block.text)}\n"
        case blocks.Matrix():
            yield from _draw_table(blocks.as_table(block, MATRIX_ROWS, outputs=True))


def _draw_table(table: blocks.Table) -> Iterator[str]:
    heads = table.heads
    if not table.rows or not heads:
        yield "No rows.\n"
    else:
        rows = [
            [blocks.cell_text(c, column) for c, column in zip(row, heads, strict=True)]
            for row in table.rows
        ]
        right = [blocks.is_number(column) for column in heads]
        names = [escape_cell(column.name) for column in heads]
        lines = [_row(names), _row("---:" if flush else "---" for flush in right)]
        for n, row in enumerate(rows):
            label, *other_cells = map(escape_cell, row)
            lines.append(
                _row([f"★ **{label}**" if n in table.best and label else label, *other_cells])
            )
        yield "\n".join(lines) + "\n"

    if note := table.remark("★"):
        yield f"{_escape_lines(note)}\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _draw_tree(tree: blocks.Tree) -> str:
    lines: list[str] = []
    for depth, branch in blocks.first_branches(tree):
        note = escape(blocks.describe_branch(branch))
        label = escape(branch.label) or wording.DASH
        lines.append(f"{'  ' * depth}- {label}{f' ({note})' if note else ''}")
    return "\n".join(lines) + "\n"


def _draw_diff(diff: blocks.Diff) -> str:
    marks = {"removed": "[-{}-]", "added": "{{+{}+}}", "same": "{}", "gap": "[… {} …]"}
    pieces = find_differences(diff.before, diff.after)
    text = "".join(marks[piece.kind].format(piece.text) for piece in pieces)
    return _fence(text) if pieces else "No visible difference.\n"


def _draw_transcript(transcript: blocks.Transcript) -> Iterator[str]:
    for utterance in transcript.utterances:
        note = f" ({escape(utterance.note)})" if utterance.note else ""
        yield f"**{escape(utterance.speaker) or wording.DASH}**{note}\n"
        if utterance.failure:
            yield f"> *No answer:* {escape(utterance.failure)}\n"
        if utterance.text:
            yield (
                "\n".join(f"> {line}" for line in _escape_lines(utterance.text).split("\n")) + "\n"
            )

        if utterance.points:
            points = [f"- *{escape(name)}:* {escape_cell(text)}" for name, text in utterance.points]
            yield "\n".join(points) + "\n"
