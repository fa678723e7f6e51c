"""Statistics in the cells of a report, where a missing figure is None."""

from __future__ import annotations

import math

from textevolve.report.blocks import Estimate
from textevolve.statistics.intervals import Interval, Statistic


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(figure: Statistic, otherwise: Interval | None = None) -> Estimate:
    """Return a statistic as a cell. `otherwise`: the interval if the figure has none."""
    return with_ends(figure.value, figure.interval, otherwise)


def with_ends(value: float, interval: Interval, otherwise: Interval | None = None) -> Estimate:
    ends = otherwise if otherwise is not None and math.isnan(interval.low) else interval
    return Estimate(finite(value), finite(ends.low), finite(ends.high))
