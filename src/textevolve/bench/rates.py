"""Rates over many texts that a judge has judged, corrected by the few that people judged too.

Two ways: from the judge's sensitivity and specificity (verdicts yes or no), or by prediction-
powered inference (any number). Both suppose that the labelled texts were drawn from where the
others come from, and that texts are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from textevolve.errors import InputError
from textevolve.statistics.intervals import (
    TIE,
    UNIT,
    Array,
    Interval,
    Numbers,
    mean_interval,
    mean_present,
    paired,
    quantile,
    vector,
    wilson_interval,
)


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A rate in [0, 1] freed of the judge's known errors; `observed` is the rate that it named.

    `clipped`: the rate or an end of its interval lay outside [0, 1] and was set to 0 or 1; the
    judge's errors are then not those that it makes on these texts, or there are few of them.
    Where nothing can be corrected `value` is NaN and `interval.reason` says why.
    """

    value: float
    interval: Interval
    observed: float
    sensitivity: float
    specificity: float
    texts: int
    labelled: int
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class PoweredMean:
    """A mean of people's verdicts, sharpened by a judge's; `human` is the mean of labels alone.

    `clipped`: the mean or an end of its interval lay outside the bounds and was set to them.
    """

    value: float
    interval: Interval
    human: float
    human_interval: Interval
    texts: int
    labelled: int
    clipped: bool = False


def correct_rate(
    judged: Numbers, labelled_judged: Numbers, labelled_human: Numbers, *, level: float = 0.95
) -> CorrectedRate:
    """The share of texts that people would say yes to, from a judge's 0s and 1s (NaN: none given).

    `judged`: the judge's verdicts on the texts that the rate is about; `labelled_judged` and
    `labelled_human`: its and people's on other texts. Rogan and Gladen (1978), "Estimating
    prevalence from the results of a screening test": (observed + specificity - 1) /
    (sensitivity + specificity - 1). Interval: Lang and Reiczigel (2014), "Confidence limits for
    prevalence of disease adjusted for estimated sensitivity and specificity", which carries the
    error of all three.

    Raises:
        InputError: a verdict is neither 0 nor 1.
    """
    seen, ours, people = _present(judged, labelled_judged, labelled_human)
    if not np.isin(np.concatenate([seen, ours, people]), (0.0, 1.0)).all():
        raise InputError("a rate is corrected from verdicts of 0 or 1 only; split scores first")
    hits, rejects = ours[people == 1], 1 - ours[people == 0]
    observed, sensitivity, specificity = (mean_present(v) for v in (seen, hits, rejects))
    youden, reason = sensitivity + specificity - 1, ""
    if not seen.size:
        reason = "no text without a label was judged"
    elif not hits.size or not rejects.size:
        reason = "the labels hold one class only, so the judge's errors on the other are unknown"
    elif youden <= TIE:
        reason = "the judge is no better than chance on the labelled texts"
    value, interval = math.nan, Interval(math.nan, math.nan, reason)
    if not reason:
        value = (observed + specificity - 1) / youden
        interval = _lang_reiczigel(seen, hits, rejects, quantile(level))
    return CorrectedRate(
        value=_clip(value, UNIT),
        interval=Interval(_clip(interval.low, UNIT), _clip(interval.high, UNIT), interval.reason),
        observed=observed,
        sensitivity=sensitivity,
        specificity=specificity,
        texts=int(seen.size),
        labelled=int(ours.size),
        clipped=any(end < 0 or end > 1 for end in (value, interval.low, interval.high)),
    )


def _present(
    judged: Numbers, labelled_judged: Numbers, labelled_human: Numbers
) -> tuple[Array, Array, Array]:
    """The verdicts without those that are missing; labelled ones stay paired."""
    seen = vector(judged)
    ours, people = paired(labelled_judged, labelled_human)
    whole = ~(np.isnan(ours) | np.isnan(people))
    return seen[~np.isnan(seen)], ours[whole], people[whole]


def _lang_reiczigel(seen: Array, hits: Array, rejects: Array, z: float) -> Interval:
    """The interval, not clipped; each sample enlarged as Agresti and Coull (1998) do."""
    n, n_hits, n_rejects = seen.size + z**2, hits.size + 2, rejects.size + 2
    observed = (seen.sum() + z**2 / 2) / n
    sensitivity, specificity = (hits.sum() + 1) / n_hits, (rejects.sum() + 1) / n_rejects
    youden = sensitivity + specificity - 1
    if youden <= TIE:
        return Interval(float("nan"), float("nan"), "too few labels of one class")
    rate = (observed + specificity - 1) / youden
    missed = sensitivity * (1 - sensitivity) / n_hits
    alarmed = specificity * (1 - specificity) / n_rejects
    spread = observed * (1 - observed) / n + rate**2 * missed + (1 - rate) ** 2 * alarmed
    middle = rate + 2 * z**2 * (rate * missed - (1 - rate) * alarmed)
    half = z * math.sqrt(spread) / youden
    return Interval(float(middle - half), float(middle + half))


