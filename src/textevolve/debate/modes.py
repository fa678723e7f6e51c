"""The names of the ways to aggregate scores, and to measure the agents' disagreement. They are
separate from the arithmetic (`tensor.py`), so that specifications can name them without importing
numpy.
"""

from __future__ import annotations

import random
from typing import Literal

# The order and the labels of the candidates in the prompt of a turn.
#
# Judges prefer certain positions in a list (position bias), so positions are balanced over the
# turns of a debate. A candidate's label ("Response 2") is drawn once for a debate and never
# changes, so that arguments about it keep their meaning in later turns; only its position changes.

CandidateOrder = Literal["fixed", "balanced", "swap"]
"""How the positions of the candidates change between turns: not at all (`fixed`), by rotation
(`balanced`), or not, but each turn is asked a second time in reverse order (`swap`)."""


def draw_labels(candidates: int, generator: random.Random) -> tuple[int, ...]:
    """Draw the label, from 1 on, of each candidate; return the labels in the case's order of
    candidates."""
    labels = list(range(1, candidates + 1))
    generator.shuffle(labels)
    return tuple(labels)


def place_candidates(turn: int, labels: tuple[int, ...], order: CandidateOrder) -> tuple[int, ...]:
    """Return the indices of the candidates in the order in which turn number `turn` of a debate
    shows them.

    `balanced` rotates the order of the labels by one position each turn, so that in any j
    consecutive turns each candidate has each position once (a cyclic Latin square). Every other
    block of j turns is reversed, so that each pair occurs in both orders. `fixed` and `swap` keep
    the order of the labels; with `swap` the turn is asked a second time in reverse order.
    """
    by_label = sorted(range(len(labels)), key=labels.__getitem__)
    if order != "balanced" or len(by_label) == 1:
        return tuple(by_label)
    block, shift = divmod(turn, len(by_label))
    if block % 2 and len(by_label) > 2:
        by_label.reverse()

    return tuple(by_label[shift:] + by_label[:shift])


Aggregation = Literal["mean", "median", "trimmed", "last-round", "moderator"]
"""How the scores of the turns become one score: by the mean of all turns, their median, their mean
without the fifth at each end (`trimmed`), the mean of the last round that ran (`last-round`), or
the last agent's turn in that round (`moderator`). A moderator whose scores have a certain winner
also ends the debate."""
Selection = Literal["argmax", "sample"]
"""How one of several is chosen: by the highest score, or by a draw by the scores."""
ConvergenceMode = Literal["agents", "pooled"]
"""How the agents' disagreement in a round is measured: by the largest coefficient of variation (CV)
over agents of any candidate's weighted score (`agents`), or by one CV over all scores
(`pooled`)."""
