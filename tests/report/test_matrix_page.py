"""The page of a matrix in a browser: what a person can do with it, and what no text can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from textevolve.report.blocks import Entry, Matrix, MatrixRow, Note, Report, Transcript, Utterance
from textevolve.report.html import write_html

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
SCORES = ((0.9, 0.2), (0.4, 0.4), (0.1, 0.8), (None, 0.5), (0.6, 0.65))
"""Of five rows those of two variants; the first of row 3 failed."""


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a report from the disk; at the end nothing was complained of."""
    answers: list[str] = []
    contexts: list[Any] = []

    def start(report: Report, extra: str = "", **options: Any) -> Any:
        path = tmp_path / "report.html"
        with path.open("wb") as target:
            write_html(report, target)
            target.write(extra.encode())
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1280, "height": 2000}, **options})
        )
        page = contexts[-1].new_page()
        page.on("console", lambda message: answers.append(message.text))
        page.on("pageerror", lambda error: answers.append(str(error)))
        page.on("dialog", lambda dialog: answers.append(f"dialog {dialog.message}"))
        page.on(
            "request", lambda request: request.url == path.as_uri() or answers.append(request.url)
        )
        page.goto(path.as_uri())
        page.said = answers
        return page

    yield start
    for context in contexts:
        context.close()
    assert answers == []


def report_rows(rows: Iterable[MatrixRow], variants: Sequence[str] = ("one", "two")) -> Report:
    return Report("title", "sentence", [Matrix("Rows", variants, rows), Note("after")])


def five_rows() -> Iterator[MatrixRow]:
    for n, (value, two) in enumerate(SCORES):
        debate = [Transcript("Debate", [Utterance("Critic", f"argument {n}")])]
        first_entry = Entry(failure="no answer from the model")
        if value is not None:
            first_entry = Entry(
                f"out {n} left",
                {"judge": value, "tone": 0.5},
                value >= 0.5,
                {"judge": f"since {n}"},
                facts={"tokens": "12"},
                details=debate,
            )
        second_entry = Entry(f"out {n} right", {"judge": two}, two >= 0.5)
        yield MatrixRow(
            f"r{n}", f"asked {n}", [first_entry, second_entry], f"expected {n}", {"fact": "x"}
        )


def shown(page: Any) -> list[str]:
    return page.locator(".rows-of-data .row .id").all_inner_texts()


def current(page: Any) -> list[str]:
    return page.locator(".row[aria-current] .id").all_inner_texts()


def test_rows_are_filtered(open_page: Open) -> None:
    page = open_page(report_rows(five_rows()))
    assert shown(page) == ["r0", "r1", "r2", "r3", "r4"]
    page.fill(".search", "SINCE 2")
    assert shown(page) == ["r2"]
    assert page.inner_text(".count") == "1 of 5 rows"
    page.fill(".search", "no such words")
    assert shown(page) == []
    assert page.locator("text=No row is like that.").is_visible()
    page.fill(".search", "")
    page.click("button:text-is('Failed')")
    assert shown(page) == ["r0", "r1", "r2", "r3"]
    page.click("button:text-is('Failed')")
    page.click("button:text-is('No score')")
    assert shown(page) == ["r3"]
    page.click("button:text-is('No score')")
    page.click("button:text-is('Differs')")
    assert shown(page) == ["r0", "r2", "r3"]
    page.get_by_label("by at least").fill("0.05")
    assert shown(page) == ["r0", "r2", "r3", "r4"]
    page.click("button:text-is('Differs')")
    page.get_by_label("Score below").fill("0.2")
    assert shown(page) == ["r2"]


def test_without_script_it_is_a_plain_table(open_page: Open) -> None:
    page = open_page(report_rows(five_rows()), java_script_enabled=False)
    assert page.locator("tbody tr").count() == 5
    text = page.inner_text("table")
    for answer in ("asked 3", "expected 3", "out 4 right", "0.65 pass", "since 2", "no answer"):
        assert answer in text
    page.click("a[href='#matrix-1-1-1']")
    assert page.locator("text=argument 0").is_visible()
