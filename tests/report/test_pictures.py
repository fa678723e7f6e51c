"""Trees with bars and plots in a browser: read by all, at any width, and a click unfolds a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from textevolve.report.blocks import Branch, Diff, Estimate, Plot, Report, Section, Texts, Tree
from textevolve.report.html import write_html

pytestmark = pytest.mark.slow


def report() -> Report:
    details = [Texts("", [("Input", "Where is my parcel?"), ("Output", "In Brest.")])]
    changed = [Diff("", "Be brief.", "Be brief and kind.")]
    search = Branch(
        "search", "TOOL_CALL, 2.0 s", "bad", [Branch("fits", "0.20, not passed", "bad")],
        {"fits": 0.2}, (0.5, 0.5), {"Node": "1:1 search"}, details,
    )  # fmt: skip
    agent = Branch("agent", "4.0 s", "", [search], {"fits": 0.9, "latency": 1.0}, (0.0, 1.0))
    scores = Plot("Scores", "score", ["low", "top"], {"": [3, 9]}, top=9, bars=True)
    trend = {"one": [Estimate(0.5, 0.4, 0.6), None, 0.7], "two": [0.2, 0.3, 0.4]}
    return Report(
        "Nodes of an agent",
        "2 nodes in 1 episode",
        [
            Tree("Episodes", [Branch("Where is my parcel?", "episode 1", "strong", [agent])]),
            Tree("What was tried", [Branch("template 1", "taken", "good", details=changed)]),
            Plot("Trend", "run", ["mon", "tue", "wed"], trend),
            Section("More", [scores]),
        ],
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_pictures_are_read_by_all(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path = tmp_path / "report.html"
    with path.open("wb") as target:
        write_html(report(), target)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    assert not page.locator("text=In Brest.").is_visible()
    page.locator("summary", has_text="search").click()
    assert page.locator("text=In Brest.").is_visible()
    bar, whole = (page.locator(".branch svg rect").nth(n).bounding_box() for n in (1, 0))
    assert bar["width"] == pytest.approx(whole["width"] / 2, abs=2)
    violations = axe.run(page).response["violations"]
    assert [each["id"] for each in violations if each["impact"] != "minor"] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    context.close()
