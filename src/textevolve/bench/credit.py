"""Who wins among an item's candidates, and what credit a judge gets beside people's winners.

Arithmetic on the scores of single items; figures over many are in `agreement.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from textevolve.bench.items import Item
from textevolve.statistics.intervals import TIE, Array, Numbers, paired

TIED = -1
ALWAYS_PASS, ALWAYS_FAIL = "always pass", "always fail"
BLIND = ("always the first", "always the shorter text", "always the longer text")


def winner_of(scores: Sequence[float]) -> int:
    """Return the index of the highest score, or `TIED` if several candidates share it."""
    highest = max(scores)
    best = [index for index, score in enumerate(scores) if score >= highest - TIE]
    return best[0] if len(best) == 1 else TIED


def top_credit(scores: Numbers, human: Numbers) -> float:
    """Return the credit in [0, 1] of a judge's scores for one item: the number of winners that
    judge and people share, divided by the larger number of winners.

    With W the judge's candidates of highest score and H the people's: |W & H| / max(|W|, |H|). Of a
    pair: 1 where both have the same winner or both tie, 0.5 where one of them ties, else 0. NaN
    where a score is missing.
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
    """Return an item's contribution to the table (places, places) of the judge's winners by
    people's.

    A tie is shared among its places, so that no class of ties is needed, which one tie would bring
    into being for all items. Of the ways to share, the one that agrees most: the diagonal sums to
    `top_credit`, so agreement in the table is accuracy.
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
    """Return the credit on each item of the answers that read nothing: of single responses always
    pass and always fail, else the first, the shortest and the longest text (in characters)."""
    if any(item.is_single for item in items):
        sides = {ALWAYS_PASS: True, ALWAYS_FAIL: False}
        return {n: [label_credit(side, i.human[0]) for i in items] for n, side in sides.items()}
    first_scores = [[0.0, *[-1.0] * (len(item.candidates) - 1)] for item in items]
    shorter = [[-float(len(text)) for text in item.candidates] for item in items]
    longer = [[-length for length in lengths] for lengths in shorter]
    people = [item.human for item in items]
    answers = zip(BLIND, (first_scores, shorter, longer), strict=True)
    return {name: list(map(top_credit, scores, people)) for name, scores in answers}
