"""A fit with all that is measured of it, and the file of the judge that it gives.

Every figure is out of fold: of items whose question took no part in what judged them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np

from textevolve.bench.credit import credit_place
from textevolve.bench.escalation import ThresholdSelection, mean_figure, select_threshold
from textevolve.bench.fitting import (
    Combination,
    CrossValidation,
    Problem,
    choose_ridge,
    cross_validate,
    pose_problem,
    split_folds,
    validate_columns,
)
from textevolve.bench.fitting import validate_columns as validate
from textevolve.bench.labelled_signals import LabelledSignals, Labels
from textevolve.errors import InputError
from textevolve.judges.fitted_file import (
    Figure,
    FittedFigures,
    FittedFile,
    FittedGrades,
    FittedLabels,
    FittedSignal,
    FittedThreshold,
)
from textevolve.judges.looks import LOOK
from textevolve.statistics.calibration import Calibration, measure_calibration
from textevolve.statistics.clusters import cluster_mean
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import TIE, Groups, Interval, Statistic, mean_present
from textevolve.statistics.regression import logistic
from textevolve.statistics.resampling import Array

SIZES = (0.25, 0.5, 0.75, 1.0)
REPEATS = 8
MORE_LABELS = 50
LEAST_QUESTIONS = 20
"""Of which a learning curve can say anything."""


def shapley_earnings(problem: Problem, found: CrossValidation) -> tuple[Array, Array]:
    """What each signal takes off the cross-validated log-loss, (signals,) twice: by Shapley's
    division, and what is lost where it alone is left out.

    Shapley (1953), "A value for n-person games"; of regressions: Lipovetsky and Conklin (2001),
    "Analysis of regression in game theory approach". A signal gets its mean gain over all sets of
    the others, so that two which say the same share what they earn; the sum is the gain of all
    over none. Strengths are those of the fit of all signals, fold by fold.
    """
    size = problem.data.values.shape[1]
    losses: dict[tuple[int, ...], float] = {}
    for number in range(size + 1):
        for columns in combinations(range(size), number):
            losses[columns] = validate(problem, found.folds, found.ridges, columns).loss
    earned = np.zeros(size)
    for columns, loss in losses.items():
        share = 1 / (size * math.comb(size - 1, len(columns))) if len(columns) < size else 0.0
        for signal in set(range(size)) - set(columns):
            earned[signal] += share * (loss - losses[tuple(sorted((*columns, signal)))])
    whole = tuple(range(size))
    missed = [losses[tuple(c for c in whole if c != n)] - losses[whole] for n in whole]
    return earned, np.array(missed)


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Agreement out of fold by how many items were learnt from, and what `more` would add.

    `gain`: of the fit of all items with so many more, in shares of 1, as 1 / n has it; no interval,
    and a reason, where there are too few questions to say anything."""

    points: tuple[tuple[float, Statistic], ...]
    more: int
    gain: Statistic

    @property
    def tells(self) -> bool:
        """Whether the gain is told apart from none."""
        ends = self.gain.interval
        return not math.isnan(ends.low) and (ends.low > 0 or ends.high < 0)


def draw_curve(
    problem: Problem, found: CrossValidation, *, more: int = MORE_LABELS, seed: int = 0
) -> LearningCurve:
    """Learn from a part of each fold's questions, drawn several times, and see how the held-out
    ones fare.

    The gain is extrapolated by agreement = a - b / n, by which the error of a linear classifier
    falls (Fukunaga and Hayes 1989, "Effects of sample size in classifier design"), fitted by least
    squares. That is a weighted sum of each item's credits, so the gain is a mean over items, with
    an interval by fold, since the items of one fold are judged by the same draws.
    """
    data = problem.data
    columns, rng = range(data.values.shape[1]), np.random.default_rng(seed)
    credits, learnt_from = np.zeros((len(SIZES), len(data.items))), np.zeros(len(SIZES))
    weight = np.zeros(len(SIZES))
    for (learnt, held), ridge in zip(split_folds(found.folds), found.ridges, strict=True):
        groups = np.unique(data.group_of[learnt])
        for place, share in enumerate(SIZES):
            times = 1 if share == 1 else REPEATS
            for _ in range(times):
                drawn = rng.choice(groups, max(2, round(share * len(groups))), replace=False)
                part = learnt & np.isin(data.group_of, drawn)
                fit = problem.fit(part, columns, ridge)
                told = data.credits(fit.utilities(data.values))
                credits[place] += np.where(held, told / times, 0.0)
                learnt_from[place] += part.sum() / times
            weight[place] += 1
    sizes = learnt_from / weight
    points = tuple(
        (float(n), mean_figure(c, data.groups, seed=seed))
        for n, c in zip(sizes, credits, strict=True)
    )
    if len(set(data.groups)) < LEAST_QUESTIONS:
        few = f"fewer than {LEAST_QUESTIONS} questions"
        return LearningCurve(points, more, Statistic(math.nan, Interval(math.nan, math.nan, few)))
    return LearningCurve(points, more, extrapolate(sizes, credits, more, found.folds.tolist()))


