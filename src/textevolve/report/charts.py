"""Where the marks of a chart go: plain numbers, which the templates draw as inline SVG.

Nothing here knows of HTML. Places along an axis are percentages of its length, so that a chart is
as wide as there is room. A value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textevolve.report.blocks import Column, Format, IntervalChart, Table
from textevolve.report.cells import cell_parts

COLOURS = 6


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


def place(value: float | None, low: float, high: float) -> float | None:
    """A value's place between two ends, from 0 to 100; what lies beyond an end stands at it."""
    if value is None or not math.isfinite(value):
        return None
    share = (value - low) / (high - low) if high > low else 0.5
    return round(100 * min(1.0, max(0.0, share)), 2)


def find_greatest(values: Iterable[float | None]) -> float:
    """The greatest value, above the least; 1 where there is none."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not known:
        return 1.0
    low, high = min(known), max(known)
    return high if high > low else high + (abs(high) or 1.0)


def draw_ticks(low: float, high: float, format: Format) -> list[Tick]:
    """The ends of an axis and its middle."""
    return [Tick(at, _tick(low + (high - low) * at / 100, format)) for at in (0, 50, 100)]


def _tick(value: float, format: Format) -> str:
    if format == "percent":
        return f"{value * 100:.3g} %"
    return f"{value:.3g}" if format == "number" else cell_parts(value, format)[0]


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """A figure with its interval on the axis; `said` and `ends` are both in words."""

    label: str
    said: str
    ends: str
    middle: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Intervals:
    rows: Sequence[IntervalMark]
    ticks: Sequence[Tick]
    limit: float | None
    limit_label: str


def draw_intervals(chart: IntervalChart) -> Intervals:
    values = [chart.limit, *(estimate.value for _, estimate in chart.rows)]
    low, high = chart.low, find_greatest(values) if chart.high is None else chart.high
    rows: list[IntervalMark] = []
    for label, estimate in chart.rows:
        said, ends = cell_parts(estimate, chart.format)
        middle = place(estimate.value, low, high)
        # An interval around no figure would be read as one.
        left = None if middle is None else place(estimate.low, low, high)
        right = None if middle is None else place(estimate.high, low, high)
        rows.append(IntervalMark(label, said, ends, middle, left, right))
    label = "" if chart.limit is None else cell_parts(chart.limit, chart.format)[0]
    limit = place(chart.limit, low, high)
    return Intervals(rows, draw_ticks(low, high, chart.format), limit, chart.limit_label or label)


def as_table(chart: IntervalChart) -> Table:
    """The figures of a chart, for renderers that draw none."""
    label = draw_intervals(chart).limit_label
    note = f"Limit: {label}" if label else ""
    return Table(chart.title, (Column(""), Column("value", chart.format)), chart.rows, note=note)
