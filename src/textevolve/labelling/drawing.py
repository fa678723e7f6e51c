"""Drawing of items to label: in strata by the verdicts of judges, with more labels where the judges
disagree, so that fewer labels measure how far each judge agrees with people.

Items on which the same judges agree with each other form a stratum. Within a stratum every item is
equally likely to be drawn, so that a mean over the strata, each with the share that it has of all
items, is unbiased, however many labels each has got (`textevolve.statistics.strata`).

The number of labels of each stratum is Neyman's (1934, "On the two different aspects of the
representative method"). The spread of a stratum has to be guessed, since nothing is labelled yet: a
judge is taken to be right as often as the other judges agree with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import TypeAlias

from textevolve.errors import InputError

# The verdict of each judge on an item: the place of the winner, TIED, or 1 (pass) and 0 (fail); None
# if there is none.
Votes: TypeAlias = tuple[int | None, ...]

MOST_STRATA = 8
"""The most strata; the items of all rarer ones are one more stratum."""
LEAST_LABELS = 2
"""The least number of labels in a stratum, with which its spread can be computed."""
PRIOR = 1.0
"""The weight of one half, in judges, in the guess how often a judge is right: judges that all agree
may all be wrong."""
REST = "others"
"""The name of the stratum of the items that are too few for a stratum of their own."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """The part of the items that an item was drawn from. `size`: the number of its items, with and
    without a label."""

    name: str
    size: int


def name_strata(votes: Sequence[Votes], *, most: int = MOST_STRATA) -> list[str]:
    """Return the name of each item's stratum: which of its judges choose the same, as letters, such
    as `aab` if the third judge differs from the first two. A judge without a verdict is `-`."""
    patterns = ["".join(_letters(of_item)) for of_item in votes]
    counts = Counter(patterns)
    common = {pattern for pattern, count in counts.most_common(most) if count >= LEAST_LABELS}

    return [pattern if pattern in common else REST for pattern in patterns]


def _letters(votes: Votes) -> list[str]:
    letters: dict[int, str] = {}
    for vote in votes:
        if vote is not None:
            letters.setdefault(vote, chr(ord("a") + len(letters)))
    return ["-" if vote is None else letters[vote] for vote in votes]


def guess_spread(votes: Votes, *, prior: float = PRIOR) -> float:
    """Guess the standard deviation of a judge's agreement with people on an item, from 0 to 0.5;
    the mean over judges. With one judge it is 0.5."""
    given = [vote for vote in votes if vote is not None]
    variances: list[float] = []
    for vote in given:
        right = (given.count(vote) - 1 + prior) / (len(given) - 1 + 2 * prior)
        variances.append(right * (1 - right))

    return math.sqrt(fmean(variances)) if variances else 0.5


def allocate(sizes: Mapping[str, int], spreads: Mapping[str, float], labels: int) -> dict[str, int]:
    """Distribute labels over strata in proportion to size times spread: at least `LEAST_LABELS`
    each, at most all items.

    Raises:
        InputError: there are fewer labels than all strata need.
    """
    allocation = {name: min(LEAST_LABELS, size) for name, size in sizes.items()}
    if labels < sum(allocation.values()):
        raise InputError(
            f"{labels} items are too few for {len(sizes)} strata: draw at least"
            f" {sum(allocation.values())}"
        )

    # One label after the other goes where the next one narrows the interval most.
    for _ in range(min(labels, sum(sizes.values())) - sum(allocation.values())):
        open_strata = [name for name, size in sizes.items() if allocation[name] < size]
        neediest = max(
            open_strata, key=lambda name: sizes[name] * spreads[name] / (allocation[name] + 0.5)
        )
        allocation[neediest] += 1

    return allocation


def draw_items(votes: Sequence[Votes], labels: int, seed: int) -> dict[int, Stratum]:
    """Draw items to label; return the stratum of each by its index, in random order.

    `votes`: the judges' verdicts on each item. `labels`: the number of items to draw.

    Raises:
        InputError: the number is too small for the strata.
    """
    names = name_strata(votes)
    sizes = Counter(names)
    spreads: dict[str, float] = {}
    for name in sizes:
        of_stratum = [item for item, other in zip(votes, names, strict=True) if other == name]
        spreads[name] = fmean(map(guess_spread, of_stratum))

    generator = Random(seed)
    drawn: dict[int, Stratum] = {}
    for name, number in allocate(sizes, spreads, labels).items():
        places = [place for place, other in enumerate(names) if other == name]
        for place in generator.sample(places, number):
            drawn[place] = Stratum(name, sizes[name])

    order = list(drawn)
    generator.shuffle(order)

    return {place: drawn[place] for place in order}