def powered_mean(
    judged: Numbers,
    labelled_judged: Numbers,
    labelled_human: Numbers,
    *,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> PoweredMean:
    """Mean of people's verdicts over the unlabelled texts' source, by prediction-powered inference.

    Arguments as in `correct_rate`, but any numbers. Angelopoulos et al. (2023), "Prediction-powered
    inference", with the weight of the judge tuned as in Angelopoulos, Duchi and Zrnic (2023),
    "PPI++", section 6: a judge that is of no use gets no weight. The interval is normal; with few
    labels it is too narrow, and a judge whose verdicts correlate with people's by less than
    1 / sqrt(labelled - 2) makes the mean worse (Mani et al. 2025, arXiv 2505.20178). `bounds`: the
    range of a verdict, (0, 1) for a rate.

    Raises:
        InputError: the level is no probability.
    """
    z = quantile(level)
    seen, ours, people = _present(judged, labelled_judged, labelled_human)
    if people.size < 2 or not seen.size:
        reason = "fewer than two labelled texts" if people.size < 2 else "no unlabelled text"
        none = Interval(math.nan, math.nan, reason)
        return PoweredMean(math.nan, none, mean_present(people), none, seen.size, people.size)
    spread = float(np.var(np.concatenate([ours, seen]), ddof=1)) * (1 + people.size / seen.size)
    covariance = float(((ours - ours.mean()) * (people - people.mean())).sum()) / people.size
    weight = min(1.0, max(0.0, covariance / spread)) if spread > TIE else 0.0
    value, interval, clipped = _weigh(seen, ours, people, weight, z, bounds)
    human, human_interval, _ = _weigh(seen, ours, people, 0.0, z, bounds)
    texts, labelled = int(seen.size), int(people.size)
    return PoweredMean(value, interval, human, human_interval, texts, labelled, clipped)


def _weigh(
    seen: Array, ours: Array, people: Array, weight: float, z: float, bounds: tuple[float, float]
) -> tuple[float, Interval, bool]:
    """The mean and its interval within the bounds, and whether anything was outside of them."""
    left = people - weight * ours
    value = float((weight * seen).mean() + left.mean())
    variance = float(np.var(weight * seen)) / seen.size + float(np.var(left)) / people.size
    half = z * math.sqrt(variance)
    ends = _clip(value - half, bounds), _clip(value + half, bounds)
    clipped = value - half < bounds[0] or value + half > bounds[1]
    interval = Interval(*ends)
    if 2 * half <= TIE:
        interval = Interval(math.nan, math.nan, "no variation among the labelled texts")
    return _clip(value, bounds), interval, clipped


def _clip(value: float, limits: tuple[float, float]) -> float:
    """NaN stays NaN."""
    return float(np.clip(value, *limits))


@dataclass(frozen=True, slots=True)
class RateReport:
    """`raw`: the mean of the judge's verdicts on the unlabelled texts; its interval knows nothing
    of the judge's errors. `corrected` is None where verdicts are not plain yes or no. `missing`:
    texts, and labelled ones, without a verdict of the judge. `moved`: texts of the large file that
    are among the labelled ones. `field`: where the judge's verdicts stand.
    """

    field: str
    raw: float
    raw_interval: Interval
    texts: int
    labelled: int
    missing: int
    missing_labelled: int
    moved: int
    corrected: CorrectedRate | None
    powered: PoweredMean | None

    @property
    def is_rate(self) -> bool:
        return self.corrected is not None


def report_rate(field: str, judged: Array, ours: Array, people: Array, moved: int) -> RateReport:
    """The raw rate or mean of verdicts in [0, 1] (NaN: none), and its corrections by the labels."""
    seen = judged[~np.isnan(judged)]
    verdicts = np.concatenate([seen, ours[~np.isnan(ours)], people])
    is_rate = bool(np.isin(verdicts, (0.0, 1.0)).all())
    wilson = wilson_interval(float(seen.sum()), seen.size)
    return RateReport(
        field=field,
        raw=mean_present(seen),
        raw_interval=wilson if is_rate else mean_interval(seen, bounds=UNIT),
        texts=seen.size,
        labelled=int((~np.isnan(ours)).sum()),
        missing=int(np.isnan(judged).sum()),
        missing_labelled=int(np.isnan(ours).sum()),
        moved=moved,
        corrected=correct_rate(seen, ours, people) if is_rate else None,
        powered=powered_mean(seen, ours, people, bounds=UNIT),
    )


def explain_rate(report: RateReport) -> Iterator[str]:
    """The meaning of the figures; the first sentence is the finding."""
    best = report.corrected or report.powered
    if best is None or math.isnan(best.interval.low):
        reason = best.interval.reason if best else "it was kept without a prediction-powered mean"
        yield f"The {'rate' if report.is_rate else 'mean'} cannot be corrected: {reason}."
    else:
        ends = f"with 95 % confidence {best.interval.low:.3f} to {best.interval.high:.3f}"
        yield f"People would give {best.value:.3f} on average, {ends}."
        if best.interval.low <= report.raw <= best.interval.high:
            yield "The raw figure lies within that, so the labels do not show it to be wrong."
        else:
            yield "The raw figure lies outside of that: do not report it as it is."
        if best.clipped:
            yield (
                "An end lay outside of 0 to 1 and was set to it: the judge errs otherwise on these"
                " texts than on the labelled ones, or there are too few labels."
            )
    if report.missing or report.missing_labelled:
        yield (
            f"Left out, since the judge gave no verdict: {report.missing} texts, and"
            f" {report.missing_labelled} with a label. If they are unlike the others, every figure"
            " is off."
        )
    yield (
        "All of this holds only if the labelled texts were drawn at random from where the others"
        " come from, and texts are independent."
    )
