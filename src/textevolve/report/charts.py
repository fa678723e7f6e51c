"""Places of a chart's marks as plain numbers, which templates of pages draw as inline SVG.

Nothing here knows of HTML. Places along an axis are percentages of its length, so that a chart is
as wide as there is room. A value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.report.blocks import Estimate, Format
from textevolve.report.cells import cell_parts


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A chart with a row for each label: a dot for the figure and a line for its interval, from 0
    to 1."""

    title: str
    rows: Sequence[tuple[str, Estimate]]
    format: Format = "number"


def place(value: float | None) -> float | None:
    """Return the position of a value on an axis from 0 to 1, in percent; values beyond an end are
    moved to it."""
    if value is None or not math.isfinite(value):
        return None
    return round(100 * min(1.0, max(0.0, value)), 2)


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """The positions of one figure and its interval on a chart's axis; `said` and `ends` are their
    texts."""

    label: str
    said: str
    ends: str
    middle: float | None
    low: float | None
    high: float | None


def draw_intervals(chart: IntervalChart) -> list[IntervalMark]:
    rows: list[IntervalMark] = []
    for label, estimate in chart.rows:
        text, ends = cell_parts(estimate, chart.format)
        middle = place(estimate.value)
        # An interval around no figure would be read as one.
        left_end, right = (
            None if middle is None else place(e) for e in (estimate.low, estimate.high)
        )
        rows.append(IntervalMark(label, text, ends, middle, left_end, right))
    return rows
