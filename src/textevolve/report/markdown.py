"""A report as Markdown of GitHub's kind, for issues, pull requests and notes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import IO

from textevolve.report import wording
from textevolve.report.blocks import (
    BarChart,
    Block,
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
    Transcript,
    Tree,
)
from textevolve.report.cells import cell_text, is_figure
from textevolve.report.differences import find_changed_lines
from textevolve.report.trees import walk

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>])")
_TICKS = re.compile(r"`+")
MARKS = {"same": "  ", "removed": "- ", "added": "+ ", "gap": "@@ "}


def write_markdown(report: Report, target: IO[bytes]) -> None:
    """Write the whole report, block by block, in UTF-8."""
    for line in _lines(report):
        target.write((line + "\n").encode("utf-8", "backslashreplace"))


def _lines(report: Report) -> Iterator[str]:
    yield f"# {escape(report.title)}"
    yield ""
    if report.sentence:
        yield f"**{escape(report.sentence)}**"
        yield ""
    for block in report.blocks:
        yield from _block(block, 2)
    if report.facts:
        yield from _facts(report.facts)


def escape(text: str) -> str:
    """The text on one line, with nothing in it that Markdown or HTML would obey."""
    line = " ".join(wording.visible(text).split())
    return _SPECIAL.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))


def fence(text: str, language: str = "") -> Iterator[str]:
    """The text as it stands, within a fence that is longer than any in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    yield f"{marks}{language}"
    yield wording.visible(text).rstrip("\n")
    yield marks


def _facts(facts: Mapping[str, str]) -> Iterator[str]:
    for name, said in facts.items():
        yield f"- {escape(name)}: {escape(said)}"
    yield ""


def _block(block: Block, level: int) -> Iterator[str]:
    title = getattr(block, "title", "")
    if title:
        yield f"{'#' * min(level, 6)} {escape(title)}"
        yield ""
    if isinstance(block, Section):
        if block.facts:
            yield from _facts(block.facts)
        for one in block.blocks:
            yield from _block(one, level + 1)
        return
    yield from _draw(block)
    yield ""


@singledispatch
def _draw(block: Block) -> Iterator[str]:
    raise TypeError(f"no block: {block!r}")


@_draw.register
def _(block: Note) -> Iterator[str]:
    yield escape(block.text)


@_draw.register
def _(block: Table) -> Iterator[str]:
    yield from _table(block.columns, block.rows)
    if block.note:
        yield ""
        yield escape(block.note)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    yield f"| {' | '.join(escape(column.name) for column in columns)} |"
    yield f"| {' | '.join('---:' if is_figure(column) else '---' for column in columns)} |"
    for row in rows:
        cells = (escape(cell_text(cell, column)) for cell, column in zip(row, columns, strict=True))
        yield f"| {' | '.join(cells)} |"


@_draw.register
def _(block: IntervalChart) -> Iterator[str]:
    columns = (Column(""), Column("value", block.format))
    yield from _table(columns, [(name, one) for name, one in block.rows])


@_draw.register
def _(block: BarChart) -> Iterator[str]:
    yield from _table((Column(""), Column("value", block.format)), list(block.bars))


@_draw.register
def _(block: LineChart) -> Iterator[str]:
    columns = (Column("line"), Column(block.x_label or "x", "number"), Column("y", "number"))
    rows = [(name, x, y) for name, points in block.lines.items() for x, y in points]
    yield from _table(columns, rows)


@_draw.register
def _(block: HeatMap) -> Iterator[str]:
    columns = [Column(""), *(Column(name, "number", 1) for name in block.columns)]
    rows = [(name, *values) for name, values in zip(block.rows, block.values, strict=True)]
    yield from _table(columns, rows)


@_draw.register
def _(block: Tree) -> Iterator[str]:
    for depth, branch in walk(block.roots):
        note = f" ({escape(branch.note)})" if branch.note else ""
        yield f"{'  ' * depth}- {escape(branch.label)}{note}"


@_draw.register
def _(block: Diff) -> Iterator[str]:
    lines = find_changed_lines(block.before, block.after)
    yield from fence("\n".join(MARKS[line.kind] + line.text for line in lines), "diff")


@_draw.register
def _(block: Transcript) -> Iterator[str]:
    for one in block.utterances:
        note = f" ({escape(one.note)})" if one.note else ""
        yield f"**{escape(one.speaker)}**{note}"
        yield ""
        if one.failure:
            yield escape(one.failure)
            yield ""
        if one.text:
            yield from fence(one.text)
            yield ""
        for name, said in one.points:
            yield f"- {escape(name)}: {escape(said)}" if name else f"- {escape(said)}"
        yield ""


@_draw.register
def _(block: Texts) -> Iterator[str]:
    for name, text in block.texts:
        if name:
            yield f"**{escape(name)}**"
            yield ""
        yield from fence(text)
        yield ""
