"""Conversion of statistics to cells of a report; a missing figure is None."""

from __future__ import annotations

import math

from textevolve.report.blocks import Estimate
from textevolve.statistics.intervals import Interval, Statistic


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(figure: Statistic) -> Estimate:
    """Return a statistic as a report cell with its interval."""
    return with_ends(figure.value, figure.interval)


def with_ends(value: float, interval: Interval) -> Estimate:
    return Estimate(finite(value), finite(interval.low), finite(interval.high))
