"""Names of the ways in which scores become one, and in which their differences are measured.

Apart from the arithmetic (`tensor.py`), so that a specification can name them without numpy.
"""

from __future__ import annotations

from typing import Literal

Aggregation = Literal["mean", "median", "trimmed"]
ConvergenceMode = Literal["agents", "pooled"]
