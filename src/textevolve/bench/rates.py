"""Rates over many texts that a judge has judged, corrected by the few that people judged too.

Two ways: from the judge's sensitivity and specificity (verdicts yes or no), or by prediction-
powered inference (any number), which needs the package `ppi-python`. Both suppose that the
labelled texts were drawn from where the others come from, and that texts are independent.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from textevolve.bench.judged import JudgedTexts
from textevolve.errors import InputError, SettingsError
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
    """A mean of people's verdicts, sharpened by a judge's; `human` is what the labels alone give.

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
    seen = _verdicts(judged)
    ours, people = (_verdicts(v, keep=True) for v in paired(labelled_judged, labelled_human))
    whole = ~(np.isnan(ours) | np.isnan(people))
    ours, people = ours[whole], people[whole]
    hits, rejects = ours[people == 1], 1 - ours[people == 0]
    observed, sensitivity, specificity = (mean_present(v) for v in (seen, hits, rejects))
    reason = _no_correction(seen, hits, rejects, sensitivity + specificity - 1)
    if reason:
        value, found = float("nan"), Interval(float("nan"), float("nan"), reason)
    else:
        value = (observed + specificity - 1) / (sensitivity + specificity - 1)
        found = _lang_reiczigel(seen, hits, rejects, quantile(level))
    return CorrectedRate(
        value=_clip(value, UNIT),
        interval=Interval(_clip(found.low, UNIT), _clip(found.high, UNIT), found.reason),
        observed=observed,
        sensitivity=sensitivity,
        specificity=specificity,
        texts=int(seen.size),
        labelled=int(ours.size),
        clipped=any(e < 0 or e > 1 for e in (value, found.low, found.high)),
    )


