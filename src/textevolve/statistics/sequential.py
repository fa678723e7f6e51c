"""An exact test of a paired gain that may be evaluated several times while data comes in (looks).

The test is one-sided: whether the mean of paired differences is above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from textevolve.statistics.intervals import Numbers

ALPHA = 0.025
"""The one-sided level: that of the gains in a two-sided test at 0.05."""
LATTICE = 1000
"""The number of parts of 1 to which differences are rounded, so that the distribution of sums is a
finite table."""
FIRST_LOOK = 0.005
"""The part of the level that the look at the first half of the data may use."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class LookOutcome:
    """The result of one look at the data so far. `p`: the probability, if there is no gain, of
    acceptance at an earlier look or of a sum at least as large at this one. `accepted`: whether p
    is within the level that looks up to this one may use."""

    p: float
    accepted: bool


def sequential_test(blocks: Sequence[Numbers], spending: Sequence[float]) -> list[LookOutcome]:
    """Test whether the mean of paired differences is above 0, with a look after each block of
    units.

    `blocks`: the differences of the units that each look adds. A unit is an item, or the sum over
    items that are not independent. `spending`: for each look the level that all looks up to it may
    use together, increasing; the last is the level of the whole test. The test ends with the first
    look that accepts.

    Signs are flipped (Fisher 1935, "The Design of Experiments", chapter III): if both sides are
    equally good, a unit's difference has either sign with the same probability. For right and wrong
    answers that is McNemar's exact test. Given the sizes of the differences, the joint distribution
    of the sums at all looks is known, so that the level holds exactly for any number of units,
    without a normal approximation or random draws: patterns of signs that would have been accepted
    at an earlier look are counted as used, and the others continue. Rosenberger and Lachin (2015),
    "Randomization in Clinical Trials", section 10.10, after Lan and DeMets (1983), "Discrete
    sequential boundaries for clinical trials". The table of sums is computed by convolution, after
    Pagano and Tritchler (1983), "On obtaining permutation distributions in polynomial time".
    Stopping early for lack of success needs no correction, since it only accepts less.
    """
    steps = [np.rint(np.asarray(block, dtype=float) * LATTICE).astype(int) for block in blocks]
    unit = int(np.gcd.reduce(np.concatenate([np.zeros(1, int), *steps]))) or 1
    reach = sum(int(np.abs(block).sum()) for block in steps) // unit
    alive = np.zeros(2 * reach + 1)  # patterns that no look has accepted, by their sum
    alive[reach] = 1.0
    spent, total = 0.0, 0
    looks: list[LookOutcome] = []
    for block, level in zip(steps, spending, strict=True):
        for size in np.abs(block[block != 0]) // unit:
            # One more unit, with a positive or negative difference of this size.
            flipped = np.zeros_like(alive)
            flipped[size:] += alive[:-size]
            flipped[:-size] += alive[size:]
            alive = flipped / 2
        total += int(block.sum()) // unit
        tails = spent + np.cumsum(alive[::-1])[::-1]  # by the sum: as much as that, or stopped
        p = min(1.0, float(tails[reach + total]))
        looks.append(LookOutcome(p, total > 0 and p <= level + _TINY))
        if looks[-1].accepted:
            break
        stop = (tails <= level + _TINY) & (np.arange(tails.size) > reach)
        spent += float(alive[stop].sum())
        alive[stop] = 0.0
    return looks


def fewest_units(level: float = ALPHA) -> int:
    """Return the smallest number of units, all with a gain, whose p-value can reach the level."""
    return math.ceil(-math.log2(level))
