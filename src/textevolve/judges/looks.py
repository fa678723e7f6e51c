"""What a text shows without being read: its length, its lines, its marks. No model is asked.

These say nothing about quality. They are judges so that a fit can have them among its signals, and
so that it can be shown how much of its agreement with people they earn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, check_case, refuse_candidate_images
from textevolve.judges.context import Judgement, Options
from textevolve.llm.choice_logprobs import probability
from textevolve.spec import suggest

LOOK = "look"
"""The judge that is any of them: `look:length`."""

_WORD = re.compile(r"\w+")
_MARK = re.compile(r"^\s*(?:[-*•]\s|\d+[.)]\s|#{1,6}\s|\|)|\*\*|`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Look:
    """`count`: from the instruction and a text to a number of at least 0. It becomes the log-odds
    log(number / usual), and so the score number / (number + usual). With a `usual` of 0 the number
    is a share in [0, 1] and the score itself."""

    shows: str
    count: Callable[[str, str], float]
    usual: float = 0.0

    def judge(self, instruction: str, text: str) -> tuple[float, dict[str, float]]:
        """The score, and the metadata that goes with it."""
        number = self.count(instruction, text)
        if not self.usual:
            return number, {}
        odds = math.log(number / self.usual)
        return probability(odds), {"log_odds": odds}


def _words(_instruction: str, text: str) -> float:
    return max(1, len(text.split()))


def _lines(_instruction: str, text: str) -> float:
    return max(1, sum(bool(line.strip()) for line in text.splitlines()))


def _marks(_instruction: str, text: str) -> float:
    return 1 + len(_MARK.findall(text))


def _overlap(instruction: str, text: str) -> float:
    asked = {word.lower() for word in _WORD.findall(instruction)}
    said = {word.lower() for word in _WORD.findall(text)}
    return len(asked & said) / len(asked) if asked else 0.0


LOOKS: Mapping[str, Look] = {
    "length": Look("how many words a text has", _words, 100.0),
    "lines": Look("how many lines that are not blank", _lines, 10.0),
    "markup": Look("how many list signs, headings, bold and code marks", _marks, 10.0),
    "overlap": Look("the share of the instruction's words that the text has, too", _overlap),
}


def find_look(name: str) -> Look:
    """
    Raises:
        InputError: there is none of this name; says which there are.
    """
    if name not in LOOKS:
        raise InputError(f"no look '{name}'{suggest(name, list(LOOKS))}")
    return LOOKS[name]


@dataclass(frozen=True)
class LookJudge:
    """Each text by one of `LOOKS`.

    Raises:
        InputError: there is none of this name.
    """

    name: str

    def __post_init__(self) -> None:
        find_look(self.name)

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case or its parameters cannot be used.
        """
        check_case(case)
        refuse_candidate_images(case, f"{LOOK}:{self.name}")
        threshold, look = Options().overridden(case.parameters).threshold, find_look(self.name)
        outcomes: list[EvaluationResult] = []
        for text in case.candidates:
            score, metadata = look.judge(case.input, text)
            said = f"{self.name}: {look.shows}; that says nothing of its quality"
            outcomes.append(EvaluationResult(score, score >= threshold, said, metadata))
        return Judgement(case, tuple(outcomes))
