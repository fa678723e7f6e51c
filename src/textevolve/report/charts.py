"""Where the marks of a chart go: plain numbers, which the templates draw as inline SVG.

Nothing here knows of HTML. Places along an axis are percentages of its length, so that a chart is
as wide as there is room. A value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textevolve.report.blocks import Column, IntervalChart, LineChart, Table
from textevolve.report.cells import cell_parts

MARKED = 60
"""A line of no more points than these has a mark at each."""

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


def find_ends(values: Iterable[float | None]) -> tuple[float, float]:
    """The least and the greatest value, some way apart; 0 and 1 where there is none."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    return (low, high) if high > low else (low - (abs(low) or 1.0), high + (abs(high) or 1.0))


def find_ticks(low: float, high: float, number: int = 4) -> list[float]:
    """Round values between two ends, about so many."""
    if not high > low or not math.isfinite(high - low):
        return []
    rough = (high - low) / number
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * n for n in (1, 2, 2.5, 5) if power * n >= rough * 0.999), power * 10)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def draw_ticks(low: float, high: float, format: str = "number") -> list[Tick]:
    values = find_ticks(low, high)
    return [Tick(place(v, low, high) or 0.0, _tick(v, format)) for v in values]


def _tick(value: float, format: str) -> str:
    if format == "percent":
        return f"{value * 100:g} %"
    if format in ("money", "duration"):
        return "0" if value == 0 else cell_parts(value, format)[0]  # pyright: ignore
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


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
    low, high = chart.low, find_ends(values)[1] if chart.high is None else chart.high
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


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    y: float
    hint: str


@dataclass(frozen=True, slots=True)
class ChartLine:
    """`path`: the points of a polyline in a box of 100 by 100, y downwards."""

    name: str
    colour: int
    path: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class ChartLines:
    lines: Sequence[ChartLine]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    x_label: str
    y_label: str


def draw_lines(chart: LineChart) -> ChartLines:
    known = {name: finite_points(points) for name, points in chart.lines.items()}
    left, right = find_ends(x for points in known.values() for x, _ in points)
    low, high = find_ends(y for points in known.values() for _, y in points)
    room = (high - low) * 0.06
    low, high = low - room, high + room
    lines: list[ChartLine] = []
    for number, (name, points) in enumerate(known.items()):
        spots = [
            Mark(place(x, left, right) or 0.0, 100 - (place(y, low, high) or 0.0), f"{x:g}: {y:g}")
            for x, y in points
        ]
        path = " ".join(f"{spot.x:g},{spot.y:g}" for spot in spots)
        lines.append(ChartLine(name, number % COLOURS, path, spots if len(spots) <= MARKED else ()))
    y_ticks = [Tick(100 - tick.at, tick.label) for tick in draw_ticks(low, high)]
    return ChartLines(lines, draw_ticks(left, right), y_ticks, chart.x_label, chart.y_label)


def finite_points(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line that have a place, in the order of x."""
    return sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))


def tabulate_lines(chart: LineChart, most: int) -> Table:
    """The points of all lines as a table of at most so many places, evenly thinned."""
    lines = [dict(finite_points(points)) for points in chart.lines.values()]
    places = sorted({x for points in lines for x in points})
    step = max(1, math.ceil(len(places) / most))
    columns = [Column(chart.x_label), *(Column(name, "number") for name in chart.lines)]
    rows = [[f"{x:g}", *(points.get(x) for points in lines)] for x in places[::step]]
    notes = [f"Values: {chart.y_label}"] if chart.y_label else []
    notes += [f"One point of {step} is shown here."] if step > 1 else []
    return Table("", columns, rows, note="\n".join(notes))
