"""The winner among an item's candidates, and the credit of a judge: its agreement with people's
winner, from 0 to 1.

The functions compute single items; `agreement.py` has the figures over many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from textevolve.bench.items import Item
from textevolve.statistics.intervals import TIE, Array, Numbers, paired

TIED = -1  # the index that stands for a tie, instead of that of a winner
ALWAYS_PASS, ALWAYS_FAIL = "always pass", "always fail"
# The rules for pairs that do not read the texts.
BLIND = ("always the first", "always the shorter text", "always the longer text")


def winner_of(scores: Sequence[float]) -> int:
    """Return the index of the highest score, or `TIED` if several candidates share it."""
    highest = max(scores)
    best = [index for index, score in enumerate(scores) if score >= highest - TIE]
    return best[0] if len(best) == 1 else TIED


def top_credit(scores: Numbers, human: Numbers) -> float:
    """Return the credit in [0, 1] of a judge's scores for one item: the number of winners that the
    judge and people share, divided by the larger number of winners.

    With W the judge's candidates of the highest score, and H people's, it is |W & H| / max(|W|,
    |H|). For a pair it is 1 if both have the same winner or both tie, 0.5 if one of them ties, and
    otherwise 0. It is NaN if a score is missing.
    """
    ours, theirs = paired(scores, human)
    if not ours.size or np.isnan(ours).any() or np.isnan(theirs).any():
        return float("nan")
    best, preferred = (s >= s.max() - TIE for s in (ours, theirs))
    return float((best & preferred).sum() / max(best.sum(), preferred.sum()))


def label_credit(passed: bool | None, human: float) -> float:
    """Return the credit of a verdict on a single response: 1 if it agrees with most people, else 0.
    NaN without a verdict, without labels, or if people's labels tie."""
    if passed is None or math.isnan(human) or abs(human - 0.5) <= TIE:
        return math.nan
    return float(passed == (human > 0.5))


def share_winners(scores: Sequence[float], human: Sequence[float], places: int) -> Array:
    """Return an item's table (places, places) of the judge's winner (rows) by people's winner
    (columns), which sums to 1.

    A tie is shared among the tied positions, so that the sum of all items' tables needs no further
    row or column for ties. Of the possible ways to share, it is the one with the most agreement:
    the diagonal sums to the item's credit (`top_credit`), so the agreement of all items is the
    accuracy.
    """
    ours, theirs = (np.zeros(places), np.zeros(places))
    for side, values in ((ours, scores), (theirs, human)):
        best = np.asarray(values, dtype=np.float64) >= max(values) - TIE
        side[: best.size] = best / best.sum()
    same = np.minimum(ours, theirs)
    remainder = 1 - same.sum()
    table = np.diag(same)
    return table + np.outer(ours - same, theirs - same) / remainder if remainder > TIE else table


def blind_credits(items: Sequence[Item]) -> dict[str, list[float]]:
    """Return, by rule, the credit on each item (agreement with people, from 0 to 1) of the rules
    that do not read the texts: for single responses to pass all or to fail all; otherwise to choose
    the first, the shortest or the longest text (in characters)."""
    if any(item.is_single for item in items):
        sides = {ALWAYS_PASS: True, ALWAYS_FAIL: False}
        return {n: [label_credit(side, i.human[0]) for i in items] for n, side in sides.items()}
    first_scores = [[0.0, *[-1.0] * (len(item.candidates) - 1)] for item in items]
    shorter = [[-float(len(text)) for text in item.candidates] for item in items]
    longer = [[-length for length in lengths] for lengths in shorter]
    people = [item.human for item in items]
    answers = zip(BLIND, (first_scores, shorter, longer), strict=True)
    return {name: list(map(top_credit, scores, people)) for name, scores in answers}
