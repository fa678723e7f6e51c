"""Statistics as they stand in the cells of a report: what does not exist is None there."""

from __future__ import annotations

import math

from textevolve.report.blocks import Estimate
from textevolve.statistics.intervals import Interval, Statistic


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(figure: Statistic, otherwise: Interval | None = None) -> Estimate:
    """`otherwise`: the interval to show where the figure has none of its own."""
    return with_ends(figure.value, figure.interval, otherwise)


def with_ends(value: float, interval: Interval, otherwise: Interval | None = None) -> Estimate:
    shown = otherwise if otherwise is not None and math.isnan(interval.low) else interval
    return Estimate(finite(value), finite(shown.low), finite(shown.high))
