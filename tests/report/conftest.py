"""A report that has every block, and texts that try to get out of where they stand."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from rich.console import Console

from textevolve.report.blocks import (
    Block,
    Branch,
    Column,
    Diff,
    Entry,
    Estimate,
    Matrix,
    MatrixRow,
    Note,
    Plot,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Tree,
    Utterance,
)
from textevolve.report.html import write_html
from textevolve.report.markdown import write_markdown
from textevolve.report.terminal import print_report

MakeBlocks = Callable[..., list[Block]]

PIECES = (
    *("<script>alert(1)</script>", "</script>", "</style>", "</details>", "<img src=x onerror=1>"),
    *('"', "'", "&amp;", "{{ 7*7 }}", "{% raw %}", "]]>", "-->", "[bold]", "[/]", ":smile:"),
    *("|", "\\|", "\\", "`", "```", "~~~", "````", "\n", "\r", "\r\n", "\n\n", "    ", "\t"),
    *("# ", "- ", "1. ", "> ", "===", "---", "* ", "_x_", "**", "~~", "![x](y)", "https://x.y"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\x00", "\x7f", "\x85", "\u2028"),
    *("\ud800", "\udcff", "\u202e", "\u2066", "é", "数", "😀", "word ", "x" * 300),
)
hostile = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=8).map("".join)


def make_branch(text: str, other: str) -> Branch:
    """A branch with everything that unfolds."""
    scores = {text: 0.5, f"2 {other}": 1.0}
    return Branch(
        text, other, "", [], scores, (0.25, 0.5), {text: other}, [Texts(text, [(text, other)])]
    )


def make_blocks(text: str = "plain", *more: str) -> list[Block]:
    """Every block, with the text in every place that holds one, and something missing in each."""
    other = more[0] if more else f"other {text}"
    columns = [
        Column(text),
        Column("share", "percent"),
        Column(other, "score", most=10),
        Column("words"),
        Column("p", "p_value"),
        Column("count", "count"),
        Column("cost", "money"),
        Column("time", "duration"),
        Column("n"),
    ]
    rows: list[list[Any]] = [
        [text, Estimate(0.71, 0.62, 0.8), 7.25, other, 0.0001, 12000, 0.02, 61.0, 3],
        [other, None, None, None, None, None, None, None, None],
    ]
    return [
        Table(text, columns, rows, frozenset({0}), text, links=[text, ""]),
        Table(other, [Column("none")], []),
        make_matrix(text, other),
        Tree(text, [Branch(text, other, "good", [Branch(other), Branch("", text, "bad")])]),
        Tree(other, [make_branch(text, other)]),
        Plot(other, text, [text, other], {text: [Estimate(0.5, 0.4, 0.6), Estimate(None)]}),
        Plot(text, other, [text], {text: [Estimate(1)], f"2 {other}": [Estimate(0)]}, bars=True),
        Diff(text, f"one\n{text}\nthree", f"one\n{other}\nthree"),
        Transcript(
            text, [Utterance(text, text, text, [(text, other)]), Utterance(text, "", failure=other)]
        ),
        Texts(text, [(text, other)]),
        Note(text, "warning"),
        Section(text, [Note(other), Section(other, [Note(text)])], {text: other}, True, text),
    ]


def make_matrix(text: str, other: str) -> Matrix:
    entry = Entry(text, {text: 0.75, other: None}, True, {text: other}, "", {text: other})
    rows = [
        MatrixRow(text, other, [entry, None], text, {other: text}, [Note(text)]),
        MatrixRow(other, text, [Entry(failure=text, details=[Note(other)]), entry]),
    ]
    return Matrix(text, [text, other + "!"], iter(rows))


@pytest.fixture
def blocks() -> MakeBlocks:
    return make_blocks


def report_of(blocks: Sequence[Block], text: str = "plain") -> Report:
    return Report(text, text, iter(blocks), {text: text})


def as_html(report: Report) -> str:
    target = io.BytesIO()
    write_html(report, target)
    return target.getvalue().decode()


def as_markdown(report: Report) -> str:
    target = io.BytesIO()
    write_markdown(report, target)
    return target.getvalue().decode()


def as_terminal(report: Report, width: int = 100, **options: Any) -> str:
    file = io.StringIO()
    options = {"force_terminal": False, "color_system": None, **options}
    print_report(report, Console(file=file, width=width, **options))
    return file.getvalue()
