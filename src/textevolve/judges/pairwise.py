"""Two candidates side by side, in both orders: which does better what the instruction asks?

The log-odds are averaged over the orders, so that a liking for a letter or a place cancels. How a
pair is asked is given: `ask_letters` reads two letters, `decide.choose_between` has it decided.
More candidates than two: all pairs, and Bradley-Terry scores.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, attempt
from textevolve.judges.context import AnswerOdds, JudgeContext, Judgement, Options, prompt
from textevolve.judges.ranking import all_pairs, bradley_terry, mean_wins
from textevolve.llm.choice_logprobs import probability
from textevolve.llm.model import Model

AskPair: TypeAlias = Callable[[JudgeContext, str, int, int], Awaitable[AnswerOdds]]
"""The log-odds of the first of two candidates, by their numbers, against the second; the text is
the reference, empty where there is none."""


async def ask_letters(context: JudgeContext, reference: str, first: int, second: int) -> AnswerOdds:
    shown = prompt("two").render(
        instruction=context.instruction,
        reference=context.fenced("answer", reference) if reference else "",
        first=context.response(first),
        second=context.response(second, (first,)),
        question=ask_better(context.options.rubric),
    )
    messages = (context.system(), context.user(shown, candidates=(first, second)))
    return AnswerOdds((await context.choose(messages, "A", "B"),))


@dataclass(frozen=True)
class Pairwise:
    """Compares candidates two at a time, each pair in both orders: two calls of `ask` a pair.

    The score of a candidate is its expected share of wins against the others: with two candidates,
    the probability of being the better one.
    """

    model: Model
    options: Options = field(default_factory=Options)
    ask: AskPair = ask_letters

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case or its parameters cannot be used, or it has fewer than two
                candidates.
            FatalModelError: no call can succeed; CapabilityError: without log-probabilities.
        """
        context = JudgeContext(case, self.model, self.options)
        if len(case.candidates) < 2:
            raise InputError("a pairwise judge needs at least two candidates")
        reference = await attempt(context.reference())
        if isinstance(reference, Failure):
            return context.fail(reference)
        table = _Comparisons(context, self.ask, reference)
        await table.compare_all()
        return table.judgement()


def ask_better(rubric: str) -> str:
    """The question on two responses."""
    if not rubric:
        return "Which response does better what the instruction asks?"
    return f"Which response does better what this rubric asks?\n{rubric}\n"


class _Comparisons:
    """The pairs that were compared, each with the log-odds of the first one from both orders."""

    def __init__(self, context: JudgeContext, ask: AskPair, reference: str) -> None:
        self.context = context
        self.ask = ask
        self.reference = reference
        self.asked: dict[tuple[int, int], tuple[float, float]] = {}
        self.readings: dict[tuple[int, int], tuple[AnswerOdds, AnswerOdds]] = {}
        self.failures: dict[tuple[int, int], Failure] = {}

    async def compare_all(self) -> None:
        """All pairs; one that fails is missing, and the scores come from the others."""
        pairs = list(all_pairs(len(self.context.case.candidates)))
        outcomes = await self.context.each(pairs, lambda pair: self.compare(*pair))
        for pair, outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, Failure):
                self.failures[pair] = outcome

    async def compare(self, a: int, b: int) -> None:
        forward = await self.ask(self.context, self.reference, a, b)
        back = await self.ask(self.context, self.reference, b, a)
        self.readings[a, b] = (forward, back)
        self.asked[a, b] = (forward.log_odds[0], -back.log_odds[0])

    def judgement(self) -> Judgement:
        context = self.context
        count = len(context.case.candidates)
        wins = np.zeros((count, count))
        for (a, b), odds in self.asked.items():
            wins[a, b] = probability(sum(odds) / 2)
            wins[b, a] = 1.0 - wins[a, b]
        if count == 2 and self.asked:
            mean = sum(self.asked[0, 1]) / 2
            strengths, shares = np.array([mean, -mean]) / 2, wins.sum(axis=1)
        else:
            strengths = bradley_terry(wins)
            shares = mean_wins(strengths)
        outcomes = [self._outcome(j, float(strengths[j]), float(shares[j])) for j in range(count)]
        asked = [{"first": a, "second": b, "log_odds": list(o)} for (a, b), o in self.asked.items()]
        return context.judgement(outcomes, comparisons=asked)

    def _outcome(self, candidate: int, strength: float, share: float) -> EvaluationResult | Failure:
        if not any(candidate in pair for pair in self.asked):
            return next(f for pair, f in self.failures.items() if candidate in pair)
        score = min(max(share, 0.0), 1.0)
        own = [one for pair, both in self.readings.items() if candidate in pair for one in both]
        read = AnswerOdds((strength,), own[0].emulated, sum(one.cut for one in own))
        text = f"expected to win {score:.0%} of comparisons with the others"
        return self.context.result(score, [text], read.cut, log_odds=strength, **read.told)