def extrapolate(sizes: Array, credits: Array, more: int, folds: Groups) -> Statistic:
    """What so many more items would add to the agreement of a fit of all, by the credits
    (sizes, items) that each item had where so many were learnt from."""
    items = credits.shape[1]
    inverse = 1 / sizes
    centred = inverse - inverse.mean()
    slopes = centred @ credits / (centred @ centred)  # minus b, of each item
    gains = slopes * (1 / (items + more) - 1 / items)
    return cluster_mean(gains, folds)


def share_earnings(names: Sequence[str], earned: Array) -> Mapping[str, float | None]:
    """Each signal's share of what all of them earn; none where they earn nothing together."""
    total = float(earned.sum())
    return {
        n: float(e) / total if total > TIE else None for n, e in zip(names, earned, strict=True)
    }


LEAST_ITEMS, LEAST_GROUPS = 20, 10
MOST_SIGNALS = 8
"""Shapley's division tries all sets of them."""
DIGITS = 6
SCORES = tuple(step / 100 for step in range(101))
CERTAINTIES = SCORES[50:]
MOSTLY = 0.5
"""The share from which a fit is said to earn by looks."""


@dataclass(frozen=True, slots=True)
class FittedSignalFigures:
    """One signal: its weight on the standardised scale, its agreement alone, its share of what the
    fit earns, what the log-loss of an item rises by without it. `log_odds`: its values are such,
    and not scores."""

    name: str
    is_look: bool
    weight: float
    mean: float
    scale: float
    alone: Statistic
    share: float | None
    missed: float
    log_odds: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit and its figures. `difference`: its agreement less that of `best`, its best single
    signal. `blind`: answers that read nothing. `loss` of an item in natural logarithms, beside that
    of knowing nothing."""

    labels: Labels
    items: int
    questions: int
    left_out: int
    missing: Mapping[str, int]
    sha256: str
    ridge: float
    signals: tuple[FittedSignalFigures, ...]
    agreement: Statistic
    best: str
    difference: Statistic
    blind: tuple[tuple[str, Statistic], ...]
    loss: float
    loss_of_nothing: float
    calibration: Calibration
    curve: LearningCurve
    selection: ThresholdSelection
    grades: FittedGrades | None
    warnings: tuple[str, ...]

    @property
    def beats_best(self) -> bool:
        return self.difference.interval.low > 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a fit is to promise: a precision, with a confidence. `good`: of ratings, the grade from
    which a text is good."""

    precision: float = 0.9
    confidence: float = 0.95
    good: float | None = None
    seed: int = 0


@lru_cache(maxsize=4)  # a report, a page and a file are made of one fit
def fit_signals(data: LabelledSignals, labels: Labels, wanted: Wanted) -> Fit:
    """
    Raises:
        InputError: there are too few items to cross-validate, or nothing can be learnt from them.
    """
    questions = len(set(data.groups))
    if len(data.items) < LEAST_ITEMS or questions < LEAST_GROUPS:
        raise InputError(
            f"too few labelled items to fit: {len(data.items)} on {questions} questions have every"
            f" signal; {LEAST_ITEMS} on {LEAST_GROUPS} are the least"
        )
    seed, groups = wanted.seed, data.groups
    problem = pose_problem(data, labels, wanted.good)
    found = cross_validate(problem, seed)
    credits = data.credits(found.utilities)
    alone = {name: _credit_alone(problem, found, place) for place, name in enumerate(data.names)}
    best = max(alone, key=lambda name: mean_present(alone[name]))
    difference = Statistic(
        mean_present(credits - alone[best]),
        difference_interval(credits, alone[best], groups, seed=seed),
    )
    everything = np.ones(len(data.items), dtype=np.bool_)
    ridge = choose_ridge(problem, everything, seed)
    whole = _rounded(problem.fit(everything, range(len(data.names)), ridge))
    signals = _describe_signals(problem, found, whole, alone, seed)
    agreement = mean_figure(credits, groups, seed=seed)
    blind = tuple((n, mean_figure(c, groups, seed=seed)) for n, c in _blind(data).items())
    nothing = validate_columns(problem, found.folds, found.ridges, ())
    return Fit(
        labels=labels,
        items=len(data.items),
        questions=questions,
        left_out=data.left_out,
        missing=data.missing,
        sha256=data.sha256,
        ridge=ridge,
        signals=signals,
        agreement=agreement,
        best=best,
        difference=difference,
        blind=blind,
        loss=found.loss / problem.size,
        loss_of_nothing=nothing.loss / problem.size,
        calibration=_calibrate(problem, found, seed),
        curve=draw_curve(problem, found, seed=seed),
        selection=_select(problem, found, credits, wanted),
        grades=_grades_of(problem, whole),
        warnings=tuple(_warn(signals, agreement, best, difference, blind)),
    )


