"""Where the marks of a chart go: plain numbers, which the templates draw as inline SVG.

Nothing here knows of HTML. Places along an axis are percentages of its length, so that a chart is
as wide as there is room. A value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textevolve.report.blocks import Column, Estimate, Format, IntervalChart, Table
from textevolve.report.cells import cell_parts

COLOURS = 6


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


def place(value: float | None) -> float | None:
    """A value's place on an axis from 0 to 1, in percent; what lies beyond an end stands at it."""
    if value is None or not math.isfinite(value):
        return None
    return round(100 * min(1.0, max(0.0, value)), 2)


def _tick(value: float, format: Format) -> str:
    return f"{100 * value:g} %" if format == "percent" else f"{value:g}"


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


def draw_intervals(chart: IntervalChart) -> Intervals:
    rows: list[IntervalMark] = []
    for label, estimate in chart.rows:
        said, ends = cell_parts(estimate, chart.format)
        middle = place(estimate.value)
        # An interval around no figure would be read as one.
        left, right = (None if middle is None else place(e) for e in (estimate.low, estimate.high))
        rows.append(IntervalMark(label, said, ends, middle, left, right))
    return Intervals(rows, [Tick(at, _tick(at / 100, chart.format)) for at in (0, 50, 100)])


HISTORY_HEIGHT = 140


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A figure of one run: where it stands, in percent from the left and pixels from the top, with
    the ends of its interval, and what is known of it in words."""

    run: int
    x: float
    y: float
    low: float
    high: float
    said: str


def draw_history(
    lines: Mapping[str, Sequence[Estimate | None]],
) -> dict[str, Sequence[HistoryPoint]]:
    """The points of each line of figures from 0 to 1, the oldest at the left."""
    drawn: dict[str, Sequence[HistoryPoint]] = {}
    for name, line in lines.items():
        points: list[HistoryPoint] = []
        for n, one in enumerate(line):
            if one is None or one.value is None:
                continue
            ends = (one.value, one.low, one.high)
            y, low, high = (
                HISTORY_HEIGHT * (1 - min(1.0, max(0.0, one.value if end is None else end)))
                for end in ends
            )
            x = 100 * (n + 0.5) / len(line)
            said = " ".join(filter(None, cell_parts(one, "percent")))
            points.append(HistoryPoint(n, x, round(y, 1), round(low, 1), round(high, 1), said))
        drawn[name] = points
    return drawn


def as_table(chart: IntervalChart) -> Table:
    """The figures of a chart, for renderers that draw none."""
    return Table(chart.title, (Column(""), Column("value", chart.format)), chart.rows)
