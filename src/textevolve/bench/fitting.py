"""Fitting of a judge: the values of several judges (signals) on labelled items are weighted so that
the sum agrees with people, and the weights are cross-validated by question.

Pairs are fitted by a logistic regression on differences of the two texts' values, single responses
by a regression on whether people pass them. In each fold the values are standardised, and the ridge
strength is chosen, on the training part alone, so that the figures of a fold were learnt without
it. Callers decide which signals are used.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Literal, TypeAlias

from textevolve.bench.escalation import (
    ThresholdSelection,
    difference_figure,
    format_points,
    mean_figure,
    select_threshold,
)
from textevolve.bench.items import Item, blind_credits, label_credit
from textevolve.bench.verdicts import Verdict, gather_outcomes
from textevolve.errors import InputError
from textevolve.judges.fitted import FittedFile, FittedSignal, FittedThreshold
from textevolve.judges.plain import LOOK
from textevolve.llm.model import text_hash
from textevolve.loading import NDArray, np
from textevolve.statistics.calibration import (
    Calibration,
    fit_logistic,
    log_logistic,
    logistic,
    measure_calibration,
)
from textevolve.statistics.intervals import (
    TIE,
    Array,
    Statistic,
    group_numbers,
    mean_present,
    vector,
)

Numbering: TypeAlias = "NDArray[np.intp]"
Mask: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, eq=False)
class LabelledSignals:
    """Labelled items with the value of every signal for each candidate. The candidates of all items
    are numbered consecutively; they are called texts below.

    Attributes:
        names: The names of the signals.
        values: The values, shape (texts, signals).
        missing: The number of labelled items without a complete verdict, by signal.
        left_out: The number of items that are left out since a verdict is missing.
        scores: The signals whose values are scores; those of the others are log-odds.
    """

    names: tuple[str, ...]
    items: tuple[Item, ...]
    values: Array
    missing: Mapping[str, int]
    left_out: int
    scores: frozenset[str] = frozenset()

    @cached_property
    def owner(self) -> Numbering:
        """Return the number of the item that each text belongs to."""
        return np.repeat(np.arange(len(self.items)), [len(i.candidates) for i in self.items])

    @cached_property
    def starts(self) -> Numbering:
        """Return the number of the first text of each item."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    @cached_property
    def human(self) -> Array:
        labels = chain.from_iterable(item.human for item in self.items)
        return vector(list(labels))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(item.group for item in self.items)

    @cached_property
    def group_of(self) -> Numbering:
        """Return the question number of each item."""
        return group_numbers(self.groups, len(self.items))

    @property
    def are_single(self) -> bool:
        """Tell whether the items are single responses, whose grades are shares of people."""
        return any(item.is_single for item in self.items)

    def credits(self, scores: Array) -> Array:
        """Compute for each item how well the scores of its texts agree with people's labels, from 0
        to 1, shape (items,). `scores`: one for each text of all items. Of several texts it is the
        share of winners in common (`top_credit`). A single response passes from a score of 0 on,
        and has 1 if most people agree with that, otherwise 0 (`label_credit`)."""
        if self.are_single:
            passes = (scores >= 0).tolist()
            return np.array(list(map(label_credit, passes, self.human)))
        ours = self._winners(scores)
        theirs = self._winners(self.human)

        return self._sum(ours & theirs) / np.maximum(self._sum(ours), self._sum(theirs))

    def top_scores(self, utilities: Array) -> Array:
        """Compute the score of each item's best text, shape (items,): the logistic function of its
        utility minus the mean utility of the others."""
        best = np.maximum.reduceat(utilities, self.starts)
        sizes = self._sum(np.ones(len(self.owner)))
        mean_others = (np.add.reduceat(utilities, self.starts) - best) / (sizes - 1)
        return logistic(best - mean_others)

    def _winners(self, scores: Array) -> NDArray[np.bool_]:
        return scores >= np.maximum.reduceat(scores, self.starts)[self.owner] - TIE

    def _sum(self, values: NDArray[np.bool_] | Array) -> Array:
        """Return the sum of an item's texts, for each item."""
        return np.add.reduceat(values.astype(np.float64), self.starts)

    @cached_property
    def rows(self) -> LabelRows:
        """Return the regression rows of the labels.

        Raises:
            InputError: single responses all have the same label.
        """
        return _response_rows(self) if self.are_single else _pair_rows(self)

    def fit(self, items: Mask, columns: Sequence[int], ridge: float) -> Combination:
        """Fit the signals in `columns` to the selected items; all other signals get the weight
        0."""
        size = self.values.shape[1]
        chosen = list(columns)
        means = np.zeros(size)
        scales = np.ones(size)
        weights = np.zeros(size)
        means[chosen] = self.values[items[self.owner]][:, chosen].mean(axis=0)
        selected = items[self.rows.owner]
        design = self.rows.take(self.values)[selected][:, chosen]
        counts = self.rows.counts[selected]
        ridges = np.full(len(chosen), ridge)
        if self.are_single:
            design = design - means[chosen]
        scale = np.sqrt((counts @ design**2) / counts.sum())
        scales[chosen] = np.where(scale > TIE, scale, 1.0)
        design = design / scales[chosen]
        if self.are_single:
            design = np.column_stack([design, np.ones(len(design))])
            ridges = np.append(ridges, UNPENALISED)
        fitted = fit_logistic(design, self.rows.shares[selected], counts, ridges)
        weights[chosen] = fitted[: len(chosen)]

        return Combination(means, scales, weights, float(fitted[len(chosen) :].sum()))

    def losses(self, fit: Combination, items: Mask) -> Array:
        """Compute the log-loss of each row of the selected items."""
        selected = items[self.rows.owner]
        odds = self.rows.take(fit.utilities(self.values))[selected]
        shares = self.rows.shares[selected]
        loss = shares * log_logistic(odds) + (1 - shares) * log_logistic(-odds)
        return -self.rows.counts[selected] * loss

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 hash of ids, texts, labels and groups, which does not depend on the
        order of the items."""
        rows = [[i.id, i.input, list(i.candidates), list(i.human), i.group] for i in self.items]
        rows = sorted(map(json.dumps, rows))
        return text_hash("\n".join(rows))


def gather_signals(
    items: Sequence[Item], verdicts: Iterable[Verdict], names: Sequence[str]
) -> LabelledSignals:
    """Collect the labelled items on which every signal has a complete verdict in each order of the
    candidates; values are averaged over orders. If a signal has both log-odds and scores, verdicts
    in the rarer of the two count as missing.

    Raises:
        InputError: a verdict concerns an unknown item.
    """
    labelled = [item for item in items if item.labelled]
    answered = [verdict for verdict in verdicts if verdict.failure is None]
    units = Counter((verdict.judge, verdict.log_odds) for verdict in answered)
    in_odds = {name: units[name, True] >= units[name, False] for name in names}
    usable = [verdict for verdict in answered if verdict.log_odds == in_odds.get(verdict.judge)]
    outcomes = gather_outcomes(items, usable)

    missing = dict.fromkeys(names, 0)
    complete: list[Item] = []
    rows: list[tuple[float, ...]] = []
    for item in labelled:
        scores = [outcomes[name][item.id].scores if name in outcomes else () for name in names]
        for name, item_scores in zip(names, scores, strict=True):
            missing[name] += not item_scores
        if all(scores):
            complete.append(item)
            rows += zip(*scores, strict=True)

    return LabelledSignals(
        names=tuple(names),
        items=tuple(complete),
        values=np.array(rows, dtype=np.float64).reshape(len(rows), len(names)),
        missing=missing,
        left_out=len(labelled) - len(complete),
        scores=frozenset(name for name in names if not in_odds[name]),
    )


@dataclass(frozen=True, slots=True)
class LabelRows:
    """The rows of a regression: for pairs two candidates of an item, `first` minus `second`; for
    single responses a text alone, with `second` None.

    Attributes:
        first: The number of each row's first text.
        shares: For pairs 1 if people prefer the first text, 0.5 for a tie, and 0 otherwise; for
            single responses the share of people who pass the text.
        counts: The weights of the rows, which sum to 1 for each item.
        owner: The number of each row's item.
    """

    first: Numbering
    second: Numbering | None
    shares: Array
    counts: Array
    owner: Numbering

    def take(self, values: Array) -> Array:
        """Return the regression's input from values of the texts: their differences for pairs, the
        values themselves for single responses."""
        return values[self.first] - (0.0 if self.second is None else values[self.second])


def _pair_rows(data: LabelledSignals) -> LabelRows:
    rows: list[tuple[int, int, int, int]] = []
    for number, item in enumerate(data.items):
        start = int(data.starts[number])
        size = len(item.candidates)
        texts = range(start, start + size)
        rows += [(first, second, size, number) for first, second in combinations(texts, 2)]

    first, second, sizes, owner = np.array(rows, dtype=np.intp).reshape(-1, 4).T
    gap = data.human[first] - data.human[second]
    shares = np.where(np.abs(gap) <= TIE, 0.5, (gap > 0).astype(np.float64))

    return LabelRows(first, second, shares, 2 / (sizes * (sizes - 1)), owner)


def _response_rows(data: LabelledSignals) -> LabelRows:
    """Return the regression rows of single responses, each with the share of people who pass it.

    Raises:
        InputError: people pass all responses, or none.
    """
    if np.ptp(data.human) <= TIE:
        raise InputError(SAME_LABEL)
    every = np.arange(len(data.owner))

    return LabelRows(every, None, data.human, np.ones(len(every)), data.owner)


RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""The ridge strengths to choose from. The penalty is ridge / 2 * |weights|^2, and is added to the
sum of losses over items."""

