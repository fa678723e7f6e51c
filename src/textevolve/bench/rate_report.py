"""All that can be said of a rate over many judged texts: raw, corrected, and in plain sentences.

The estimators are in `rates.py`, the reading of files in `judged.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from textevolve.bench.judged import JudgedTexts
from textevolve.bench.rates import CorrectedRate, PoweredMean, correct_rate, powered_mean
from textevolve.errors import SettingsError
from textevolve.statistics.intervals import (
    UNIT,
    Interval,
    mean_interval,
    mean_present,
    wilson_interval,
)


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
