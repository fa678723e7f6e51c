"""Does a model keep the length that it is told? Pages of the docs, shortened to several budgets.

    python benchmarks/compression.py [--model local/qwen2.5-coder-1.5b] [--pages 3]
                                     [--budgets 100 300] [--context 4096]

For every first answer: its characters beside those that it may have. For every page: the tokens of
the result beside the budget, and what was asked again and cut.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path

from textevolve.llm.mapreduce import WORDS_A_TOKEN, compress
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.opening import open_client
from textevolve.llm.prompts import CHARACTERS_A_TOKEN
from textevolve.settings import read_settings

PAGES = ("judges.md", "metrics.md", "debate.md", "calibrate.md", "memory-eval.md", "traces.md")
COLUMNS = (
    *("page", "characters", "budget", "tokens", "levels", "calls", "again", "cut", "failed"),
    *("first answers, in parts of what is allowed", "s"),
)
_WANTED = re.compile(r"in at most (\d+) words\.\s*$")


class Measuring:
    """Passes requests on and keeps, of each first answer, its length beside what it may have."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.shares: list[float] = []

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        response = await self.model(request)
        if len(request.messages) == 1:
            match = _WANTED.search(request.messages[0].text)
            assert match is not None
            allowed = int(match[1]) / WORDS_A_TOKEN * CHARACTERS_A_TOKEN
            self.shares.append(len(response.text) / allowed)
        return response


async def measure(model: str, pages: int, budgets: list[int], context: int) -> None:
    docs = Path(__file__).parent.parent / "docs"
    settings = read_settings()
    async with AsyncExitStack() as stack:
        client, places, _ = await open_client(model, settings, stack)
        measuring = Measuring(client)
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for page in PAGES[:pages]:
            text = (docs / page).read_text(encoding="utf-8")
            for budget in budgets:
                began, before = time.perf_counter(), len(measuring.shares)
                compressed = await compress(
                    measuring, text, budget, context=context, concurrency=places
                )
                lost = compressed.dropped
                cells = (
                    page,
                    compressed.characters,
                    budget,
                    compressed.tokens,
                    compressed.levels,
                    compressed.calls,
                )
                lengths = " ".join(f"{share:.2f}" for share in measuring.shares[before:])
                more = (lost.asked_again, lost.cuts, len(lost.failed), lengths)
                seconds = round(time.perf_counter() - began)
                print("|", " | ".join(map(str, (*cells, *more, seconds))), "|", flush=True)
    shares = sorted(measuring.shares)
    over = sum(share > 1 for share in shares)
    middle = shares[len(shares) // 2]
    print(
        f"\nfirst answers: {len(shares)}; longer than allowed: {over}; length in parts of what is"
        f" allowed: median {middle:.2f}, longest {shares[-1]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--budgets", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--context", type=int, default=4096)
    options = parser.parse_args()
    asyncio.run(measure(options.model, options.pages, options.budgets, options.context))


if __name__ == "__main__":
    main()