SAME_LABEL = "all responses have the same label; a fit needs good and bad ones"
FOLDS = 10
INNER_FOLDS = 5
UNPENALISED = 1e-6
"""The ridge strength of the intercept, which is hardly penalised."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A weighted sum of standardised signals, the utility of a text: ((values - means) / scales) @
    weights + intercept. For pairs the intercept is 0."""

    means: Array
    scales: Array
    weights: Array
    intercept: float = 0.0

    def utilities(self, values: Array) -> Array:
        return ((values - self.means) / self.scales) @ self.weights + self.intercept


def draw_folds(groups: Numbering, folds: int, seed: int) -> Numbering:
    """Draw the fold of each item. All items of a group are in the same fold, and folds have about
    the same number of groups."""
    names, places = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    return (order % min(folds, len(names)))[places]


def split_folds(folds: Numbering) -> Iterator[tuple[Mask, Mask]]:
    """Yield the masks of training and of held-out items, for each fold."""
    for fold in np.unique(folds):
        yield folds != fold, folds == fold


def choose_ridge(data: LabelledSignals, items: Mask, seed: int) -> float:
    """Return the ridge strength with the lowest log-loss in a cross-validation on the selected
    items; the strongest of equals."""
    inside = np.flatnonzero(items)
    folds = np.full(len(items), -1)
    folds[inside] = draw_folds(data.group_of[inside], INNER_FOLDS, seed)
    columns = range(data.values.shape[1])
    losses = np.zeros(len(RIDGES))

    for fold in range(folds.max() + 1):
        learnt = items & (folds != fold)
        held_out = folds == fold
        for place, ridge in enumerate(RIDGES):
            losses[place] += data.losses(data.fit(learnt, columns, ridge), held_out).sum()

    return RIDGES[int(np.flatnonzero(losses <= losses.min() + TIE)[-1])]


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The result of a cross-validation. `utilities`: the utility of each text by weights that were
    fitted without its question, shape (texts,). `loss`: the sum of the log-losses; `ridges`: the
    ridge strength of each fold."""

    folds: Numbering
    utilities: Array
    loss: float
    ridges: tuple[float, ...]


def cross_validate(data: LabelledSignals, seed: int) -> CrossValidation:
    """Run a nested cross-validation, in which the ridge strength of each fold is chosen on its
    training part alone."""
    folds = draw_folds(data.group_of, FOLDS, seed)
    ridges = tuple(choose_ridge(data, learnt, seed) for learnt, _ in split_folds(folds))
    return validate_columns(data, folds, ridges, range(data.values.shape[1]))


def validate_columns(
    data: LabelledSignals, folds: Numbering, ridges: Sequence[float], columns: Sequence[int]
) -> CrossValidation:
    """Cross-validate a fit to the signals in `columns` alone, with these folds and ridge
    strengths."""
    utilities = np.zeros(len(data.owner))
    loss = 0.0

    for (learnt, held_out), ridge in zip(split_folds(folds), ridges, strict=True):
        fit = data.fit(learnt, columns, ridge)
        texts = held_out[data.owner]
        utilities[texts] = fit.utilities(data.values[texts])
        loss += float(data.losses(fit, held_out).sum())

    return CrossValidation(folds, utilities, loss, tuple(ridges))


# The figures of a fitted judge, which is a weighted combination of several judges (signals), and
# its file.
#
# All figures are cross-validated: an item is judged by weights that were learnt without the items
# of its question.

LEAST_ITEMS = 20
LEAST_GROUPS = 10
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

    # All figures of agreement are cross-validated; the weights in the file use every item.
    validation = cross_validate(data, seed)
    credits = data.credits(validation.utilities)
    everything = np.ones(len(data.items), dtype=np.bool_)
    ridge = choose_ridge(data, everything, seed)
    full_fit = _rounded(data.fit(everything, range(len(data.names)), ridge))

    alone = {name: _credit_alone(data, validation, n) for n, name in enumerate(data.names)}
    best = max(alone, key=lambda name: mean_present(alone[name]))
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

    # What the fit has to beat: its best signal, rules that read no text, and no signal at all.
    agreement = mean_figure(credits, groups, seed=seed)
    difference = difference_figure(credits, alone[best], groups, seed)
    rules = blind_credits(data.items)
    blind = tuple((name, mean_figure(rules[name], groups, seed=seed)) for name in rules)
    nothing = validate_columns(data, validation.folds, validation.ridges, ())
    size = float(data.rows.counts.sum())

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
        return np.array(list(map(_round, numbers)))

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
        scores = logistic(validation.utilities)
        credits = data.human
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

    name, figure = max(blind, key=lambda answer: answer[1].value)
    if agreement.value <= figure.value:
        yield (
            f"{name.capitalize()} agrees with people in {figure.value:.0%} of these items, and the"
            f" fit in {agreement.value:.0%}: the fit has shown nothing."
        )


def describe_guarantee(fit: Fit) -> str:
    """Describe the guarantee of the threshold in a sentence, or the reason why there is none."""
    selection = fit.selection
    if selection.threshold is not None:
        right = "choices like the labelled ones agree with people"
        if fit.are_single:
            right = "texts like the labelled ones pass"
        return (
            f"With a confidence of {selection.confidence:.0%}, at least {selection.agreement:.0%}"
            f" of new {right} where the score is {selection.threshold:g} or more."
        )

    if not selection.steps:
        return f"none: {selection.items} questions are too few to show so high an agreement"

    return f"none: {selection.reason}"


def file_of(
    fit: Fit,
    sources: Mapping[str, tuple[str | None, str]],
    orders: Literal["both", "given"],
    date: datetime.date,
) -> FittedFile:
    """Return the content of the fitted judge's file. `sources`: the model that each signal was
    computed with, and the digest of the files that it read."""
    signals = [
        FittedSignal(
            judge=signal.name,
            model=sources[signal.name][0],
            values="log-odds" if signal.log_odds else "scores",
            weight=signal.weight,
            mean=signal.mean,
            scale=signal.scale,
            alone=_figure(signal.alone),
            content=sources[signal.name][1],
        )
        for signal in fit.signals
    ]

    # Without a threshold that holds, the file has the even one, and says that nothing holds.
    selection = fit.selection
    threshold = FittedThreshold(
        value=0.5 if selection.threshold is None else selection.threshold,
        precision=selection.agreement,
        confidence=selection.confidence,
        holds=selection.threshold is not None,
        guarantee=describe_guarantee(fit),
    )

    return FittedFile(
        fitted_to=fit.labels,
        date=date,
        orders=orders,
        signals=tuple(signals),
        ridge=fit.ridge,
        good=fit.good,
        intercept=fit.intercept,
        threshold=threshold,
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
    figures = {"value": figure.value, "low": figure.interval.low, "high": figure.interval.high}
    return {
        name: round(number, 4) if math.isfinite(number) else None
        for name, number in figures.items()
    }
