"""How many labels are enough to know how far judges agree with people, by how they are drawn?

    python benchmarks/label_draws.py report --llmbar LLMBar/Dataset/LLMBar --autoj autoj.jsonl

No model is asked. The verdicts are published ones: LLMBar (Zeng et al. 2023, arXiv 2310.07641) has
those of five models on its pairs, in both orders; on Auto-J's pairs three rules judge. The pairs of
both are in two halves by a hash of their question: on the half `choose` the way to draw that the
package has was chosen, and `report` measures it on the other.

Each half is repeated to at least 2,000 pairs, of which labels are drawn many times. *Needed* is the
number of labels with which 1.96 standard errors, over the draws, are 5 points of the judge's
agreement on all pairs; in brackets what that is less than by random draws. *Holds* is how often the
95 % interval of the package holds the agreement on all pairs, at the number needed.

Metric Match is the selection of arXiv 2606.15029, with the share of equal verdicts as its metric:
of 20 random sets the one in which the judges agree with each other as often as on all pairs. It has
no interval.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

from textevolve.bench.escalation import mean_figure
from textevolve.bench.items import TIED, Item, load_items, split_items, top_credit
from textevolve.labelling.drawing import LEAST_LABELS, Votes, draw_items, name_strata
from textevolve.statistics.intervals import Array
from textevolve.statistics.strata import stratified_mean, weigh_items

POINTS = 0.05
Z = 1.96
POOL = 2_000
NUMBERS = tuple(range(60, 361, 60))
CANDIDATES = 20
SETS = ("Natural", "Adversarial/Neighbor")
PANELS = {
    "GPT-4, ChatGPT": ("GPT-4", "ChatGPT"),
    "ChatGPT, PaLM2": ("ChatGPT", "PaLM2"),
    "ChatGPT, LLaMA2, PaLM2": ("ChatGPT", "LLaMA2", "PaLM2"),
    "GPT-4, ChatGPT, LLaMA2, PaLM2": ("GPT-4", "ChatGPT", "LLaMA2", "PaLM2"),
}


@dataclass(frozen=True, eq=False)
class Pool:
    """Pairs with the verdicts of a panel of judges, and the agreement of each with people.

    Attributes:
        votes: For each pair the place of the winner by each judge, or TIED.
        credits: The agreement with people, shape (judges, pairs).
    """

    name: str
    judges: tuple[str, ...]
    votes: tuple[Votes, ...]
    credits: Array

    @cached_property
    def strata(self) -> list[str]:
        return name_strata(self.votes)

    @cached_property
    def alone(self) -> list[str]:
        return ["all"] * len(self.votes)

    @cached_property
    def truths(self) -> Array:
        return self.credits.mean(axis=1)


# A way to draw: it returns the stratum of each pair, and draws the places of pairs.
Way = Callable[[Pool, int, np.random.Generator], tuple[Sequence[str], list[int]]]


def read_panels(llmbar: Path, half: str) -> Iterator[Pool]:
    """Yield a pool for each panel of published judges."""
    items: list[Item] = []
    winners: dict[str, dict[str, int]] = {}
    judges = sorted({judge for panel in PANELS.values() for judge in panel})

    for name in SETS:
        for judge in judges:
            path = llmbar / name / "evaluators" / judge / "Vanilla" / "result.json"
            rows = json.loads(path.read_text())
            winners.setdefault(judge, {})
            for number, row in enumerate(rows):
                id = f"{name}/{number}"
                winners[judge][id] = read_winner(row["results"][0])
                if judge == judges[0]:
                    human = (1.0, 0.0) if row["label"] == 1 else (0.0, 1.0)
                    texts = (row["output_1"], row["output_2"])
                    items.append(Item(id, row["input"], texts, human))

    chosen = choose_half(items, half)
    for panel, names in PANELS.items():
        votes = [tuple(winners[judge][item.id] for judge in names) for item in chosen]
        yield as_pool(f"LLMBar: {panel}", names, chosen, votes)


def read_winner(result: Mapping[str, Mapping[str, object]]) -> int:
    """Return the winner of both orders; TIED if the orders differ or one has none."""
    found = {str(verdict["winner"]) for verdict in result.values()}
    return int(found.pop()) - 1 if found in ({"1"}, {"2"}) else TIED


def read_rules(autoj: Path, half: str) -> Pool:
    """Return the pool of Auto-J's pairs, judged by rules."""
    items = choose_half(load_items(autoj), half)
    rules: dict[str, Callable[[str, str], float]] = {
        "longer": lambda _input, text: len(text),
        "more lines": lambda _input, text: text.count("\n"),
        "words of the question": count_shared,
    }
    votes: list[Votes] = []
    for item in items:
        of_item: list[int] = []
        for rule in rules.values():
            first, second = (rule(item.input, text) for text in item.candidates)
            of_item.append(TIED if first == second else int(second > first))
        votes.append(tuple(of_item))

    return as_pool("Auto-J: rules", tuple(rules), items, votes)


def count_shared(question: str, text: str) -> float:
    words = set(text.lower().split())
    return len(words & set(question.lower().split())) / max(1, len(words))


def choose_half(items: Sequence[Item], half: str) -> list[Item]:
    tune, report = split_items(items)
    return tune if half == "choose" else report


def as_pool(
    name: str, judges: tuple[str, ...], items: Sequence[Item], votes: Sequence[Votes]
) -> Pool:
    scores = {TIED: (0.5, 0.5), 0: (1.0, 0.0), 1: (0.0, 1.0)}
    credits = [
        [top_credit(scores[vote], item.human) for vote in of_item if vote is not None]
        for item, of_item in zip(items, votes, strict=True)
    ]
    times = math.ceil(POOL / len(items))

    return Pool(name, judges, tuple(votes) * times, np.tile(np.array(credits).T, times))


