"""How far judges agree with people on LLMBar, alone and at equal tokens (docs/measurements.md).

    python benchmarks/judges.py DATA/natural.json DATA/neighbor.json [--half report]
        [--judges probe pairwise ...] [--limit 40] [--orders given] [--equal-tokens] [--no-ask]
        [--json FILE]

Every call is journaled (`--store`), so it can be stopped at any time and started again; hours are
fine in the background. `--no-ask` prints the figures of what has been asked so far. Judges come one
after another, the cheapest first, each on the items of all files in turn.

Halves: wordings were chosen on items whose input has an even SHA-256 (`--half tune`). The others
(`--half report`) were not looked at before; the figures that count are theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

from textevolve.api.running import arun
from textevolve.bench.agreement import AgreementSummary, summarise
from textevolve.bench.items import Item, load_items
from textevolve.bench.verdicts import Verdict, count_samples
from textevolve.report.data import plain
from textevolve.settings import Settings, read_settings
from textevolve.studies.agreement import AgreementSpec
from textevolve.studies.labelled_items import Orders, as_case
from textevolve.wiring import Limits

JUDGES = (
    "probe",
    "probe+examples",
    "probe+rules",
    "backward",
    "probe+backward",
    "pairwise",
    "pairwise+rules",
    "reference",
    "reference+backward",
    "checklist",
    "checklist+backward",
    "jury:general+readout=pointwise+argue=false",
    "single+readout=verbalized",
    "single+readout=logprob-weighted",
    "jury:general+readout=after-argument",
    "escalation:general+readout=after-argument",
    "debate:general+readout=verbalized",
    "debate:general+readout=logprob-weighted",
    "debate:general+readout=after-argument",
    "debate:general+readout=after-argument+rules",
)


def read_half(path: str, half: str) -> list[Item]:
    """The items of a file on one side; its name is their subset."""
    name = Path(path).stem
    items = [replace(item, subset=name, id=f"{name}:{item.id}") for item in load_items(path)]
    wanted = {"tune": (0,), "report": (1,), "all": (0, 1)}[half]
    return [item for item in items if _side(item) in wanted]


def _side(item: Item) -> int:
    return int(hashlib.sha256(item.input.encode()).hexdigest(), 16) % 2


async def ask(
    judge: str,
    items: Sequence[Item],
    model: str,
    settings: Settings,
    limits: Limits,
    samples: int = 1,
    orders: Orders = "both",
) -> list[Verdict]:
    """All verdicts of one judge; what the journal holds is not asked again. Of a debate of several
    rounds, those of its first one too, as of a judge of their own."""
    spec = AgreementSpec(
        judge=(judge,), model=model, samples=samples, orders=orders, first_round=True
    )
    began = time.monotonic()
    cases = map(as_case, items)
    found = await arun(spec, cases=cases, settings=settings, limits=limits, name=judge)
    seconds = time.monotonic() - began
    print(f"{judge}: {len(found.verdicts)} verdicts, {seconds:,.0f} s", file=sys.stderr, flush=True)
    return list(found.verdicts)


def show(title: str, summary: AgreementSummary, samples: dict[str, int]) -> None:
    subsets = [part.name for part in summary.judges[0].parts]
    print(f"\n{title}: {summary.items} items")
    for part in summary.judges[0].parts:
        print(
            f"{part.name}: always the first {part.always_first:.1%},"
            f" always the shorter {part.always_shorter:.1%}"
        )
    print(f"{'judge':42} {'x':>2} " + " ".join(f"{s:>18}" for s in subsets), end="")
    print(f" {'consistent':>10} {'ties':>5} {'cover':>6} {'tokens':>7} {'s':>6}")
    for judge in summary.judges:
        cells = [
            f"{100 * p.accuracy.value:5.1f} ({100 * p.accuracy.interval.low:3.0f} to"
            f" {100 * p.accuracy.interval.high:3.0f})"
            for p in judge.parts
        ]
        consistent = judge.position.consistency.value if judge.position else float("nan")
        print(
            f"{judge.name:42} {samples.get(judge.name, 1):2} "
            + " ".join(f"{cell:>18}" for cell in cells)
            + f" {consistent:10.0%} {judge.ties:5.0%} {judge.coverage:6.0%}"
            f" {judge.per_item.tokens:7,.0f} {judge.per_item.seconds:6.1f}"
        )


async def main() -> tuple[str | None, AgreementSummary | None]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--half", choices=["tune", "report", "all"], default="report")
    parser.add_argument("--judges", nargs="+", default=list(JUDGES))
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--limit", type=int, help="items of each file")
    parser.add_argument("--orders", choices=["both", "given"], default="both")
    parser.add_argument("--equal-tokens", action="store_true")
    parser.add_argument("--no-ask", action="store_true", help="figures of what is there")
    parser.add_argument("--store", help="the file that keeps runs")
    parser.add_argument("--json", help="figures to this file")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {sys.version.split()[0]}")
    print(f"{asked.model}, half: {asked.half}")
    files = [read_half(path, asked.half)[: asked.limit] for path in asked.files]
    mixed = chain.from_iterable(zip_longest(*files))
    items = [item for item in mixed if item is not None]
    settings, _ = read_settings({"store": asked.store} if asked.store else {})
    limits = Limits(calls=0) if asked.no_ask else Limits()
    verdicts: list[Verdict] = []
    summary: AgreementSummary | None = None
    for judge in asked.judges:
        verdicts += await ask(judge, items, asked.model, settings, limits, orders=asked.orders)
        summary = summarise(items, verdicts)
        show("once", summary, {})
    if asked.equal_tokens:
        samples = count_samples(verdicts, asked.judges)
        more: list[Verdict] = []
        for judge in asked.judges:
            times = samples[judge]
            more += await ask(judge, items, asked.model, settings, limits, times, asked.orders)
        summary = summarise(items, more)
        show("at equal tokens", summary, samples)
    return asked.json, summary


if __name__ == "__main__":
    file, figures = asyncio.run(main())
    if file and figures:
        Path(file).write_text(json.dumps(plain(figures)) + "\n", encoding="utf-8")
