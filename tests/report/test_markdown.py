"""Markdown: read back by a parser, every text is where it was put and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from markdown_it import MarkdownIt
from markdown_it.token import Token

from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.report.wording import visible

from .conftest import as_markdown, hostile, make_blocks, report_of

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def parse(*blocks: Any) -> list[Token]:
    return PARSER.parse(as_markdown(Report("t", "", blocks)))


def kinds(tokens: list[Token]) -> list[str]:
    return [token.type for token in tokens]


def inline_text(token: Token) -> str:
    parts = {"softbreak": "\n", "hardbreak": "\n", "html_inline": "\n"}
    return "".join(parts.get(c.type, c.content) for c in token.children or ())


def test_every_block_is_written_and_missing_figures_are_dashes() -> None:
    text = as_markdown(report_of(make_blocks("words here"), "title"))
    for answer in ("# title", "| words here |", "$0.020".replace("$", "\\$"), "No rows.", "12,000"):
        assert answer in text
    assert "71.0 % \\[62.0, 80.0\\]" in text
    assert "None" not in text
    assert text.count("| –") >= 8 + 1


@given(hostile, hostile)
def test_no_text_becomes_markup(one: str, two: str) -> None:
    text = as_markdown(report_of(make_blocks(f"a{one}", f"b{two}"), f"a{one}"))
    tokens = PARSER.parse(text)
    text.encode()
    assert "html_block" not in kinds(tokens)
    assert "code_block" not in kinds(tokens)
    assert "hr" not in kinds(tokens)
    for token in tokens:
        for child in token.children or ():
            assert child.type in {
                *("text", "text_special", "softbreak", "hardbreak"),
                *("html_inline", "strong_open", "strong_close", "em_open", "em_close"),
            }, child
            if child.type == "html_inline":
                assert child.content == "<br>"


@given(hostile, hostile)
def test_a_table_keeps_its_columns(one: str, two: str) -> None:
    columns = [Column(one), Column(two, "number")]
    table = Table("", columns, [[one, two], [two, one], [None, None]], best=frozenset({0}))
    text = as_markdown(Report("t", "", [table]))
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3}
    assert len(rows) == 5
    tokens = PARSER.parse(text)
    assert kinds(tokens).count("td_open") == 6
    assert kinds(tokens).count("th_open") == 2
    assert kinds(tokens).count("table_open") == 1
    cells = [t for n, t in enumerate(tokens) if n and tokens[n - 1].type == "td_open"]
    assert inline_text(cells[3]).split() == visible(one).split()


@given(hostile)
def test_whole_texts_stay_in_their_fences(text: str) -> None:
    for token in (t for t in parse(Texts("", [("name", text)])) if t.type == "fence"):
        assert token.content == visible(text) + "\n"
    assert kinds(parse(Texts("", [("name", text)]))).count("fence") == 1
