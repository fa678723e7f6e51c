"""Figures of measurements, as tables in the terminal or as JSON: agreement, cards, variance."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def print_json(data: Any) -> None:
    """One JSON object; a figure that does not exist is null."""
    from textevolve.bench.summary import to_json

    print(json.dumps(to_json(data), ensure_ascii=False))


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage; an en dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}%}"
