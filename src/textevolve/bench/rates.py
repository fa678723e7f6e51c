"""The rate or mean of a judge's verdicts over many texts, corrected by the few texts that people
judged as well.

The method, prediction-powered inference, works for yes/no verdicts and for any other numbers. It
assumes that the labelled texts are a random sample of the same population, and that texts are
independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from textevolve.evaluation import Result
from textevolve.statistics.intervals import (
    LEVEL,
    TIE,
    UNIT,
    Array,
    Interval,
    Numbers,
    complete_pairs,
    mean_interval,
    mean_present,
    quantile,
    vector,
    wilson_interval,
)


@dataclass(frozen=True, slots=True)
class PoweredMean:
    """The mean of people's verdicts over all texts, estimated from a few labels and the judge's
    verdicts on many texts.

    Attributes:
        value: The estimate, and `interval`: its interval.
        human: The mean of the labels alone, and `human_interval`: its interval.
        texts: The number of texts without labels; `labelled`: of those with labels.
        clipped: Whether the mean or an end of its interval lay outside the possible range, and was
            set to its bound.
    """

    value: float
    interval: Interval
    human: float
    human_interval: Interval
    texts: int
    labelled: int
    clipped: bool = False


def powered_mean(
    judged: Numbers,
    labelled_judged: Numbers,
    labelled_human: Numbers,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> PoweredMean:
    """Estimate the mean of people's verdicts over many texts from a judge's verdicts and a few
    labels, by prediction-powered inference. Its interval has the level of 95 %.

    `judged`: the judge's verdicts on the texts that the mean is about. `labelled_judged` and
    `labelled_human`: the judge's and people's verdicts on other texts; NaN means no verdict.
    `bounds`: the range of a verdict, (0, 1) for a rate.

    The method is that of Angelopoulos et al. (2023), "Prediction-powered inference". The judge's
    weight is tuned as in Angelopoulos, Duchi and Zrnic (2023), "PPI++", section 6, so that a
    useless judge gets none. The interval is a normal approximation, which is too narrow with few
    labels. A judge whose verdicts correlate with people's by less than 1 / sqrt(labelled - 2) makes
    the estimate worse (Mani et al. 2025, arXiv 2505.20178).
    """
    z = quantile(LEVEL)
    present = vector(judged)
    present = present[~np.isnan(present)]
    ours, people, _ = complete_pairs(labelled_judged, labelled_human)
    if people.size < 2 or not present.size:
        reason = "fewer than two labelled texts" if people.size < 2 else "no unlabelled text"
        none = Interval(reason=reason)
        return PoweredMean(math.nan, none, mean_present(people), none, present.size, people.size)

    def weigh(weight: float) -> tuple[float, Interval, bool]:
        """Return the estimate with its interval, both clipped to the bounds, and whether anything
        was clipped. `weight`: the weight of the judge's verdicts."""
        residual = people - weight * ours
        mean = float((weight * present).mean() + residual.mean())
        variance = (
            float(np.var(weight * present)) / present.size + float(np.var(residual)) / people.size
        )
        half = z * math.sqrt(variance)
        ends = [mean, mean - half, mean + half]
        clipped: list[float] = np.clip(ends, *bounds).tolist()
        interval = Interval(clipped[1], clipped[2])
        if 2 * half <= TIE:
            interval = Interval(reason="no variation among the labelled texts")

        return clipped[0], interval, clipped != ends

    spread = float(np.var(np.concatenate([ours, present]), ddof=1)) * (
        1 + people.size / present.size
    )
    covariance = float(((ours - ours.mean()) * (people - people.mean())).sum()) / people.size
    value, interval, clipped = weigh(
        min(1.0, max(0.0, covariance / spread)) if spread > TIE else 0.0
    )
    human, human_interval, _ = weigh(0.0)

    return PoweredMean(value, interval, human, human_interval, present.size, people.size, clipped)


@dataclass(frozen=True)
class RateReport(Result):
    """The rate or mean of a judge's verdicts, raw and corrected.

    Attributes:
        field: The field of the rows that holds the judge's verdicts.
        raw: The mean of the judge's verdicts on the texts without labels. Its interval ignores the
            judge's errors.
        texts: The number of texts with a verdict; `missing`: without one.
        labelled: The number of labelled texts with a verdict; `missing_labelled`: without one.
        moved: The number of texts in the large file that are labelled, and counted as such.
        powered: The corrected estimate; None in a record of an earlier version that lacked a
            package for it.
        is_rate: Whether all verdicts are yes or no.
    """

    field: str
    raw: float
    raw_interval: Interval
    texts: int
    labelled: int
    missing: int
    missing_labelled: int
    moved: int
    powered: PoweredMean | None = None
    is_rate: bool = False


def report_rate(field: str, judged: Array, ours: Array, people: Array, moved: int) -> RateReport:
    """Compute the mean of a judge's verdicts and its correction by labels. `judged`: the verdicts
    in [0, 1] on unlabelled texts, NaN if missing; `ours` and `people`: the verdicts and labels of
    labelled texts."""
    present = judged[~np.isnan(judged)]
    verdicts = np.concatenate([present, ours[~np.isnan(ours)], people])
    is_rate = bool(np.isin(verdicts, (0.0, 1.0)).all())
    if is_rate:
        interval = wilson_interval(float(present.sum()), present.size)
    else:
        interval = mean_interval(present, bounds=UNIT)

    return RateReport(
        field=field,
        raw=mean_present(present),
        raw_interval=interval,
        texts=present.size,
        labelled=int((~np.isnan(ours)).sum()),
        missing=int(np.isnan(judged).sum()),
        missing_labelled=int(np.isnan(ours).sum()),
        moved=moved,
        powered=powered_mean(present, ours, people, bounds=UNIT),
        is_rate=is_rate,
    )


def explain_rate(report: RateReport) -> Iterator[str]:
    """Yield sentences that explain the figures, the conclusion first."""
    powered = report.powered
    interval = powered.interval if powered else Interval(reason="the verdicts do not give a mean")
    if powered is None or math.isnan(interval.low):
        yield f"The {'rate' if report.is_rate else 'mean'} cannot be corrected: {interval.reason}."
    else:
        ends = f"with 95 % confidence {interval.low:.3f} to {interval.high:.3f}"
        yield f"People would give {powered.value:.3f} on average, {ends}."
        if interval.low <= report.raw <= interval.high:
            yield "The raw figure lies within that, so the labels do not show it to be wrong."
        else:
            yield "The raw figure lies outside of that: do not report it as it is."

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
