"""Statistics as cells of a report, with None for missing figures."""

from __future__ import annotations

import math

from textevolve.report.blocks import Estimate
from textevolve.statistics.intervals import Interval, Statistic


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(figure: Statistic) -> Estimate:
    """Return a statistic as a cell."""
    return with_ends(figure.value, figure.interval)


def with_ends(value: float, interval: Interval) -> Estimate:
    return Estimate(finite(value), finite(interval.low), finite(interval.high))
