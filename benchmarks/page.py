"""How long a page of 10,000 rows takes: to write, to its first paint, to search and to sort.

    python benchmarks/page.py [--rows 10000]

Needs Chromium (`make chromium`). Outputs are of 3 to 160 words, three variants to a row, each with
two scores and two reasons. Each figure is the median of five fresh browsers.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import BrowserType, sync_playwright

from sitting import describe_machine
from textevolve.report.blocks import Entry, Matrix, MatrixRow, Report
from textevolve.report.html import write_html

TEXT = (
    "the model answers with a short list of steps that a reader can follow without help from"
    " others and names what is uncertain in the source text while keeping the tone friendly"
)
WORDS = TEXT.split()
VARIANTS = ("concise", "steps", "baseline")
TIMES = 5

# Waits for two frames after the change, so that what is measured is on the screen.
ACT = """(act) => new Promise((done) => {
  const begun = performance.now();
  const search = document.querySelector(".search");
  if (act === "search") {
    search.value = "uncertain text";
    search.dispatchEvent(new Event("input"));
  } else document.querySelector(".head .name").click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
READY = "document.querySelectorAll('.rows-of-data .row').length"


def make_rows(number: int) -> Iterator[MatrixRow]:
    rng = random.Random(0)

    def say(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=most))

    for n in range(number):
        entries: list[Entry] = []
        for _ in VARIANTS:
            scores: dict[str, float | None] = {"correctness": rng.random(), "tone": rng.random()}
            reasons = {"correctness": say(18), "tone": say(9)}
            passed = rng.random() < 0.7
            entries.append(Entry(say(rng.choice((3, 20, 60, 160))), scores, passed, reasons))
        yield MatrixRow(f"case-{n:05d}", say(rng.choice((12, 40))), entries, say(6))


def measure(chromium: BrowserType, path: Path) -> dict[str, float]:
    """Milliseconds from the start of the navigation, or of what a person does."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    browser = chromium.launch(executable_path=executable, args=options)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri())
    figures: dict[str, float] = {"rows in the page": page.evaluate(READY)}
    while (paint := page.evaluate(PAINT)) is None:
        page.wait_for_timeout(20)
    figures["first paint, ms"] = paint
    figures["whole page ready, ms"] = page.evaluate(
        "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    )
    figures["first search, ms"] = page.evaluate(ACT, "search")
    figures["sort, ms"] = page.evaluate(ACT, "sort")
    browser.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000)
    number = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder, "report.html")
        begun = time.process_time()
        with path.open("wb") as target:
            write_html(Report("t", "s", [Matrix("Rows", VARIANTS, make_rows(number))]), target)
        print(f"{number:,} rows x {len(VARIANTS)} variants, {path.stat().st_size / 1e6:.1f} MB")
        print(f"written in {time.process_time() - begun:.1f} s of CPU, the rows made up included")
        runs = [measure(started.chromium, path) for _ in range(TIMES)]
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"{name}: {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})")
    print(describe_machine())


if __name__ == "__main__":
    main()
