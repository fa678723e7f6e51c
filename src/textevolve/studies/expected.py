"""How much a study may use, and will probably use: a median and a range that holds with a
probability of 90 %.

The expectation comes from earlier runs that asked the same of other cases, scaled to as many cases,
or from rehearsals with answers of typical lengths (`rehearsal.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from textevolve.evaluation import Usage
from textevolve.settings import Settings
from textevolve.statistics.intervals import t_quantile
from textevolve.studies.stored import StoredSpec
from textevolve.studies.study import AnyStudy

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

SHARE = 0.9
"""Probability with which a range is to hold what is used."""

FIGURES = ("calls", "prompt_tokens", "completion_tokens", "tokens", "cost", "seconds")

MOST_RUNS, MOST_USED = 500, 20
"""So many of the newest runs are looked at, and so many of those that are alike are used."""

ASSUMED, WEIGHT = 0.35, 3
"""What is assumed of the standard deviation of a case's use, as a share of its mean, where less
than three runs are there to tell; and how many degrees of freedom that counts for."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the ends of its range."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Used:
    """The usage of an earlier run of so many cases. `seconds`: while a call was under way; None
    where that is not known."""

    cases: int
    usage: Usage
    seconds: float | None = None


@dataclass(frozen=True)
class Expected:
    """`runs`: how many earlier runs it comes from, 0 where it was rehearsed. A figure that is not
    known, such as a cost without a price, is left out."""

    figures: dict[str, Spread]
    runs: int = 0


@dataclass(frozen=True, slots=True)
class UsageRange:
    """The least and the most that the cases may use; a cost is None where a price is unknown.
    `parts`: further facts, each with its heading. `expected`: what the cases probably use."""

    cases: int
    least: Usage
    most: Usage
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    expected: Expected | None = None


def find_earlier(study: AnyStudy, stored: StoredSpec, settings: Settings) -> list[Used]:
    """The usage of finished runs, the newest first: of this kind, with this model and these
    options, over whatever cases. Answers that a run found in the journal count like those that it
    asked for.
    """
    from textevolve.store.repository import open_store

    if isinstance(settings.store, Path) and not settings.store.exists():
        return []
    with open_store(settings.store) as store:
        alike = [run for run in store.list_runs(MOST_RUNS) if _is_alike(study, stored, run)]
        runs = [_read_used(store, run) for run in alike[:MOST_USED]]
    return [run for run in runs if run.usage.calls]


def _is_alike(study: AnyStudy, stored: StoredSpec, run: RunRecord) -> bool:
    if run.status != "finished" or not run.n_cases or run.spec.get("kind") != stored.kind:
        return False
    try:
        return _options(study, StoredSpec.model_validate(run.spec)) == _options(study, stored)
    except ValidationError:  # of an earlier version, which had other options
        return False


def _options(study: AnyStudy, stored: StoredSpec) -> dict[str, Any]:
    """Everything that decides how much a case takes: the run's identity but its prompts' words."""
    every = stored.identity(study)
    return {name: every[name] for name in ("kind", "model", "judges", "spec")}


def _read_used(store: Store, run: RunRecord) -> Used:
    totals = store.run_totals(run.id)
    seconds = None if totals.reused.calls else store.busy_seconds(run.id)
    return Used(run.n_cases or 0, totals.spent + totals.reused, seconds)


def expect_again(earlier: Sequence[Used], cases: int) -> Expected:
    """The expected use of so many cases, if they are such as those of the earlier runs, of which
    there is at least one."""
    figures: dict[str, Spread] = {}
    for name in FIGURES:
        of = [
            (run.cases, run.seconds if name == "seconds" else getattr(run.usage, name))
            for run in earlier
        ]
        if known := [(number, value) for number, value in of if value is not None]:
            figures[name] = _predict(known, cases)
    return Expected(figures, len(earlier))


def _predict(known: Sequence[tuple[int, float]], cases: int) -> Spread:
    """A prediction interval for a sum over cases, each run being a sum over n_i of them.

    With x_i = n_i m + e_i, Var e_i = n_i s^2 (cases differ independently), m is estimated by
    sum x / sum n and s^2 by sum (x_i - n_i m)^2 / n_i / (k - 1); what is predicted has the variance
    s^2 (n + n^2 / sum n), and Student's t with k - 1 degrees of freedom gives the range. One or two
    runs say too little about s, which is then taken together with what is `ASSUMED`.
    """
    number = sum(n for n, _ in known)
    mean = sum(value for _, value in known) / number
    squares = sum((value - n * mean) ** 2 / n for n, value in known)
    freedom = len(known) - 1
    if freedom < 2:
        squares, freedom = squares + WEIGHT * (ASSUMED * mean) ** 2, freedom + WEIGHT
    deviation = math.sqrt(squares / freedom)
    half = t_quantile(SHARE, freedom) * deviation * math.sqrt(cases + cases**2 / number)
    middle = cases * mean
    return Spread(middle, max(0.0, middle - half), middle + half)


def keep_within(expected: Expected, least: Usage, most: Usage) -> Expected:
    """The same with ranges that end where the bounds do. A median stays: where earlier runs lie
    outside of the bounds, that is worth knowing."""
    figures: dict[str, Spread] = {}
    for name, spread in expected.figures.items():
        low, high = getattr(least, name, None), getattr(most, name, None)  # none of seconds
        figures[name] = Spread(
            spread.median,
            spread.low if low is None else min(spread.median, max(spread.low, low)),
            spread.high if high is None else max(spread.median, min(spread.high, high)),
        )
    return Expected(figures, expected.runs)


def expect_of_draws(draws: Sequence[Usage]) -> Expected:
    """The middle and the range of several rehearsals."""
    figures: dict[str, Spread] = {}
    for name in FIGURES[:-1]:
        values = [getattr(usage, name) for usage in draws]
        if all(value is not None for value in values):
            low, middle, high = np.quantile(values, [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2])
            figures[name] = Spread(float(middle), float(low), float(high))
    return Expected(figures)
