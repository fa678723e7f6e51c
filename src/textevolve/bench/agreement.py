"""How far judges agree with people on labelled items, and whether one does better than another.

Figures of the verdicts that `verdicts.py` gathers; the arithmetic is in `statistics`, `comparisons`
and `rankings`. Every share is over the items that have what it needs; NaN where none has. Intervals
are of 95 % and drawn by group, since items of one question are not independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np

from textevolve.bench.comparisons import (
    difference_interval,
    holm,
    items_needed,
    mcnemar_test,
    sign_flip_test,
)
from textevolve.bench.items import Item, question_of
from textevolve.bench.rankings import kendall_tau
from textevolve.bench.statistics import (
    Array,
    Interval,
    Numbers,
    ac1_of,
    bootstrap_interval,
    kappa_of,
    mean_interval,
    mean_present,
    wilson_interval,
)
from textevolve.bench.verdicts import Outcome, Verdict, gather_outcomes, judge_items
from textevolve.bench.winners import TIED, credit_place, pair_accuracy, share_winners, winner_of
from textevolve.errors import InputError
from textevolve.evaluation import Usage

__all__ = ["AgreementSummary", "Verdict", "judge_items", "summarise", "to_json"]

REASONS = 5
_NONE = Interval(math.nan, math.nan, "no item")


@dataclass(frozen=True, slots=True)
class Figure:
    value: float = math.nan
    interval: Interval = _NONE


@dataclass(frozen=True, slots=True)
class Position:
    """What the order does, over the `items` that have a winner in both orders.

    `consistency`: share with the same winner in both, its interval by Wilson. Of the others,
    `to_first` had whatever stood first win both times, `to_last` whatever stood last, `other` is
    the rest (a tie in one order, a third text). `first`: share of all presentations, ties half,
    won by the text in the first place; 0.5 is fair to a pair.
    """

    items: int
    consistency: Figure
    to_first: int
    to_last: int
    other: int
    first: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Over `items` of more than two candidates: mean Kendall tau-b with people's scores, and the
    share of pairs of candidates in people's order, a judge's tie half, theirs left out."""

    items: int
    tau: Figure
    pairs: Figure


@dataclass(frozen=True, slots=True)
class Part:
    """A subset: the judge's accuracy, with Wilson's interval, beside "always the first"."""

    name: str
    items: int
    covered: int
    accuracy: Figure
    consistency: float
    always_first: float


