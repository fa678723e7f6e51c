"""The figures of a fitted judge, which is a weighted combination of several judges (signals), and
its file.

All figures are cross-validated: an item is judged by weights that were learnt without the items of
its question.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from textevolve.bench.credit import blind_credits
from textevolve.bench.escalation import (
    ThresholdSelection,
    difference_figure,
    format_points,
    mean_figure,
    select_threshold,
)
from textevolve.bench.fitting import (
    Combination,
    CrossValidation,
    LabelledSignals,
    choose_ridge,
    cross_validate,
    validate_columns,
)
from textevolve.errors import InputError
from textevolve.judges.fitted_file import FittedFile, FittedSignal, FittedThreshold
from textevolve.judges.looks import LOOK
from textevolve.statistics.calibration import Calibration, measure_calibration
from textevolve.statistics.intervals import Statistic, mean_present
from textevolve.statistics.regression import logistic
from textevolve.statistics.resampling import Array

LEAST_ITEMS, LEAST_GROUPS = 20, 10
DIGITS = 6  # the significant digits of the numbers in a judge's file
# The candidate thresholds for scores of single responses.
SCORES = tuple(step / 100 for step in range(101))
# The candidate thresholds for the certainty about a pair, which is at least one half.
CERTAINTIES = SCORES[50:]


@dataclass(frozen=True, slots=True)
class FittedSignalFigures:
    """The figures of one signal in a fitted judge.

    Attributes:
        weight: The weight of the signal's standardised value.
        mean: The mean of its values, which standardisation subtracts; `scale`: their standard
            deviation, by which it divides.
        alone: The agreement of this signal alone with people.
        log_odds: Whether its values are log-odds; if not, they are scores.
    """

    name: str
    weight: float
    mean: float
    scale: float
    alone: Statistic
    log_odds: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted judge with its cross-validated figures.

    Attributes:
        labels: Whether it was fitted to pairs or to single responses.
        items: The number of items, from `questions` different questions.
        left_out: The number of items left out because a signal has no verdict.
        missing: The number of items without a verdict, by signal.
        sha256: The hash of the labelled items.
        ridge: The selected strength of the regularisation.
        agreement: The agreement of the fitted judge with people.
        best: The name of the best single signal; `difference`: the agreement of the fitted judge
            minus that of this signal.
        blind: The agreement of rules that do not read the texts.
        loss: The mean log-loss of an item (natural logarithm); `loss_of_nothing`: that of a fit
            without any signal.
        calibration: The calibration of the judge's probabilities.
        selection: The score from which the judge may be relied on.
        good: The label of a good single response, which is 1; None for pairs.
        intercept: The intercept of the regression; 0 for pairs.
        warnings: Sentences on reasons to doubt the figures.
    """

    labels: Literal["pairs", "ratings"]
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
    selection: ThresholdSelection
    good: float | None
    intercept: float
    warnings: tuple[str, ...]

    @property
    def are_single(self) -> bool:
        """Tell whether the judge was fitted to single responses."""
        return self.labels == "ratings"


def fit_signals(
    data: LabelledSignals,
    *,
    precision: float = 0.9,
    confidence: float = 0.95,
    seed: int = 0,
) -> Fit:
    """Fit the weights of the signals to people's labels, and select the score from which the judge
    is right with the probability `precision`, at the given `confidence`.

    Raises:
        InputError: there are too few items to cross-validate, or nothing can be learnt from them.
    """
    groups = data.groups
    require_enough(len(data.items), len(set(groups)))
    validation = cross_validate(data, seed)
    credits = data.credits(validation.utilities)
    alone = {name: _credit_alone(data, validation, n) for n, name in enumerate(data.names)}
    best = max(alone, key=lambda name: mean_present(alone[name]))
    everything = np.ones(len(data.items), dtype=np.bool_)
    ridge = choose_ridge(data, everything, seed)
    full_fit = _rounded(data.fit(everything, range(len(data.names)), ridge))
    nothing = validate_columns(data, validation.folds, validation.ridges, ())
    size = float(data.rows.counts.sum())
    signals = tuple(
        FittedSignalFigures(
            name=name,
            weight=float(full_fit.weights[n]),
            mean=float(full_fit.means[n]),
            scale=float(full_fit.scales[n]),
            alone=mean_figure(alone[name], groups, seed=seed),
            log_odds=name not in data.scores,
        )
        for n, name in enumerate(data.names)
    )
    agreement = mean_figure(credits, groups, seed=seed)
    difference = difference_figure(credits, alone[best], groups, seed)
    answers = blind_credits(data.items).items()
    blind = tuple((name, mean_figure(c, groups, seed=seed)) for name, c in answers)
    return Fit(
        labels="ratings" if data.are_single else "pairs",
        items=len(data.items),
        questions=len(set(groups)),
        left_out=data.left_out,
        missing=data.missing,
        sha256=data.sha256,
        ridge=ridge,
        signals=signals,
        agreement=agreement,
        best=best,
        difference=difference,
        blind=blind,
        loss=validation.loss / size,
        loss_of_nothing=nothing.loss / size,
        calibration=_calibrate(data, validation, seed),
        selection=_select(data, validation, credits, (precision, confidence), seed),
        good=1.0 if data.are_single else None,
        intercept=full_fit.intercept,
        warnings=tuple(_warn(data.names, agreement, best, difference, blind)),
    )