def _describe_signals(
    problem: Problem,
    found: CrossValidation,
    whole: Combination,
    alone: Mapping[str, Array],
    seed: int,
) -> tuple[FittedSignalFigures, ...]:
    earned, missed = shapley_earnings(problem, found)
    shares = share_earnings(problem.data.names, earned)
    return tuple(
        FittedSignalFigures(
            name=name,
            is_look=is_look(name),
            weight=float(whole.weights[n]),
            mean=float(whole.means[n]),
            scale=float(whole.scales[n]),
            alone=mean_figure(alone[name], problem.data.groups, seed=seed),
            share=shares[name],
            missed=float(missed[n]) / problem.size,
            log_odds=name not in problem.data.scores,
        )
        for n, name in enumerate(problem.data.names)
    )


def is_look(name: str) -> bool:
    return name.startswith(f"{LOOK}:")


def _rounded(found: Combination) -> Combination:
    """With as many digits as the file holds, so that it judges as it was measured."""

    def cut(numbers: Array) -> Array:
        return np.array([float(f"{number:.{DIGITS}g}") for number in numbers])

    weights = cut(found.weights)
    return Combination(cut(found.means), cut(found.scales), weights, cut(found.cuts), found.levels)


def _credit_alone(problem: Problem, found: CrossValidation, place: int) -> Array:
    """A judge as it stands; a look in the direction that the other folds' labels show."""
    data = problem.data
    if not is_look(data.names[place]):
        return data.credits(data.values[:, place])
    one = validate_columns(problem, found.folds, found.ridges, [place])
    return data.credits(one.utilities)


def _blind(data: LabelledSignals) -> dict[str, Array]:
    lengths = np.array([len(text) for item in data.items for text in item.candidates], dtype=float)
    return {
        "always the first": np.array([credit_place(0, item.human) for item in data.items]),
        "always the shorter text": data.credits(-lengths),
        "always the longer text": data.credits(lengths),
    }


def _calibrate(problem: Problem, found: CrossValidation, seed: int) -> Calibration:
    """Of pairs that the first is the better one, without people's ties; of ratings that a text is
    good."""
    groups = np.array(problem.data.groups, dtype=object)[problem.row_owner]
    if problem.grades is not None:
        good = problem.grades.good_level
        said = found.chances[:, good:].sum(axis=1).clip(0, 1)
        so = (problem.grades.levels >= good).astype(np.float64)
        return measure_calibration(said, so, groups.tolist(), seed=seed)
    assert problem.pairs is not None
    pairs = problem.pairs
    decided = pairs.shares != 0.5
    odds = found.utilities[pairs.first[decided]] - found.utilities[pairs.second[decided]]
    so = pairs.shares[decided]
    return measure_calibration(logistic(odds), so, groups[decided].tolist(), seed=seed)


def _select(
    problem: Problem, found: CrossValidation, credits: Array, wanted: Wanted
) -> ThresholdSelection:
    """The lowest score from which the judge's word is right as often as is wanted."""
    data = problem.data
    groups: Sequence[str] = data.groups
    if problem.grades is None:
        scores = data.top_scores(found.utilities)
    else:
        values = problem.grades.values
        scores = (found.chances @ values - values[0]) / (values[-1] - values[0])
        credits = (problem.grades.levels >= problem.grades.good_level).astype(np.float64)
        groups = [data.groups[int(item)] for item in data.owner]
    return select_threshold(
        scores,
        credits,
        groups,
        agreement=wanted.precision,
        confidence=wanted.confidence,
        thresholds=CERTAINTIES if problem.grades is None else SCORES,
        seed=wanted.seed,
    )


def _grades_of(problem: Problem, whole: Combination) -> FittedGrades | None:
    if problem.grades is None:
        return None
    values = tuple(float(f"{value:.{DIGITS}g}") for value in problem.grades.values)
    good = values[problem.grades.good_level]
    return FittedGrades(values=values, cuts=tuple(whole.cuts.tolist()), good=good)


