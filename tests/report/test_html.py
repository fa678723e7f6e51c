"""Pages: whole, self-contained, and nothing in them but our own elements."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given

from textevolve.report import html
from textevolve.report.blocks import (
    Branch,
    Column,
    Entry,
    Matrix,
    MatrixRow,
    Report,
    Section,
    Table,
    Transcript,
    Tree,
    Utterance,
)
from textevolve.report.html import html_fragment
from textevolve.report.wording import visible

from .conftest import as_html, hostile, make_blocks, make_matrix, report_of

VOID = {"meta", "br"}


class Page(HTMLParser):
    """The elements of a page and its text; fails where one is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "title"):
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def test_every_block_is_on_the_page_and_missing_figures_are_dashes() -> None:
    page = Page(as_html(report_of(make_blocks("words here"), "title")))
    text = " ".join(" ".join(page.texts).split())
    for answer in ("71.0 %", "[62.0, 80.0]", "7.2", "< 0.001", "12,000"):
        assert answer in text
    for answer in ("$0.020", "1 min 01 s", "words here", "other words here", "No rows."):
        assert answer in text
    assert text.count("–") >= 8 + 1 + 1 + 1 + 1
    assert "None" not in text
    assert "nan" not in text


def test_a_page_loads_nothing_and_runs_no_script_but_that_of_a_matrix() -> None:
    page = as_html(report_of(make_blocks()))
    assert "default-src 'none'" in page
    assert not re.search(r"(?i)\bsrc=|@import|url\(|\son\w+=", page)
    assert all(link.startswith("#") for link in Page(page).links)
    without = [block for block in make_blocks() if not isinstance(block, Matrix)]
    assert "<script" not in as_html(report_of(without))
    assert "<script" not in html_fragment(report_of(make_blocks()))


def test_the_policy_allows_what_is_in_the_page_by_its_hash_alone() -> None:
    page = as_html(report_of(make_blocks()))
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[0]
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


@given(hostile, hostile)
def test_the_data_of_a_matrix_come_back_as_they_are_shown(one: str, two: str) -> None:
    page = as_html(Report("", "", [make_matrix(one, two)]))
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert not re.search("[<>&\u2028\u2029]", text)
    first, second = json.loads(text)["rows"]
    assert first["id"] == second["input"] == visible(one)
    assert first["entries"][0].get("output", "") == visible(one)
    assert first["entries"][1] is None
    assert second["entries"][0].get("failure", "") == visible(one)


def test_a_matrix_of_any_size_is_a_bounded_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "LIVE_ROWS", 300)
    rows = (MatrixRow(f"r{n}", "asked", [Entry("out", {"j": 0.5})]) for n in range(1000))
    page = as_html(Report("", "", [Matrix("", ["one"], rows)]))
    assert page.count('<th scope="row"') == html.PLAIN_ROWS
    assert page.count('{"id":') == 300
    assert "The first 200 of 1,000 rows" in page
    assert "The first 300 rows of 1,000 are shown" in page


def test_a_matrix_of_long_texts_is_a_bounded_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "LIVE_SIZE", 400_000)
    rows = (MatrixRow(f"r{n}", "a" * 1000, [Entry("b" * 500, {"j": 0.5})]) for n in range(1000))
    page = as_html(Report("", "", [Matrix("", ["one"], rows)]))
    shown = page.count('{"id":')
    assert html.PLAIN_ROWS < shown < 300
    assert f"The first {shown} rows of 1,000 are shown" in page


@given(hostile, hostile)
def test_no_text_gets_out_of_its_place(one: str, two: str) -> None:
    expected = Page(as_html(report_of(make_blocks("a", "b"), "a")))
    page = as_html(report_of(make_blocks(f"a{one}", f"b{two}"), f"a{one}"))
    found_page = Page(page)
    # The texts decide on a few of our elements: pieces of a difference, a long cell's class.
    loose = {"ins", "del", "div", "span", "polyline"}
    es = [e for e in found_page.elements if e[0] not in loose]
    assert es == [e for e in expected.elements if e[0] not in loose]
    assert {e for e in found_page.elements if e[0] in loose} <= {
        *((tag, ("class",)) for tag in loose),
        *((tag, ()) for tag in loose),
        *(("div", ("class", "tabindex")), ("div", ("class", "id")), ("div", ("id", "class"))),
        ("polyline", ("class", "points")),
    }
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page
    )


@given(hostile)
def test_links_lead_to_their_sections(anchor: str) -> None:
    anchor += "x"
    table = Table("", [Column("")], [["a"]], links=[anchor])
    page = Page(as_html(Report("", "", [table, Section("s", [], anchor=anchor)])))
    assert page.links[0].removeprefix("#") == page.ids[-1]
    assert all(re.fullmatch(r"[\w.~%-]+", single_id, re.ASCII) for single_id in page.ids)


def test_a_tree_of_any_depth_is_drawn() -> None:
    root = Branch("0")
    for n in range(1, 2000):
        root = Branch(str(n), children=[root, Branch("beside")])
    page = as_html(Report("", "", [Tree("", [root, Branch("last")])]))
    assert page.count('<div class="branch') == 4000


def test_speakers_keep_their_colour() -> None:
    turns = [Transcript("", [Utterance(name, "said")]) for name in ("ann", "bo", "ann")]
    page = as_html(Report("", "", turns))
    assert re.findall(r'class="speech (a\d)"', page) == ["a0", "a1", "a0"]
