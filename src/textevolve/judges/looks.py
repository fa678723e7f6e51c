"""The judge `look:length` scores a text by its number of words. No model is asked.

It says nothing about quality. It is a judge so that a fit can have it among its signals, and so
that a judge can be compared with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, check_case, refuse_candidate_images
from textevolve.judges.context import Judgement, Options
from textevolve.llm.choice_logprobs import probability

LOOK = "look"
LENGTH = "length"
USUAL = 100
"""Words of a text with the score 0.5."""


@dataclass(frozen=True)
class LookJudge:
    """Scores each text by its words: words / (words + `USUAL`).

    Raises:
        InputError: there is no look of this name.
    """

    look: str = LENGTH

    def __post_init__(self) -> None:
        if self.look != LENGTH:
            raise InputError(f"no look '{self.look}'; there is: {LENGTH}")

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case or its parameters cannot be used.
        """
        check_case(case)
        refuse_candidate_images(case, f"{LOOK}:{LENGTH}")
        threshold = Options().overridden(case.parameters).threshold
        outcomes: list[EvaluationResult] = []
        for text in case.candidates:
            odds = math.log(max(1, len(text.split())) / USUAL)
            score = probability(odds)
            feedback = f"{LENGTH}: how many words a text has; that says nothing of its quality"
            outcomes.append(
                EvaluationResult(score, score >= threshold, feedback, {"log_odds": odds})
            )
        return Judgement(case, tuple(outcomes))
