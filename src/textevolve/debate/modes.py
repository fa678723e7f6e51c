"""The names of the ways to aggregate scores, and to measure the agents' disagreement. They are
separate from the arithmetic (`tensor.py`), so that specifications can name them without importing
numpy."""

from __future__ import annotations

from typing import Literal

Aggregation = Literal["mean", "median", "trimmed"]
"""How the scores of all turns become one score: by their mean, their median, or their mean without
the fifth at each end (`trimmed`)."""
ConvergenceMode = Literal["agents", "pooled"]
"""How the agents' disagreement in a round is measured: by the largest coefficient of variation (CV)
over agents of any candidate's weighted score (`agents`), or by one CV over all scores
(`pooled`)."""