def powered_mean(
    judged: Numbers,
    labelled_judged: Numbers,
    labelled_human: Numbers,
    *,
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
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
        SettingsError: `ppi-python` is not installed.
    """
    quantile(level)  # refuses one that is none
    package = _load_ppi()
    seen = vector(judged)
    seen = seen[~np.isnan(seen)]
    ours, people = paired(labelled_judged, labelled_human)
    whole = ~(np.isnan(ours) | np.isnan(people))
    ours, people = ours[whole], people[whole]
    nan = float("nan")
    if people.size < 2 or not seen.size:
        reason = "fewer than two labelled texts" if people.size < 2 else "no unlabelled text"
        none = Interval(nan, nan, reason)
        return PoweredMean(nan, none, mean_present(people), none, seen.size, people.size)
    # A judge that always says the same has no variance to tune by: its weight is 0.
    weight = 0.0 if np.ptp(np.concatenate([ours, seen])) <= TIE else None
    found = _estimate(package, people, ours, seen, level, weight)
    alone = _estimate(package, people, ours, seen, level, 0.0)
    limits = bounds if bounds is not None else (-math.inf, math.inf)
    return PoweredMean(
        value=_clip(found[0], limits),
        interval=_interval(found, limits),
        human=alone[0],
        human_interval=_interval(alone, limits),
        texts=int(seen.size),
        labelled=int(people.size),
        clipped=any(f < limits[0] or f > limits[1] for f in found),
    )


def _verdicts(values: Numbers, *, keep: bool = False) -> Array:
    """Verdicts of 0 or 1, without the missing ones unless they are kept."""
    given = vector(values)
    if not np.isin(given[~np.isnan(given)], (0.0, 1.0)).all():
        raise InputError("a rate is corrected from verdicts of 0 or 1 only; split scores first")
    return given if keep else given[~np.isnan(given)]


def _no_correction(seen: Array, hits: Array, rejects: Array, youden: float) -> str:
    if not seen.size:
        return "no text without a label was judged"
    if not hits.size or not rejects.size:
        return "the labels hold one class only, so the judge's errors on the other are unknown"
    return "" if youden > TIE else "the judge is no better than chance on the labelled texts"


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


def _load_ppi() -> Any:
    """The package; importing it would switch off the process's warnings for good."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module("ppi_py")
    except ImportError as error:
        reason = "is not installed"
        if not isinstance(error, ModuleNotFoundError) or error.name != "ppi_py":
            reason = f"does not load here ({error})"
        raise SettingsError(
            f"prediction-powered inference needs ppi-python, which {reason}:"
            ' pip install "textevolve[ppi]"'
        ) from error


def _estimate(
    package: Any, people: Array, ours: Array, seen: Array, level: float, weight: float | None
) -> tuple[float, float, float]:
    """Mean, lower and upper end. `weight`: of the judge, None to tune it."""
    value = package.ppi_mean_pointestimate(people, ours, seen, lam=weight)
    low, high = package.ppi_mean_ci(people, ours, seen, alpha=1 - level, lam=weight)
    return float(np.squeeze(value)), float(np.squeeze(low)), float(np.squeeze(high))


def _interval(found: tuple[float, float, float], limits: tuple[float, float]) -> Interval:
    _, low, high = found
    if high - low <= TIE:
        return Interval(float("nan"), float("nan"), "no variation among the labelled texts")
    return Interval(_clip(low, limits), _clip(high, limits))


def _clip(value: float, limits: tuple[float, float]) -> float:
    """NaN stays NaN."""
    return float(np.clip(value, *limits))


@dataclass(frozen=True, slots=True)
class RateReport:
    """`raw`: the mean of the judge's verdicts on the unlabelled texts; its interval knows nothing
    of the judge's errors. `corrected` is None where verdicts are not plain yes or no, `powered`
    where it could not be computed, for the reason in `powered_note`. `missing`: texts, and
    labelled ones, without a verdict of the judge.
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
    powered_note: str = ""

    @property
    def is_rate(self) -> bool:
        return self.corrected is not None


def report_rate(found: JudgedTexts) -> RateReport:
    """The raw rate or mean, and what the labels make of it."""
    seen = found.judged[~np.isnan(found.judged)]
    ours, people = found.labelled_judged, found.labelled_human
    powered, note = None, ""
    try:
        powered = powered_mean(seen, ours, people, bounds=UNIT)
    except SettingsError as error:
        note = str(error)
    if found.is_rate:
        interval = wilson_interval(float(seen.sum()), seen.size)
    else:
        interval = mean_interval(seen, bounds=UNIT)
    return RateReport(
        field=found.field,
        raw=mean_present(seen),
        raw_interval=interval,
        texts=seen.size,
        labelled=int((~np.isnan(ours)).sum()),
        missing=int(np.isnan(found.judged).sum()),
        missing_labelled=int(np.isnan(ours).sum()),
        moved=found.moved,
        corrected=correct_rate(seen, ours, people) if found.is_rate else None,
        powered=powered,
        powered_note=note,
    )


def explain_rate(report: RateReport) -> list[str]:
    """What the figures mean, a sentence or two for each; the first says what was found."""
    said = [*_explain_corrected(report), *_explain_powered(report)]
    if report.missing or report.missing_labelled:
        said.append(
            f"Left out, since the judge gave no verdict: {report.missing} texts, and"
            f" {report.missing_labelled} with a label. If they are unlike the others, every figure"
            " is off."
        )
    if report.moved:
        said.append(
            f"Labelled texts that the large file has too, and are left out there: {report.moved}."
        )
    said.append(
        "All of this holds only if the labelled texts were drawn at random from where the others"
        " come from, and texts are independent."
    )
    return said


def _explain_corrected(report: RateReport) -> Iterator[str]:
    found = report.corrected
    if found is None:
        yield (
            "These verdicts are numbers, not yes or no, so there is no rate to correct by the"
            " judge's errors; the prediction-powered mean does without."
        )
        return
    if math.isnan(found.value):
        yield f"The rate cannot be corrected: {found.interval.reason}."
    else:
        yield (
            f"Freed of the judge's errors, {_percent(found.value)} of the texts would get a yes"
            f" from people{_within(found.interval)}."
        )
    if not (math.isnan(found.sensitivity) or math.isnan(found.specificity)):
        yield (
            f"On the labelled texts the judge says yes to {_percent(found.sensitivity)} of what"
            f" people say yes to, and to {_percent(1 - found.specificity)} of what they say no to."
        )
    if math.isnan(found.value):
        return
    if found.clipped:
        yield (
            "An end lay outside of 0 to 100 % and was set to it: the judge errs otherwise on these"
            " texts than on the labelled ones, or there are too few labels."
        )
    if not math.isnan(found.interval.low):
        yield _compare("rate", report.raw, found.interval)


def _compare(what: str, raw: float, interval: Interval) -> str:
    if interval.low <= raw <= interval.high:
        return f"The raw {what} lies within that, so the labels do not show it to be wrong."
    return f"The raw {what} lies outside of that: do not report it as it is."


def _explain_powered(report: RateReport) -> Iterator[str]:
    found = report.powered
    if found is None:
        return
    if math.isnan(found.value):
        yield f"There is no prediction-powered mean: {found.interval.reason}."
        return
    if math.isnan(found.interval.low) or math.isnan(found.human_interval.low):
        reason = found.interval.reason or found.human_interval.reason
        yield f"The prediction-powered mean has no interval to judge it by: {reason}."
        return
    if not report.is_rate:
        low, high = found.interval.low, found.interval.high
        yield (
            f"People would give {found.value:.3f} on average, with 95 % confidence {low:.3f} to"
            f" {high:.3f}."
        )
        yield _compare("mean", report.raw, found.interval)
    alone = found.human_interval.high - found.human_interval.low
    width = found.interval.high - found.interval.low
    if width < alone:
        yield (
            f"The judge makes the interval of people's mean {_percent(1 - width / alone)} narrower"
            " than the labels alone give it. With few labels it is somewhat too narrow."
        )
    else:
        yield "The judge adds nothing to the labels: people's verdicts alone are as sharp."


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _within(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f" (no interval: {interval.reason})"
    return f", with 95 % confidence {interval.low * 100:.1f} to {interval.high * 100:.1f} %"