def _warn(
    signals: Sequence[FittedSignalFigures],
    agreement: Statistic,
    best: str,
    difference: Statistic,
    blind: Sequence[tuple[str, Statistic]],
) -> list[str]:
    """What whoever uses it must know, each by name."""
    warnings: list[str] = []
    if len(signals) > 1 and not difference.interval.low > 0:
        warnings.append(
            f"The fit does not beat its best single signal, {best}, beyond the interval:"
            f" {say_points(difference)}. Use {best} alone, or label more items."
        )
    looks = [s for s in signals if s.is_look]
    earned = sum(s.share or 0.0 for s in looks)
    if looks and earned >= MOSTLY:
        named = ", ".join(s.name for s in looks)
        warnings.append(
            f"{earned:.0%} of what the fit earns comes from looks ({named}): it rewards how texts"
            " look more than what they say, and whoever writes for it will find out."
        )
    name, value = max(((n, s.value) for n, s in blind), key=lambda one: one[1])
    if agreement.value <= value:
        warnings.append(
            f"{name.capitalize()} agrees with people in {value:.0%} of these items, and the fit in"
            f" {agreement.value:.0%}: it has shown nothing."
        )
    if all(signal.share is None for signal in signals):
        warnings.append("The signals together tell no more than nothing does.")
    return warnings


def say_points(figure: Statistic) -> str:
    """A difference of shares in points of 100, with its interval."""
    ends, said = figure.interval, f"{100 * figure.value:+.1f} points"
    if math.isnan(ends.low):
        return f"{said} (no interval: {ends.reason})"
    return f"{said} ({100 * ends.low:+.1f} to {100 * ends.high:+.1f})"


def guarantee_of(fit: Fit) -> str:
    """What the threshold promises, in one sentence."""
    made = fit.selection
    if made.threshold is None:
        return f"none: {_why_none(made)}"
    what = "choices" if fit.labels == "pairs" else "texts"
    right = "agree with people"
    if fit.grades is not None:
        right = f"have a grade of {fit.grades.good:g} or more"
    return (
        f"With a confidence of {made.confidence:.0%}, at least {made.agreement:.0%} of new {what}"
        f" like the labelled ones {right} where the score is {made.threshold:g} or more."
    )


def _why_none(made: ThresholdSelection) -> str:
    if not made.steps:
        return f"{made.items} questions are too few to show that it is right so often"
    step = made.steps[0]
    return (
        f"it errs too often: of {step.items} with a score of {step.threshold:g} or more"
        f" {step.errors} are wrong, so up to {step.bound:.0%} may be, where"
        f" {1 - made.agreement:.0%} are allowed"
    )


def file_of(
    fit: Fit,
    models: Mapping[str, str | None],
    orders: Literal["both", "given"],
    date: datetime.date,
) -> FittedFile:
    """The judge's file. `models`: of each signal the one that it was asked with."""
    made = fit.selection
    return FittedFile(
        fitted_to=fit.labels,
        date=date,
        orders=orders,
        signals=tuple(
            FittedSignal(
                judge=signal.name,
                model=models.get(signal.name),
                values="log-odds" if signal.log_odds else "scores",
                weight=signal.weight,
                mean=signal.mean,
                scale=signal.scale,
                share=None if signal.share is None else _short(signal.share),
                alone=_figure(signal.alone),
            )
            for signal in fit.signals
        ),
        ridge=fit.ridge,
        grades=fit.grades,
        threshold=FittedThreshold(
            value=0.5 if made.threshold is None else made.threshold,
            precision=made.agreement,
            confidence=made.confidence,
            holds=made.threshold is not None,
            guarantee=guarantee_of(fit),
        ),
        labels=FittedLabels(
            items=fit.items,
            questions=fit.questions,
            left_out=fit.left_out,
            sha256=fit.sha256,
        ),
        cross_validated=FittedFigures(
            agreement=_figure(fit.agreement),
            best_signal=fit.best,
            difference=_figure(fit.difference),
            log_loss=_short(fit.loss),
            log_loss_of_nothing=_short(fit.loss_of_nothing),
            brier=_short(fit.calibration.brier.value),
            ece=_short(fit.calibration.ece.value),
        ),
        warnings=fit.warnings,
    )


def _short(value: float) -> float:
    return round(value, 4)


def _figure(figure: Statistic) -> Figure:
    numbers = (figure.value, figure.interval.low, figure.interval.high)
    value, low, high = (_short(n) if math.isfinite(n) else None for n in numbers)
    return Figure(value=value, low=low, high=high)
