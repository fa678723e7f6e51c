"""Where the marks of a chart go: plain numbers, which the templates draw as inline SVG.

Nothing here knows of HTML. Places along an axis are percentages of its length, so that a chart is
as wide as there is room; a heat map is in CSS pixels. A value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textevolve.report import wording
from textevolve.report.blocks import BarChart, HeatMap, IntervalChart, LineChart
from textevolve.report.cells import cell_parts, shade
from textevolve.report.wording import DASH

MARKED = 60
"""A line of no more points than these has a mark at each."""

COLOURS = 6
CELL_WIDTH, CELL_HEIGHT = 40, 26
GROUP_GAP = 10
LETTER = 6.6
"""About how wide a letter of a label is."""


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


def draw_intervals(chart: IntervalChart) -> Intervals:
    low, high = chart.low, chart.high
    rows: list[IntervalMark] = []
    for label, estimate in chart.rows:
        said, ends = cell_parts(estimate, chart.format)
        middle = place(estimate.value, low, high)
        # An interval around no figure would be read as one.
        left = None if middle is None else place(estimate.low, low, high)
        right = None if middle is None else place(estimate.high, low, high)
        rows.append(IntervalMark(label, said, ends, middle, left, right))
    return Intervals(rows, draw_ticks(low, high, chart.format))


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar along an axis from `start`; `width` is None where there is no figure."""

    label: str
    said: str
    start: float
    width: float | None


@dataclass(frozen=True, slots=True)
class Bars:
    rows: Sequence[Bar]
    zero: float
    limit: float | None
    limit_label: str


def draw_bars(chart: BarChart) -> Bars:
    """Bars begin at 0, which is where the axis begins unless there are values below it."""
    values = [0.0, chart.limit, *(value for _, value in chart.bars)]
    low, high = find_ends(values)
    if not any(value is not None and value < 0 for value in values):
        low = 0.0
    zero = place(0.0, low, high) or 0.0
    rows: list[Bar] = []
    for label, value in chart.bars:
        said = cell_parts(value, chart.format)[0]
        end = place(value, low, high)
        if end is None:
            rows.append(Bar(label, said, zero, None))
        else:
            rows.append(Bar(label, said, min(zero, end), round(abs(end - zero), 2)))
    label = chart.limit_label
    if chart.limit is not None and not label:
        label = cell_parts(chart.limit, chart.format)[0]
    return Bars(rows, zero, place(chart.limit, low, high), label)


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


@dataclass(frozen=True, slots=True)
class HeatCell:
    """`shade` from 0 to 10, None where the value is missing."""

    x: float
    y: float
    said: str
    shade: int | None
    hint: str


@dataclass(frozen=True, slots=True)
class ChartLabel:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Heat:
    width: int
    height: int
    cells: Sequence[HeatCell]
    rows: Sequence[ChartLabel]
    columns: Sequence[ChartLabel]
    row_groups: Sequence[ChartLabel]
    column_groups: Sequence[ChartLabel]


def draw_heat_map(chart: HeatMap) -> Heat:
    rows = [wording.shorten(name, 24) for name in chart.rows]
    columns = [wording.shorten(name, 18) for name in chart.columns]
    groups = [(wording.shorten(name, 14), number) for name, number in chart.row_groups]
    group_room = max((len(name) for name, _ in groups), default=-2) * LETTER + 14
    left = group_room + max(map(len, rows), default=0) * LETTER + 8
    top = (
        (22 if chart.column_groups else 4) + max(map(len, columns), default=0) * LETTER * 0.77 + 12
    )
    xs = _offsets(len(columns), chart.column_groups, CELL_WIDTH, left)
    ys = _offsets(len(rows), chart.row_groups, CELL_HEIGHT, top)
    cells: list[HeatCell] = []
    named = _with_groups(chart.columns, chart.column_groups)
    for row, y, values in zip(
        _with_groups(chart.rows, chart.row_groups), ys, chart.values, strict=True
    ):
        for column, x, value in zip(named, xs, values, strict=True):
            said = cell_parts(value, "score")[0]
            hint = f"{row}, {column}: {'missing' if said == DASH else said}"
            cells.append(HeatCell(x, y, said, shade(value, chart.low, chart.high), hint))
    slope = max(map(len, columns), default=0) * LETTER * 0.65
    return Heat(
        width=math.ceil((xs[-1] + CELL_WIDTH if xs else left) + slope),
        height=math.ceil(ys[-1] + CELL_HEIGHT if ys else top),
        cells=cells,
        rows=[ChartLabel(left - 8, y + 17, name) for name, y in zip(rows, ys, strict=True)],
        columns=[
            ChartLabel(x + CELL_WIDTH / 2, top - 8, name)
            for name, x in zip(columns, xs, strict=True)
        ],
        row_groups=[ChartLabel(0, ys[at] + 17, name) for at, name, _ in starts(groups, len(ys))],
        column_groups=[
            ChartLabel(
                (xs[at] + xs[at + number - 1] + CELL_WIDTH) / 2, 14, wording.shorten(name, 30)
            )
            for at, name, number in starts(chart.column_groups, len(xs))
        ],
    )


def _with_groups(names: Sequence[str], groups: Sequence[tuple[str, int]]) -> list[str]:
    """Each name after that of its group."""
    found = list(names)
    for at, group, number in starts(groups, len(names)):
        found[at : at + number] = [f"{group}, {name}" for name in found[at : at + number]]
    return found


def starts(groups: Sequence[tuple[str, int]], size: int) -> list[tuple[int, str, int]]:
    """For each group where it begins, its name and its length, as far as there are members."""
    found: list[tuple[int, str, int]] = []
    at = 0
    for name, number in groups:
        if number > 0 and at < size:
            found.append((at, name, min(number, size - at)))
        at += max(0, number)
    return found


def _offsets(size: int, groups: Sequence[tuple[str, int]], step: int, start: float) -> list[float]:
    """Where each row or column begins, with a gap before each group but the first."""
    gaps = {at for at, _, _ in starts(groups, size) if at}
    places: list[float] = []
    at = start
    for n in range(size):
        at += GROUP_GAP if n in gaps else 0
        places.append(round(at, 1))
        at += step
    return places