@dataclass(frozen=True, slots=True)
class Spending:
    """For an item, on the average, all orders and samples together. `cost` in US dollars, None
    where it is not known; `seconds` of the models' time."""

    calls: float
    tokens: float
    seconds: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """`covered` of `items` have a whole verdict in every order asked; accuracy is over these.

    `accuracy`: of the choice by both orders' mean score, ties half, with its interval drawn by
    group; `wilson` takes the items as independent. `single`: the same for one presentation alone,
    averaged. `kappa` and `ac1` are on the winners' places, a tie being shared among its places.
    `ties`: share of choices that are none. `position` is None where only one order was asked,
    `ranking` where all items are pairs. `failures`: reasons of missing verdicts and how many there
    are of each, the most frequent first.
    """

    name: str
    items: int
    covered: int
    coverage: float
    accuracy: Figure
    wilson: Interval
    single: Figure
    kappa: Figure
    ac1: Figure
    ties: float
    position: Position | None
    ranking: Ranking | None
    parts: tuple[Part, ...]
    usage: Usage
    per_item: Spending
    failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two judges on the `items` that both covered: `difference` is the first's accuracy less the
    second's. `better` and `worse` count items. p-values are two-sided: exact McNemar, and sign
    flips by group; the `_holm` ones are adjusted for all pairs of judges. `items_needed`: to find a
    difference of this size with a power of 80 % at 5 %; NaN where there is none."""

    first: str
    second: str
    items: int
    difference: Figure
    better: int
    worse: int
    mcnemar: float
    mcnemar_holm: float
    permutation: float
    permutation_holm: float
    items_needed: float


@dataclass(frozen=True, slots=True)
class AgreementSummary:
    """`winners`: share of items that people gave to the text in each place ("1", "2", ..., "tie").
    `always_first` and `always_best` are what the answers "the first" and the best single place
    would score: a judge that scores no more has shown nothing."""

    items: int
    groups: int
    winners: Mapping[str, float]
    always_first: float
    always_best: float
    judges: tuple[JudgeSummary, ...]
    comparisons: tuple[Comparison, ...]
    seed: int


def summarise(
    items: Sequence[Item], verdicts: Sequence[Verdict], *, seed: int = 0
) -> AgreementSummary:
    """The figures of each judge and of each pair of judges; the same seed gives the same intervals.

    Raises:
        InputError: there are no items or no verdicts, or they do not belong together.
    """
    if not items or not verdicts:
        raise InputError(f"nothing to summarise: {len(items)} items, {len(verdicts)} verdicts")
    outcomes = gather_outcomes(items, verdicts)
    by_judge = {name: [v for v in verdicts if v.judge == name] for name in outcomes}
    groups = [question_of(item) for item in items]
    places = range(max(len(item.candidates) for item in items))
    shares = Counter(winner_of(item.human) for item in items)
    names = {place: "tie" if place == TIED else str(place + 1) for place in (*places, TIED)}
    return AgreementSummary(
        items=len(items),
        groups=len(set(groups)),
        winners={name: shares[place] / len(items) for place, name in names.items()},
        always_first=_constant(items, 0),
        always_best=max(_constant(items, place) for place in places),
        judges=tuple(
            _Measure(items, list(of.values()), by_judge[name], groups, seed).all()
            for name, of in outcomes.items()
        ),
        comparisons=_compare_all(outcomes, groups, seed),
        seed=seed,
    )


def to_json(summary: Any) -> Any:
    """A summary as JSON-ready data; what is no number becomes None."""
    if is_dataclass(summary):
        return {f.name: to_json(getattr(summary, f.name)) for f in fields(summary)}
    if isinstance(summary, Mapping):
        return {str(k): to_json(v) for k, v in cast(Mapping[Any, Any], summary).items()}
    if isinstance(summary, list | tuple):
        return [to_json(value) for value in cast(Sequence[Any], summary)]
    if isinstance(summary, float):
        return float(summary) if math.isfinite(summary) else None
    return summary


def _constant(items: Sequence[Item], place: int) -> float:
    return mean_present([credit_place(place, item.human) for item in items])


@dataclass(frozen=True, slots=True)
class _Measure:
    """What one judge's figures are made of; outcomes and groups stand beside the items."""

    items: Sequence[Item]
    outcomes: Sequence[Outcome]
    verdicts: Sequence[Verdict]
    groups: Sequence[str]
    seed: int

    def all(self) -> JudgeSummary:
        covered = [o for o in self.outcomes if o.scores]
        credits = [o.credit for o in self.outcomes]
        usage = sum((v.usage for v in self.verdicts), Usage())
        failures = Counter(v.failure.reason for v in self.verdicts if v.failure)
        return JudgeSummary(
            name=self.outcomes[0].judge,
            items=len(self.items),
            covered=len(covered),
            coverage=len(covered) / len(self.items),
            accuracy=self.mean(credits),
            wilson=_wilson(credits),
            single=self.mean([o.single for o in self.outcomes]),
            kappa=self.agreement(kappa_of),
            ac1=self.agreement(ac1_of),
            ties=mean_present([float(o.winner == TIED) for o in covered]),
            position=self.position() if len({v.order for v in self.verdicts}) == 2 else None,
            ranking=self.ranking(),
            parts=self.parts(),
            usage=usage,
            per_item=self.spending(usage),
            failures=dict(failures.most_common(REASONS)),
        )

    def mean(self, values: Numbers) -> Figure:
        return Figure(mean_present(values), mean_interval(values, self.groups, seed=self.seed))

    def agreement(self, measure: Callable[[Array], Array]) -> Figure:
        """Of the places of the winners, beyond chance."""
        places = max(len(item.candidates) for item in self.items)
        tables = np.zeros((len(self.items), places, places))
        for table, item, outcome in zip(tables, self.items, self.outcomes, strict=True):
            if outcome.scores:
                table += share_winners(outcome.scores, item.human, places)
        interval = bootstrap_interval(
            tables.reshape(len(tables), -1),
            lambda sums: measure(sums.reshape(*sums.shape[:-1], places, places)),
            self.groups,
            seed=self.seed,
        )
        return Figure(float(measure(tables.sum(axis=0))), interval)

    def position(self) -> Position:
        flips = Counter[str]()
        first: list[float] = []
        same: list[float] = []
        for item, outcome in zip(self.items, self.outcomes, strict=True):
            last = len(item.candidates) - 1
            places = [
                w if w == TIED or order == "given" else last - w
                for order, w in outcome.winners.items()
            ]
            first += [0.5 if p == TIED else float(p == 0) for p in places]
            if len(places) == 2:
                same.append(_consistency(outcome))
                flips["same" if same[-1] else _name_flip(places, last)] += 1
        return Position(
            items=len(same),
            consistency=Figure(mean_present(same), _wilson(same)),
            to_first=flips["to_first"],
            to_last=flips["to_last"],
            other=flips["other"],
            first=mean_present(first),
        )

    def ranking(self) -> Ranking | None:
        beside = list(zip(self.items, self.outcomes, strict=True))
        if all(len(item.candidates) == 2 for item in self.items):
            return None
        tau, pairs = (
            [
                m(o.scores, i.human) if o.scores and len(o.scores) > 2 else math.nan
                for i, o in beside
            ]
            for m in (kendall_tau, pair_accuracy)
        )
        judged = sum(len(outcome.scores) > 2 for outcome in self.outcomes)
        return Ranking(judged, self.mean(tau), self.mean(pairs))

    def parts(self) -> tuple[Part, ...]:
        """A part for each subset, where there is more than one."""
        names = dict.fromkeys(item.subset for item in self.items)
        return tuple(self.part(name) for name in names) if len(names) > 1 else ()

    def part(self, name: str) -> Part:
        inside = [n for n, item in enumerate(self.items) if item.subset == name]
        credits = [self.outcomes[n].credit for n in inside]
        both = [self.outcomes[n] for n in inside if len(self.outcomes[n].winners) == 2]
        return Part(
            name=name,
            items=len(inside),
            covered=sum(not math.isnan(c) for c in credits),
            accuracy=Figure(mean_present(credits), _wilson(credits)),
            consistency=mean_present([_consistency(o) for o in both]),
            always_first=_constant([self.items[n] for n in inside], 0),
        )

    def spending(self, usage: Usage) -> Spending:
        asked = len({v.item for v in self.verdicts})
        return Spending(
            calls=usage.calls / asked,
            tokens=usage.tokens / asked,
            seconds=sum(v.seconds for v in self.verdicts) / asked,
            cost=None if usage.cost is None else usage.cost / asked,
        )


