"""The resamples of groups on which all resampling intervals are based."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_CELLS = 1_000_000  # random numbers held at once


FEW = 30
"""The number of groups from which a bootstrap is used. Its percentiles are too narrow for fewer
groups, so a jackknife is used for those."""


def draw_weights(groups: int, draws: int, seed: int) -> Iterator[Array]:
    """Yield how often each group occurs in each resample, shape (resamples, groups), in blocks that
    fit into memory.

    For `FEW` groups or more, the resamples are random draws with replacement (bootstrap). For fewer
    groups nothing is drawn: one resample has each group once, and each other one leaves out one
    group (jackknife). `intervals.resampling_interval` computes an interval from either form.
    """
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
