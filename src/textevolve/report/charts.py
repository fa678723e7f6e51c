"""The positions of a chart's marks as plain numbers, which the templates of pages draw as inline
SVG.

Positions along an axis are percentages of its length, so that a chart fits any width. A missing
value has no position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.report.blocks import Estimate, Format
from textevolve.report.cells import cell_parts


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A chart with a row for each label: a dot for a figure from 0 to 1, and a line for its
    interval."""

    title: str
    rows: Sequence[tuple[str, Estimate]]
    format: Format = "number"


def place(value: float | None) -> float | None:
    """Return the position of a value on an axis from 0 to 1, in percent; values outside are moved
    to the nearer end. None for a missing value."""
    if value is None or not math.isfinite(value):
        return None
    return round(100 * min(1.0, max(0.0, value)), 2)


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """The mark of one figure on a chart. `said`: the text of the figure, and `ends`: of its
    interval; `middle`, `low` and `high`: the positions of the figure and of the ends of its
    interval, in percent."""

    label: str
    said: str
    ends: str
    middle: float | None
    low: float | None
    high: float | None


def draw_intervals(chart: IntervalChart) -> list[IntervalMark]:
    return [
        IntervalMark(
            label,
            *cell_parts(estimate, chart.format),
            place(estimate.value),
            place(estimate.low),
            place(estimate.high),
        )
        for label, estimate in chart.rows
    ]
