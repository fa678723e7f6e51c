"""How far judges agree with people on LLMBar, alone and weighed together (docs/measurements.md).

    python benchmarks/judges.py DATA/natural.json DATA/neighbor.json [--half report]
        [--judges probe pairwise ...] [--limit 40] [--longest 500] [--orders given]
        [--fit decide,probe,look:length ...] [--no-ask]

Every call is journaled (`--store`), so it can be stopped at any time and started again; hours are
fine in the background. `--no-ask` prints the figures of what has been asked so far. Judges come one
after another, the cheapest first, each on the items of all files in turn.

`--fit` weighs the judges of a list, such as decide,look:length, as people's labels say; each
item is judged by a fit that saw no item of its question. *read*: tokens that did not come from the
server's cache.

Halves: wordings were chosen on items whose input has an even SHA-256 (`--half tune`). The others
(`--half report`) were not looked at before; the figures that count are theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

from sitting import describe_machine
from textevolve.api.client import AsyncClient
from textevolve.bench.agreement import AgreementSummary, summarise
from textevolve.bench.fitting import cross_validate, fit_signals, gather_signals
from textevolve.bench.items import Item, load_items
from textevolve.bench.verdicts import Verdict
from textevolve.evaluation import Usage
from textevolve.judges.judge import parse_judge
from textevolve.settings import Settings, read_settings
from textevolve.statistics.intervals import wilson_interval
from textevolve.studies.labels.agreement import AgreementSpec
from textevolve.studies.labels.base import Orders, as_case
from textevolve.wiring import Limits

JUDGES = (
    "probe",
    "probe+examples",
    "probe+rules",
    "instruction-likelihood",
    "decide",
    "decide+rubric=benchmarks/levels.md",
    "decide+pairwise",
    "pairwise",
    "pairwise+rules",
    "reference",
    "checklist",
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


def read_half(path: str, half: str, longest: int | None = None) -> list[Item]:
    """The items of a file on one side; its name is their subset. `longest`: characters that the
    instruction has together with the longer text, at most."""
    name = Path(path).stem
    items = [replace(item, subset=name, id=f"{name}:{item.id}") for item in load_items(path)]
    sides = {"tune": (0,), "report": (1,), "all": (0, 1)}[half]
    return [item for item in items if _side(item) in sides and _length(item) <= (longest or 1e9)]


def _length(item: Item) -> int:
    return len(item.input) + max(map(len, item.candidates))


def _side(item: Item) -> int:
    return int(hashlib.sha256(item.input.encode()).hexdigest(), 16) % 2


async def ask(
    judge: str,
    items: Sequence[Item],
    model: str,
    settings: Settings,
    limits: Limits,
    orders: Orders = "both",
) -> list[Verdict]:
    """All verdicts of one judge; what the journal holds is not asked again."""
    spec = AgreementSpec(judge=(parse_judge(judge),), model=model, orders=orders)
    began = time.monotonic()
    cases = map(as_case, items)
    client = AsyncClient(settings=settings, limits=limits)
    agreement = await client.run(spec, cases=cases, name=judge)
    seconds = time.monotonic() - began
    print(
        f"{judge}: {len(agreement.verdicts)} verdicts, {seconds:,.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return list(agreement.verdicts)


def show(items: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
    summary = summarise(items, verdicts)
    subsets: dict[str, AgreementSummary] = {}
    for name in dict.fromkeys(item.subset for item in items):
        part = {item.id: item for item in items if item.subset == name}
        subsets[name] = summarise(list(part.values()), [v for v in verdicts if v.item in part])
    print(f"\n{summary.items} items")
    print(f"always the first {summary.always_first:.1%}, the shorter {summary.always_shorter:.1%}")
    print(f"{'judge':42} " + " ".join(f"{s:>18}" for s in subsets), end="")
    print(f" {'ties':>5} {'cover':>6} {'Brier':>6} {'ECE':>5}", end="")
    print(f" {'calls':>6} {'tokens':>7} {'read':>6} {'s':>6}")
    for judge in summary.judges:
        cells = [
            f"{100 * p.accuracy.value:5.1f} ({100 * p.accuracy.interval.low:3.0f} to"
            f" {100 * p.accuracy.interval.high:3.0f})"
            for p in (part.judge(judge.name) for part in subsets.values())
        ]
        calibration = judge.calibration
        brier, ece = (
            (calibration.brier.value, calibration.ece.value)
            if calibration
            else (math.nan, math.nan)
        )
        processed = judge.per_item.tokens * _processed(judge.usage)
        print(
            f"{judge.name:42} "
            + " ".join(f"{cell:>18}" for cell in cells)
            + f" {judge.ties:5.0%} {judge.coverage:6.0%} {brier:6.3f} {ece:5.3f}"
            f" {judge.per_item.calls:6.1f} {judge.per_item.tokens:7,.0f}"
            f" {processed:6,.0f} {judge.per_item.seconds:6.1f}"
        )


def _processed(usage: Usage) -> float:
    """The share of tokens that did not come from the server's cache."""
    return 1 - usage.cached_tokens / usage.tokens if usage.tokens else math.nan


