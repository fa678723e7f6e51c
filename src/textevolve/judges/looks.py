"""The judge `look:length` scores a text by its number of words. It calls no model.

Length says nothing about quality. It is a judge so that a fitted judge can have it among its
signals, and so that judges can be compared with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.judges.context import PlainJudge
from textevolve.llm.choice_logprobs import probability

LOOK = "look"
LENGTH = "length"
USUAL = 100
"""The number of words of a text with the score 0.5."""


@dataclass(frozen=True)
class LookJudge(PlainJudge):
    """A judge that scores each text by its number of words: words / (words + `USUAL`).

    Raises:
        InputError: `look` is not `length`, the only name there is.
    """

    title = f"{LOOK}:{LENGTH}"
    look: str = LENGTH

    def __post_init__(self) -> None:
        if self.look != LENGTH:
            raise InputError(f"no baseline judge '{self.look}'; there is: {LENGTH}")

    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        odds = math.log(max(1, len(text.split())) / USUAL)
        score = probability(odds)
        feedback = f"{LENGTH}: how many words a text has; that says nothing of its quality"
        return EvaluationResult(score, score >= threshold, feedback, {"log_odds": odds})
