"""Order and labels of the candidates in a turn's prompt.

Judges favour a position in the list (position bias), so positions are balanced over a debate's
turns. A candidate's label ("Response 2") is drawn once for a debate and stays, so that what is
argued about it keeps its meaning from turn to turn; only the position changes.
"""

from __future__ import annotations

import random
from typing import Literal

CandidateOrder = Literal["fixed", "balanced", "swap"]


def draw_labels(candidates: int, generator: random.Random) -> tuple[int, ...]:
    """Draw the label, from 1 on, of each candidate."""
    labels = list(range(1, candidates + 1))
    generator.shuffle(labels)
    return tuple(labels)


def place_candidates(turn: int, labels: tuple[int, ...], order: CandidateOrder) -> tuple[int, ...]:
    """Return the candidates' indices in the order in which turn number `turn` of a debate shows
    them.

    `balanced` shifts the labels' order by one position each turn, so any j turns in a row put each
    candidate once into each position (a cyclic Latin square); every other block of j turns runs
    backwards, so that each pair stands in both orders. `fixed` and `swap` keep the labels' order
    (`swap` asks again in the reverse).
    """
    by_label = sorted(range(len(labels)), key=labels.__getitem__)
    if order != "balanced" or len(by_label) == 1:
        return tuple(by_label)
    block, shift = divmod(turn, len(by_label))
    if block % 2 and len(by_label) > 2:
        by_label.reverse()
    return tuple(by_label[shift:] + by_label[:shift])