def draw_randomly(
    pool: Pool, labels: int, generator: np.random.Generator
) -> tuple[Sequence[str], list[int]]:
    places = generator.choice(len(pool.votes), labels, replace=False)
    return pool.alone, [int(place) for place in places]


def draw_in_strata(
    pool: Pool, labels: int, generator: np.random.Generator
) -> tuple[Sequence[str], list[int]]:
    """Draw as the package does: in proportion to the strata."""
    seed = int(generator.integers(1 << 31))
    number = max(labels, LEAST_LABELS * len(set(pool.strata)))
    return pool.strata, list(draw_items(pool.strata, set(), number, seed))


WAYS: Mapping[str, Way] = {"random": draw_randomly, "package": draw_in_strata}


def count_equal(votes: Votes) -> int:
    return sum(a == b for a, b in combinations(votes, 2))


def measure_errors(pool: Pool, way: Way, labels: int, draws: int) -> Array:
    """Return the errors of the estimates of each judge's agreement, shape (judges, draws)."""
    generator = np.random.default_rng(labels)
    errors = np.zeros((len(pool.judges), draws))
    for draw in range(draws):
        strata, places = way(pool, labels, generator)
        errors[:, draw] = weigh(pool, strata, places) - pool.truths

    return errors


def weigh(pool: Pool, strata: Sequence[str], places: Sequence[int]) -> Array:
    """Return the weighted mean of each judge's agreement on the pairs drawn."""
    sizes = Counter(strata)
    counts = Counter(strata[place] for place in places)
    weights = np.array([sizes[strata[place]] / counts[strata[place]] for place in places])
    return pool.credits[:, places] @ weights / weights.sum()


def match_metric(pool: Pool, labels: int, draws: int) -> Array:
    """Return the errors of Metric Match, shape (judges, draws)."""
    generator = np.random.default_rng(labels)
    equal = np.array([count_equal(votes) for votes in pool.votes], dtype=np.float64)
    errors = np.zeros((len(pool.judges), draws))

    for draw in range(draws):
        keys = generator.random((CANDIDATES, equal.size))
        candidates = np.argpartition(keys, labels, axis=1)[:, :labels]
        gaps = np.abs(equal[candidates].mean(axis=1) - equal.mean())
        errors[:, draw] = pool.credits[:, candidates[gaps.argmin()]].mean(axis=1) - pool.truths

    return errors


def count_needed(pool: Pool, errors: Callable[[int], Array]) -> Array:
    """Return the labels needed for each judge.

    The variance of a mean of n of N items is v (1 / n - 1 / N); v is averaged over the numbers of
    labels that are tried, which makes it exact to about 3 %.
    """
    total = 1 / len(pool.votes)
    squares = [(errors(n) ** 2).mean(axis=1) / (1 / n - total) for n in NUMBERS]
    variances = np.mean(squares, axis=0)
    return 1 / ((POINTS / Z) ** 2 / variances + total)


def cover(pool: Pool, way: Way, labels: int, draws: int) -> float:
    """Return how often the package's interval holds the agreement on all pairs."""
    generator = np.random.default_rng(labels)
    held: list[bool] = []

    for _ in range(draws):
        strata, places = way(pool, labels, generator)
        sizes = Counter(strata)
        drawn = [(strata[place], sizes[strata[place]]) for place in places]
        weights = weigh_items(drawn, np.ones(len(drawn), dtype=np.bool_))
        for credits, truth in zip(pool.credits, pool.truths, strict=True):
            figure = stratified_mean(credits[places], drawn, weights)
            if len(sizes) == 1:
                figure = mean_figure(credits[places], None)
            held.append(figure.interval.low <= truth <= figure.interval.high)

    return fmean(held)


def main() -> None:
    parser = argparse.ArgumentParser(description="How many labels are enough?")
    parser.add_argument("part", choices=("choose", "report"))
    parser.add_argument("--llmbar", type=Path, required=True)
    parser.add_argument("--autoj", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()

    began = time.monotonic()
    pools = [*read_panels(options.llmbar, options.part), read_rules(options.autoj, options.part)]
    totals: dict[str, list[float]] = {}

    for pool in pools:
        agreement = ", ".join(
            f"{judge} {truth:.1%}" for judge, truth in zip(pool.judges, pool.truths, strict=True)
        )
        print(f"{pool.name}: {len(set(pool.votes))} patterns; agreement {agreement}", flush=True)
        baseline = np.zeros(0)
        for name, way in WAYS.items():
            errors = partial(measure_errors, pool, way, draws=options.draws)
            needed = count_needed(pool, errors)
            baseline = baseline if baseline.size else needed
            totals.setdefault(name, []).extend(1 - needed / baseline)
            usual = round(float(np.nanmean(needed)))
            holds = cover(pool, way, usual, options.draws)
            print(f"  {name}: {describe(needed, baseline)}; holds {holds:.1%}", flush=True)

        matched = count_needed(pool, partial(match_metric, pool, draws=options.draws))
        totals.setdefault("Metric Match", []).extend(1 - matched / baseline)
        print(f"  Metric Match: {describe(matched, baseline)}", flush=True)

    print("fewer labels than by random draws, mean over judges and panels (least, most):")
    for name, shares in totals.items():
        print(
            f"  {name}: {np.nanmean(shares):.1%} ({np.nanmin(shares):.1%}, {np.nanmax(shares):.1%})"
        )
    print(f"{time.monotonic() - began:.0f} s")


def describe(needed: Array, baseline: Array) -> str:
    parts = [f"{n:.0f} ({1 - n / b:+.0%})" for n, b in zip(needed, baseline, strict=True)]
    return f"needed {', '.join(parts)}"


if __name__ == "__main__":
    main()