def _consistency(outcome: Outcome) -> float:
    return float(len(set(outcome.winners.values())) == 1)


def _name_flip(places: Sequence[int], last: int) -> str:
    if all(place == 0 for place in places):
        return "to_first"
    return "to_last" if all(place == last for place in places) else "other"


def _wilson(credits: Sequence[float]) -> Interval:
    present = [c for c in credits if not math.isnan(c)]
    return wilson_interval(sum(present), len(present))


def _compare_all(
    outcomes: Mapping[str, Mapping[str, Outcome]], groups: Sequence[str], seed: int
) -> tuple[Comparison, ...]:
    credits = {name: [o.credit for o in of.values()] for name, of in outcomes.items()}
    pairs = list(combinations(credits, 2))
    exact = [mcnemar_test(credits[a], credits[b]) for a, b in pairs]
    flips = [sign_flip_test(credits[a], credits[b], groups, seed=seed) for a, b in pairs]
    adjusted = [holm([test.p for test in tests]) for tests in (exact, flips)]
    return tuple(
        Comparison(
            first=a,
            second=b,
            items=exact[n].items,
            difference=Figure(
                mean_present(np.subtract(credits[a], credits[b])),
                difference_interval(credits[a], credits[b], groups, seed=seed),
            ),
            better=exact[n].first,
            worse=exact[n].second,
            mcnemar=exact[n].p,
            mcnemar_holm=float(adjusted[0][n]),
            permutation=flips[n].p,
            permutation_holm=float(adjusted[1][n]),
            items_needed=items_needed(credits[a], credits[b]),
        )
        for n, (a, b) in enumerate(pairs)
    )
