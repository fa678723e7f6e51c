"""The names of the ways to aggregate scores, and to measure the agents' disagreement. They are
separate from the arithmetic (`tensor.py`), so that specifications can name them without importing
numpy."""

from __future__ import annotations

from typing import Literal

Aggregation = Literal["mean", "median", "trimmed"]
"""How the scores of all turns become one score; see `tensor.normalise`."""
ConvergenceMode = Literal["agents", "pooled"]
"""How the agents' disagreement is measured; see `tensor.disagreement`."""
