"""A judge that compares two candidates side by side, in both orders: which one follows the
instruction better?

The log-odds are averaged over both orders, so that a preference for a letter or a position cancels
out. `ask_letters` asks a model for one of two letters, `decide.choose_between` asks a typed
question. With more than two candidates all pairs are compared, and a Bradley-Terry model computes
the strength of each candidate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.judges.context import (
    AnswerOdds,
    JudgeContext,
    Judgement,
    ModelJudge,
    prompt,
)
from textevolve.llm.choice_logprobs import probability
from textevolve.statistics.regression import logistic
from textevolve.statistics.resampling import Array

AskPair: TypeAlias = Callable[[JudgeContext, str, int, int], Awaitable[AnswerOdds]]
"""A function that compares two candidates, which are named by their indices, and returns the
log-odds that the first one is better. The text is the reference, empty if there is none."""


async def ask_letters(
    context: JudgeContext, reference: str, candidate: int, rival: int
) -> AnswerOdds:
    text = prompt("two").render(
        instruction=context.instruction,
        reference=context.fenced("answer", reference) if reference else "",
        first=context.response(candidate),
        second=context.response(rival, (candidate,)),
        question=ask_better(context.options.rubric),
    )
    messages = (context.system(), context.user(text, candidates=(candidate, rival)))
    return AnswerOdds((await context.choose(messages, "A", "B"),))


@dataclass(frozen=True)
class Pairwise(ModelJudge):
    """A judge that compares candidates two at a time, each pair in both orders: two calls of `ask`
    for each pair.

    The score of a candidate is its expected share of wins against the others. With two candidates
    it is the probability of being the better one.
    """

    ask: AskPair = ask_letters

    async def judge(self, context: JudgeContext) -> Judgement:
        if len(context.case.candidates) < 2:
            raise InputError("a pairwise judge needs at least two candidates")
        table = _Comparisons(context, self.ask, await context.reference())
        await table.compare_all()
        return table.judgement()


def ask_better(rubric: str) -> str:
    """Return the question which of two responses is better, by the rubric if there is one."""
    if not rubric:
        return "Which response does better what the instruction asks?"
    return f"Which response does better what this rubric asks?\n{rubric}\n"


class _Comparisons:
    """Compares all pairs of candidates, and holds the log-odds of the first one of each pair from
    both orders."""

    def __init__(self, context: JudgeContext, ask: AskPair, reference: str) -> None:
        self.context = context
        self.ask = ask
        self.reference = reference
        self.asked: dict[tuple[int, int], tuple[float, float]] = {}
        self.readings: dict[tuple[int, int], tuple[AnswerOdds, AnswerOdds]] = {}
        self.failures: dict[tuple[int, int], Failure] = {}

    async def compare_all(self) -> None:
        """Compare all pairs; if a pair fails, the scores come from the other pairs."""
        pairs = list(combinations(range(len(self.context.case.candidates)), 2))
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
        comparisons = [
            {"first": a, "second": b, "log_odds": list(o)} for (a, b), o in self.asked.items()
        ]
        return context.judgement(outcomes, comparisons=comparisons)

    def _outcome(self, candidate: int, strength: float, share: float) -> EvaluationResult | Failure:
        if not any(candidate in pair for pair in self.asked):
            return next(f for pair, f in self.failures.items() if candidate in pair)
        score = min(max(share, 0.0), 1.0)
        readings = [
            reading for pair, both in self.readings.items() if candidate in pair for reading in both
        ]
        odds = AnswerOdds(
            (strength,), readings[0].emulated, sum(reading.cut for reading in readings)
        )
        text = f"expected to win {score:.0%} of comparisons with the others"
        return self.context.result(score, [text], odds.cut, log_odds=strength, **odds.told)


PRIOR = 0.1
"""The number of comparisons that each candidate is assumed to have won, and lost, against an
average one."""
_STEPS = 200
_TIE = 1e-9


def bradley_terry(wins: Array, prior: float = PRIOR) -> Array:
    """Estimate the log-strength of each candidate, with the mean 0. `wins[a, b]`: the number of
    times a beat b; a tie counts as half. The diagonal is zero.

    By Bradley and Terry (1952), P(a beats b) = s_a / (s_a + s_b). The log-likelihood of Hunter
    (2004), "MM algorithms for generalized Bradley-Terry models", eq. 2, is maximised by Newton
    steps over log s, in which it is concave; a step is shortened by its size, so that it does not
    overshoot. Each candidate is assumed to have also won and lost
    `prior` comparisons with a candidate of strength 1 (Coulom 2008, "Whole-history rating", assumes
    one of each), so that the strength stays finite for candidates that never lost or were never
    compared.
    """
    logs = np.zeros(len(wins))
    for _ in range(_STEPS):
        gradient, curvature = _slopes(logs, wins, prior)
        if np.abs(gradient).max() <= _TIE * (1 + wins.sum()):
            break
        step = np.linalg.solve(curvature, gradient)
        logs += step / (1 + np.abs(step).max())
    return np.asarray(logs - logs.mean())


def _slopes(logs: Array, wins: Array, prior: float) -> tuple[Array, Array]:
    """Return the gradient (k,) of the log-likelihood, and its negative second derivative (k, k)."""
    games = wins + wins.T
    chance = logistic(logs[:, None] - logs[None, :])
    alone = logistic(logs)
    gradient = wins.sum(axis=1) - (games * chance).sum(axis=1) + prior * (1 - 2 * alone)
    weight = games * chance * (1 - chance)
    curvature = np.diag(weight.sum(axis=1) + 2 * prior * alone * (1 - alone)) - weight
    return gradient, curvature


def mean_wins(logs: Array) -> Array:
    """Return each candidate's expected share of wins against the others, in [0, 1]."""
    chances = logistic(logs[:, None] - logs[None, :])
    np.fill_diagonal(chances, 0.0)
    return np.asarray(chances.sum(axis=1) / (len(logs) - 1))
