"""Charts as lines of characters, for a terminal or any other place without pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from textevolve.report.blocks import Estimate
from textevolve.report.charts import Bar, find_ends, place

SPARKS = "▁▂▃▄▅▆▇█"
PLAIN_SPARKS = "_.-=+*#@"


def _cell(percentage: float, width: int) -> int:
    return min(width - 1, max(0, round(percentage / 100 * (width - 1))))


def plot_interval(estimate: Estimate, low: float, high: float, width: int) -> str:
    """`  |--o--|  ` on an axis of so many characters; blank where there is no figure."""
    middle = place(estimate.value, low, high)
    if middle is None:
        return " " * width
    line = [" "] * width
    ends = [place(end, low, high) for end in (estimate.low, estimate.high)]
    cells = [_cell(middle if end is None else end, width) for end in ends]
    for n in range(min(cells), max(cells) + 1):
        line[n] = "-"
    for end, cell in zip(ends, cells, strict=True):
        if end is not None:
            line[cell] = "|"
    line[_cell(middle, width)] = "o"
    return "".join(line)


def plot_axis(low: str, high: str, width: int) -> str:
    """The ends of an axis, each below its end."""
    return low + high.rjust(max(width - len(low), len(high) + 1))


def plot_bar(bar: Bar, limit: float | None, width: int, *, plain: bool) -> str:
    """A bar of characters; a limit is a stroke across it, or beyond its end."""
    line = [" "] * width
    if bar.width is not None:
        start, end = (round(at / 100 * width) for at in (bar.start, bar.start + bar.width))
        # What is not nothing shows, however small it is.
        end = max(end, start + 1) if bar.width else end
        line[start:end] = ["#" if plain else "█"] * (min(end, width) - start)
    if limit is not None:
        line[_cell(limit, width)] = "|" if plain else "┆"
    return "".join(line)


def plot_line(values: Sequence[float], width: int, *, plain: bool) -> str:
    """A row of marks, the higher the value the higher; many values are averaged."""
    known = [value for value in values if math.isfinite(value)]
    low, high = find_ends(known)
    size = min(width, len(known))
    bounds = [round(n * len(known) / size) for n in range(size + 1)] if size else []
    marks = PLAIN_SPARKS if plain else SPARKS
    found = ""
    for a, b in pairwise(bounds):
        share = (sum(known[a:b]) / (b - a) - low) / (high - low)
        found += marks[min(len(marks) - 1, int(share * len(marks)))]
    return found
