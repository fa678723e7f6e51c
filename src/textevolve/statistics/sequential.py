"""One exact test of a paired gain, looked at more than once.

The test is one-sided: whether the mean of paired differences is above 0. Nothing here knows of
templates or judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from textevolve.statistics.intervals import Array, Numbers

ALPHA = 0.025
"""The one-sided level: as strict as a two-sided test at 0.05 that looks at gains alone."""
LATTICE = 1000
"""Differences are rounded to so many parts of 1, so that the distribution of sums is a table."""
FIRST_LOOK = 0.005
"""What of the level the look at the first half may spend."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class LookOutcome:
    """The result of one look at the units so far. `p`: the chance, if nothing is gained, of a stop
    at an earlier look or of as much as is seen at this one; `accepted` if that is within what may
    be spent."""

    units: int
    p: float
    accepted: bool


def sequential_test(blocks: Sequence[Numbers], spending: Sequence[float]) -> list[LookOutcome]:
    """Test whether the mean of paired differences is above 0, with a look after each block of
    units.

    `blocks`: the differences of the units that each look adds, a unit being an item, or the sum
    over items that are not independent. `spending`: the level that all looks up to this one may
    spend together, increasing; the last is the level of the whole. Ends with the first look that
    accepts.

    The test flips signs (Fisher 1935, "The Design of Experiments", chapter III): if the two
    templates do equally well, a unit's difference is as likely to have the other sign. For right
    and wrong that is McNemar's exact test. Given the sizes of the differences, the joint
    distribution of the sums at all looks is known, so that the level is kept exactly, with any
    number of units, without a normal approximation or random draws: the patterns of signs that
    would have been accepted at an earlier look are counted as spent, the others go on. Rosenberger
    and Lachin (2015), "Randomization in Clinical Trials", section 10.10, after Lan and DeMets
    (1983), "Discrete sequential boundaries for clinical trials". The table of sums is made by
    convolution, after Pagano and Tritchler (1983), "On obtaining permutation distributions in
    polynomial time". To stop early for want of success needs no correction: it accepts less.
    """
    steps = [np.rint(np.asarray(block, dtype=float) * LATTICE).astype(int) for block in blocks]
    unit = int(np.gcd.reduce(np.concatenate([np.zeros(1, int), *steps]))) or 1
    reach = sum(int(np.abs(block).sum()) for block in steps) // unit
    alive = np.zeros(2 * reach + 1)  # patterns that no look has accepted, by their sum
    alive[reach] = 1.0
    spent, seen, total = 0.0, 0, 0
    looks: list[LookOutcome] = []
    for block, level in zip(steps, spending, strict=True):
        for size in np.abs(block[block != 0]) // unit:
            alive = _flip(alive, int(size))
        seen, total = seen + len(block), total + int(block.sum()) // unit
        tails = spent + np.cumsum(alive[::-1])[::-1]  # by the sum: as much as that, or stopped
        p = min(1.0, float(tails[reach + total]))
        looks.append(LookOutcome(seen, p, total > 0 and p <= level + _TINY))
        if looks[-1].accepted:
            break
        stop = (tails <= level + _TINY) & (np.arange(tails.size) > reach)
        spent += float(alive[stop].sum())
        alive[stop] = 0.0
    return looks


def _flip(alive: Array, size: int) -> Array:
    """Add one more unit, whose difference has one sign or the other."""
    flipped = np.zeros_like(alive)
    flipped[size:] += alive[:-size]
    flipped[:-size] += alive[size:]
    return flipped / 2


def fewest_units(level: float = ALPHA) -> int:
    """Return the fewest units, all with a gain, whose p-value can reach the level."""
    return math.ceil(-math.log2(level))
