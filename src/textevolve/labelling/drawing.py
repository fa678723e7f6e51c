"""Drawing of items to label in strata by the verdicts of judges, so that fewer labels measure how
far each judge agrees with people.

Items on which the same judges agree with each other form a stratum. Within a stratum every item is
equally likely to be drawn, so that a mean over the strata, each with the share that it has of all
items, is unbiased, however many labels each has (`textevolve.statistics.strata`).

Each stratum gets its share of the labels. To give more to those on which the judges disagree, or on
which their agreement with the first labels varies most (Neyman 1934), was measured, too, and needs
as many labels (`benchmarks/label_draws.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeAlias

from textevolve.errors import InputError

# The verdict of each judge on an item: the place of the better text, TIED, or 1 for a pass and 0
# for a failure; None if there is none.
Votes: TypeAlias = tuple[int | None, ...]

TIED = -1
LEAST_SHARE = 0.05
"""The least share of all items in a stratum; the items of smaller ones are one stratum together."""
LEAST_LABELS = 2
"""The least number of labels in a stratum, from which its spread can be computed."""
REST = "others"
"""The name of the stratum of the items that are too few for a stratum of their own."""


def name_strata(votes: Sequence[Votes], *, directed: bool = False) -> list[str]:
    """Return the name of each item's stratum: which of its judges choose the same, as letters, such
    as `aab` if the third judge differs from the first two, and `-` for a judge without a verdict.
    `directed`: whether the choice itself separates strata as well, as a pass and a failure do."""
    patterns = [_describe_votes(of_item, directed) for of_item in votes]
    counts = Counter(patterns)
    least = max(LEAST_LABELS, LEAST_SHARE * len(patterns))

    return [pattern if counts[pattern] >= least else REST for pattern in patterns]


def _describe_votes(votes: Votes, directed: bool) -> str:
    letters: dict[int | None, str] = {0: "f", 1: "p"} if directed else {}
    for vote in votes:
        letters.setdefault(vote, "-" if vote is None else chr(ord("a") + len(letters)))
    return "".join(letters[vote] for vote in votes)


def allocate(sizes: Mapping[str, int], known: Mapping[str, int], labels: int) -> dict[str, int]:
    """Distribute further labels over strata so that each gets its share of all labels: at least
    `LEAST_LABELS`, at most all its items. `known`: the number of items of each that were drawn
    before.

    Raises:
        InputError: there are fewer labels than all strata need.
    """
    totals = {name: max(known.get(name, 0), min(LEAST_LABELS, n)) for name, n in sizes.items()}
    least = sum(totals.values()) - sum(known.values())
    if labels < least:
        raise InputError(
            f"--sample: {labels} are too few for {len(sizes)} strata: at least {least}"
        )

    for _ in range(labels - least):
        unfilled = [name for name, size in sizes.items() if totals[name] < size]
        if not unfilled:
            break
        totals[max(unfilled, key=lambda name: sizes[name] / (totals[name] + 0.5))] += 1

    return {name: number - known.get(name, 0) for name, number in totals.items()}


def draw_items(
    strata: Sequence[str], known: set[int], labels: int, seed: int
) -> dict[int, tuple[str, int]]:
    """Draw items to label; return the name and the size of the stratum of each by its index, in
    random order.

    `strata`: the name of each item's stratum. `known`: the indices of items drawn before. `labels`:
    the number of items to draw.

    Raises:
        InputError: the number is too small for the strata.
    """
    sizes = Counter(strata)
    before = Counter(strata[place] for place in known)
    undrawn: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(strata):
        if place not in known:
            undrawn[name].append(place)

    generator = Random(seed)
    drawn: list[int] = []
    for name, number in allocate(sizes, before, labels).items():
        drawn += generator.sample(undrawn[name], number)

    generator.shuffle(drawn)

    return {place: (strata[place], sizes[strata[place]]) for place in drawn}
