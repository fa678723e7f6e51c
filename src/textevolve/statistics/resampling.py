"""Which groups each resample of the data takes, for every interval that is made by resampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_CELLS = 1_000_000  # random numbers held at once


FEW = 30
"""With fewer groups the percentiles of a bootstrap are too narrow: a jackknife takes its place."""


def draw_weights(groups: int, draws: int, seed: int) -> Iterator[Array]:
    """Yield how often each resample takes each group, (resamples, groups), in blocks that fit into
    memory: random draws with replacement; with fewer than `FEW` groups all groups first, then all
    but one in turn. `intervals.resampling_interval` makes an interval from either."""
    if groups < FEW:
        yield np.ones((groups + 1, groups)) - np.eye(groups + 1, groups, -1)
        return
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // groups)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = generator.integers(0, groups, (size, groups))
        cells = drawn + groups * np.arange(size)[:, None]
        counts = np.bincount(cells.ravel(), minlength=size * groups)
        yield counts.reshape(size, groups).astype(np.float64)