def show_fit(names: Sequence[str], items: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
    """The agreement of a fit, out of fold, for each set and for both."""
    data = gather_signals(items, verdicts, tuple(names))
    fit = fit_signals(data)
    credits = data.credits(cross_validate(data, 0).utilities)
    print(f"\nfit of {', '.join(names)}: {fit.items} items, {data.left_out} left out")
    for part in dict.fromkeys(item.subset for item in data.items):
        ours = [c for c, item in zip(credits, data.items, strict=True) if item.subset == part]
        interval = wilson_interval(sum(ours), len(ours))
        low, high = 100 * interval.low, 100 * interval.high
        print(f"  {part:10} {100 * sum(ours) / len(ours):5.1f} ({low:.0f} to {high:.0f})")
    brier, ece = fit.calibration.brier.value, fit.calibration.ece.value
    low, high = 100 * fit.difference.interval.low, 100 * fit.difference.interval.high
    print(f"  both       {100 * fit.agreement.value:5.1f}, Brier {brier:.3f}, ECE {ece:.3f}")
    print(f"  more than {fit.best}: {100 * fit.difference.value:.1f} ({low:.1f} to {high:.1f})")
    for signal in fit.signals:
        print(f"  {signal.name:34} weight {signal.weight:6.2f}")
    for warning in fit.warnings:
        print(f"  warning: {warning}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--half", choices=["tune", "report", "all"], default="report")
    parser.add_argument("--judges", nargs="+", default=list(JUDGES))
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--limit", type=int, help="items of each file")
    parser.add_argument("--longest", type=int, help="characters of an item's instruction and text")
    parser.add_argument("--fit", nargs="+", default=[], help="lists of judges to weigh")
    parser.add_argument("--orders", choices=["both", "given"], default="both")
    parser.add_argument("--no-ask", action="store_true", help="figures of what is there")
    parser.add_argument("--store", help="the file that keeps runs")
    options = parser.parse_args()
    print(describe_machine())
    print(f"{options.model}, half: {options.half}")
    files = [
        read_half(path, options.half, options.longest)[: options.limit] for path in options.files
    ]
    mixed = chain.from_iterable(zip_longest(*files))
    items = [item for item in mixed if item is not None]
    settings = read_settings(store=options.store or None)
    limits = Limits(calls=0) if options.no_ask else Limits()
    verdicts: list[Verdict] = []
    for judge in options.judges:
        verdicts += await ask(judge, items, options.model, settings, limits, orders=options.orders)
        show(items, verdicts)
    for names in options.fit:
        show_fit(names.split(","), items, verdicts)


if __name__ == "__main__":
    asyncio.run(main())