def require_enough(items: int, questions: int) -> None:
    """Raise InputError if there are too few items or questions to cross-validate a fit."""
    if items < LEAST_ITEMS or questions < LEAST_GROUPS:
        raise InputError(
            f"too few labelled items to fit: {items} on {questions} questions; label at least"
            f" {LEAST_ITEMS} on {LEAST_GROUPS}"
        )


def _rounded(fit: Combination) -> Combination:
    """Round the numbers of a fit to the digits in the judge's file, so that the figures are those
    of the stored judge."""

    def cut(numbers: Array) -> Array:
        return np.array([_round(number) for number in numbers])

    return Combination(cut(fit.means), cut(fit.scales), cut(fit.weights), _round(fit.intercept))


def _round(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _credit_alone(data: LabelledSignals, validation: CrossValidation, place: int) -> Array:
    """Return the credit of one signal alone on each item. Signals of single responses, and simple
    properties of a text (such as its length), are first given a threshold or sign learnt on the
    other folds."""
    if not (data.are_single or data.names[place].startswith(f"{LOOK}:")):
        return data.credits(data.values[:, place])
    look = validate_columns(data, validation.folds, validation.ridges, [place])
    return data.credits(look.utilities)


def _calibrate(data: LabelledSignals, validation: CrossValidation, seed: int) -> Calibration:
    """Measure the calibration of the judge's probability that the first text of a pair is the
    better one (without people's ties), or that people pass a single response."""
    rows = data.rows
    decided = rows.shares != 0.5
    odds = rows.take(validation.utilities)[decided]
    groups = np.array(data.groups, dtype=object)[rows.owner[decided]]
    return measure_calibration(logistic(odds), rows.shares[decided], groups.tolist(), seed=seed)


def _select(
    data: LabelledSignals,
    validation: CrossValidation,
    credits: Array,
    promise: tuple[float, float],
    seed: int,
) -> ThresholdSelection:
    """Select the lowest score from which the judge is right often enough. `promise`: the required
    share of right verdicts, and the confidence."""
    if data.are_single:
        scores, credits = logistic(validation.utilities), data.human
    else:
        scores = data.top_scores(validation.utilities)
    return select_threshold(
        scores,
        credits,
        data.groups,
        agreement=promise[0],
        confidence=promise[1],
        thresholds=SCORES if data.are_single else CERTAINTIES,
        seed=seed,
    )


def _warn(
    signals: Sequence[str],
    agreement: Statistic,
    best: str,
    difference: Statistic,
    blind: Sequence[tuple[str, Statistic]],
) -> Iterator[str]:
    if len(signals) > 1 and not difference.interval.low > 0:
        yield (
            f"The fit does not beat its best single signal, {best}, beyond the interval:"
            f" {format_points(difference)}. Use {best} alone, or label more items."
        )
    name, value = max(((n, figure.value) for n, figure in blind), key=lambda answer: answer[1])
    if agreement.value <= value:
        yield (
            f"{name.capitalize()} agrees with people in {value:.0%} of these items, and the fit in"
            f" {agreement.value:.0%}: the fit has shown nothing."
        )


def describe_guarantee(fit: Fit) -> str:
    """Describe the guarantee of the threshold in a sentence, or the reason why there is none."""
    selection = fit.selection
    if selection.threshold is not None:
        subject, right = ("texts", "pass") if fit.are_single else ("choices", "agree with people")
        return (
            f"With a confidence of {selection.confidence:.0%}, at least {selection.agreement:.0%}"
            f" of new {subject} like the labelled ones {right} where the score is"
            f" {selection.threshold:g} or more."
        )
    if not selection.steps:
        return f"none: {selection.items} questions are too few to show so high an agreement"
    return f"none: {selection.reason}"


def file_of(
    fit: Fit,
    models: Mapping[str, str | None],
    orders: Literal["both", "given"],
    date: datetime.date,
) -> FittedFile:
    """Return the content of the fitted judge's file. `models`: the model that each signal was
    computed with."""
    selection = fit.selection
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
                alone=_figure(signal.alone),
            )
            for signal in fit.signals
        ),
        ridge=fit.ridge,
        good=fit.good,
        intercept=fit.intercept,
        threshold=FittedThreshold(
            value=0.5 if selection.threshold is None else selection.threshold,
            precision=selection.agreement,
            confidence=selection.confidence,
            holds=selection.threshold is not None,
            guarantee=describe_guarantee(fit),
        ),
        labels={
            "items": fit.items,
            "questions": fit.questions,
            "left_out": fit.left_out,
            "sha256": fit.sha256,
        },
        cross_validated={
            "agreement": _figure(fit.agreement),
            "best_signal": fit.best,
            "difference": _figure(fit.difference),
            "log_loss": round(fit.loss, 4),
            "log_loss_of_nothing": round(fit.loss_of_nothing, 4),
            "brier": round(fit.calibration.brier.value, 4),
            "ece": round(fit.calibration.ece.value, 4),
        },
        warnings=fit.warnings,
    )


def _figure(figure: Statistic) -> dict[str, float | None]:
    """Return a figure with the ends of its 95 % interval; a missing end is None."""
    ends = {"value": figure.value, "low": figure.interval.low, "high": figure.interval.high}
    return {name: round(n, 4) if math.isfinite(n) else None for name, n in ends.items()}
