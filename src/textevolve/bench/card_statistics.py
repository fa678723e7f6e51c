"""What a card's checks are made of: rates with intervals, means, examples.

Which rates there are, and what counts in them, is in `card_checks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np

from textevolve.bench.card_cases import CardCase, Family
from textevolve.bench.card_questions import CardRefusal
from textevolve.statistics.intervals import Interval, mean_interval, wilson_interval

WantedEnd: TypeAlias = Literal["low", "high"]
CardVerdict: TypeAlias = bool | CardRefusal | None
"""Whether a case counts; None where a judgement is missing."""
Verdicts: TypeAlias = list[tuple[CardCase, CardVerdict]]


@dataclass(frozen=True, slots=True)
class Rate:
    """The share of cases that `meaning` names: `hits` of `count`, with its 95 % interval (Wilson).

    Of `asked` cases, `refused` are such as the judge does not take; `coverage` is the share of the
    others that could be counted. `wanted`: which end a good judge is at.
    """

    name: str
    meaning: str
    wanted: WantedEnd
    hits: int
    count: int
    asked: int
    refused: int
    rate: float | None
    interval: tuple[float, float] | None
    coverage: float | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class CardStatistic:
    """A mean or slope over `count` cases with its 95 % interval; `note` says why one is missing."""

    name: str
    meaning: str
    value: float | None
    interval: tuple[float, float] | None
    count: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShownCase:
    """One judgement of an example: how it was asked, as `CardQuestion` has it, and the two scores
    in [0, 1]."""

    attacked: bool
    good_first: bool
    seed: int | None
    good: float
    bad: float
    wording: int = 0
    irrelevant: bool = False
    place: int | None = None


@dataclass(frozen=True, slots=True)
class CardExample:
    """One of the cases on which the judge did worst. `fault`: it did what it should not, else it
    only came nearest to it. `bad` is as it was judged, with any attack. `more`: further texts of
    the case, each with what it is."""

    id: str
    kind: str
    input: str
    good: str
    bad: str
    fault: bool
    said: str
    answers: tuple[ShownCase, ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """What the card says of one family. `kinds` splits its main rate. The counts of questions are
    of the family's own cases; `coverage` leaves refused ones out, None where all were refused."""

    family: Family
    title: str
    rates: tuple[Rate, ...]
    statistics: tuple[CardStatistic, ...]
    kinds: tuple[Rate, ...]
    examples: tuple[CardExample, ...]
    cases: int
    questions: int
    scored: int
    failed: int
    refused: int
    coverage: float | None


def count_rate(
    name: str,
    meaning: str,
    wanted: WantedEnd,
    verdicts: Verdicts,
    kind: str = "",
) -> Rate:
    counted = [verdict for _, verdict in verdicts if isinstance(verdict, bool)]
    refused = sum(isinstance(verdict, CardRefusal) for _, verdict in verdicts)
    hits, count, taken = sum(counted), len(counted), len(verdicts) - refused
    return Rate(
        name=name,
        meaning=meaning,
        wanted=wanted,
        hits=hits,
        count=count,
        asked=len(verdicts),
        refused=refused,
        rate=hits / count if count else None,
        interval=ends_of(wilson_interval(hits, count)),
        coverage=count / taken if taken else None,
        kind=kind,
    )


def count_by_kind(
    name: str,
    meaning: str,
    wanted: WantedEnd,
    verdicts: Verdicts,
) -> tuple[Rate, ...]:
    kinds = dict.fromkeys(case.kind for case, _ in verdicts)
    return tuple(
        count_rate(name, meaning, wanted, [v for v in verdicts if v[0].kind == kind], kind)
        for kind in kinds
        if kind
    )


def average(name: str, meaning: str, values: Sequence[float], least: float = -1.0) -> CardStatistic:
    """The mean of figures from `least` to 1."""
    found = mean_interval(values, bounds=(least, 1.0))
    value = fmean(values) if values else None
    return CardStatistic(name, meaning, value, ends_of(found), len(values), found.reason)


def ends_of(interval: Interval) -> tuple[float, float] | None:
    return None if np.isnan(interval.low) else (interval.low, interval.high)
