"""Figures as plain text, for the cells of tables and the marks of charts.

A figure that is missing or not finite is a dash. Renderers escape the text.
"""

from __future__ import annotations

import math

from textevolve.report import wording
from textevolve.report.blocks import Cell, Column, Estimate, Format
from textevolve.report.wording import DASH

DIGITS = {"number": 2, "percent": 1, "score": 1, "p_value": 3}
SHADES = 10
"""The largest shade of a score's colour; the smallest is 0."""


def cell_text(cell: Cell, column: Column) -> str:
    """Format a table cell as text: `0.71`, `71.0 % [62.0, 80.0]`, `yes`, a text, or a dash."""
    value, interval = cell_parts(cell, column.format, column.digits)
    return f"{value} {interval}" if interval else value


def cell_parts(cell: Cell, format: Format, digits: int | None = None) -> tuple[str, str]:
    """Return the text of a figure, and that of its interval in brackets, which is empty without an
    interval."""
    if not isinstance(cell, Estimate):
        return _plain(cell, format, digits), ""
    value = _plain(cell.value, format, digits)
    if value == DASH or (cell.low is None and cell.high is None):
        return value, ""
    low, high = (_plain(end, format, digits).removesuffix(" %") for end in (cell.low, cell.high))
    return value, f"[{low}, {high}]"


def _plain(cell: str | int | float | bool | None, format: Format, digits: int | None) -> str:
    if cell is None:
        return DASH
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    try:
        finite = math.isfinite(cell)
    except OverflowError:  # a whole number beyond all floats
        return str(cell) if cell.bit_length() < 4000 else DASH  # pyright: ignore
    return _finite(cell, format, digits) if finite else DASH


def _finite(value: float, format: Format, digits: int | None) -> str:
    number = DIGITS.get(format, 0) if digits is None else digits
    if format == "percent":
        return f"{value * 100:z,.{number}f} %"
    if format == "p_value":
        least = 10.0**-number
        return f"< {least:.{number}f}" if value < least else f"{value:.{number}f}"
    if format == "money":
        return wording.money(value) if value >= 0 else f"-{wording.money(-value)}"
    if format == "duration":
        return wording.duration(value)
    if format == "count":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{number or 1}f}"
    if format == "text":
        return str(value)
    return f"{value:z,.{number}f}"


def is_number(column: Column) -> bool:
    """Tell whether a column contains numbers, which are aligned to the right."""
    return column.format != "text"


def shade(value: float | None, low: float, high: float) -> int | None:
    """Return the position of a value between `low` and `high` as a whole number from 0 to `SHADES`;
    None if the value is missing."""
    if value is None or not math.isfinite(value):
        return None
    share = (value - low) / (high - low) if high > low else 0.0
    return math.floor(min(1.0, max(0.0, share)) * SHADES + 0.5)


def score_of(cell: Cell) -> float | None:
    """Return the number that determines the colour of a score's cell; None if the cell has no
    number."""
    value = cell.value if isinstance(cell, Estimate) else cell
    return None if isinstance(value, str | bool) or value is None else float(value)
