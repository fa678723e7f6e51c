"""Drawing groups with replacement, for every bootstrap. What is made of a draw is decided above."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_CELLS = 1_000_000  # random numbers held at once


def draw_weights(groups: int, draws: int, seed: int) -> Iterator[Array]:
    """How often each draw takes each group, (draws, groups) in blocks that fit into memory."""
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // groups)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = generator.integers(0, groups, (size, groups))
        cells = drawn + groups * np.arange(size)[:, None]
        counts = np.bincount(cells.ravel(), minlength=size * groups)
        yield counts.reshape(size, groups).astype(np.float64)
