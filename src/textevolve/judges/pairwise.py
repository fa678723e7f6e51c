"""The judge `pairwise` compares two candidates side by side, in both orders: which one follows the
instruction better?

The log-odds are averaged over both orders, so that a preference for a letter or a position cancels
out. `ask_letters` asks a model for one of two letters, `decide.choose_between` asks a typed
question. With more than two candidates all pairs are compared, and a Bradley-Terry model computes
the strength of each candidate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.judges.context import AnswerOdds, JudgeContext, Judgement, QuestionJudge, prompt
from textevolve.judges.judge import judge
from textevolve.llm.decisions import probability
from textevolve.loading import np
from textevolve.statistics.calibration import logistic
from textevolve.statistics.intervals import Array

Pair: TypeAlias = tuple[int, int]


async def ask_letters(
    context: JudgeContext, reference: str, candidate: int, rival: int
) -> AnswerOdds:
    text = prompt("two").render(
        instruction=context.instruction,
        reference=context.fenced("answer", reference) if reference else "",
        first=context.response(candidate),
        second=context.response(rival, (candidate,)),
        question=ask_better(context.rubric),
    )
    messages = (context.system(), context.user(text, candidates=(candidate, rival)))

    return AnswerOdds((await context.choose(messages, "A", "B"),))


@judge("pairwise", help="which of two texts is better, in both orders")
@dataclass(frozen=True)
class Pairwise(QuestionJudge):
    """A judge that compares candidates two at a time, each pair in both orders: two calls of one
    token for each pair."""

    @property
    def is_relative(self) -> bool:
        return True

    async def judge(self, context: JudgeContext) -> Judgement:
        return await judge_pairs(context, ask_letters)


async def judge_pairs(
    context: JudgeContext, ask: Callable[[JudgeContext, str, int, int], Awaitable[AnswerOdds]]
) -> Judgement:
    """Compare each pair of candidates in both orders, by two calls of `ask`, which returns the
    log-odds that the first of two candidates, named by their indices, is better; its text is the
    reference, empty if there is none.

    The score of a candidate is its expected share of wins against the others. With two candidates
    it is the probability of being the better one.
    """
    if len(context.case.candidates) < 2:
        raise InputError("a pairwise judge needs at least two candidates")
    reference = await context.reference()

    async def compare(pair: Pair) -> tuple[AnswerOdds, AnswerOdds]:
        forward = await ask(context, reference, *pair)
        return forward, await ask(context, reference, *pair[::-1])

    pairs = list(combinations(range(len(context.case.candidates)), 2))
    outcomes = await context.each(pairs, compare)

    return _weigh_pairs(context, dict(zip(pairs, outcomes, strict=True)))


def ask_better(rubric: str) -> str:
    """Return the question which of two responses is better, by the rubric if there is one."""
    if not rubric:
        return "Which response does better what the instruction asks?"
    return f"Which response does better what this rubric asks?\n{rubric}\n"


def _weigh_pairs(
    context: JudgeContext, outcomes: Mapping[Pair, tuple[AnswerOdds, AnswerOdds] | Failure]
) -> Judgement:
    """Compute the scores from the answers in both orders. If a pair failed, they come from the
    other pairs."""
    count = len(context.case.candidates)
    answers = {pair: both for pair, both in outcomes.items() if not isinstance(both, Failure)}
    # The second answer is about the turned pair, so its sign is turned, too.
    odds = {
        pair: (answer_odds.log_odds[0], -other.log_odds[0])
        for pair, (answer_odds, other) in answers.items()
    }
    wins = np.zeros((count, count))
    for (a, b), both in odds.items():
        wins[a, b] = probability(sum(both) / 2)
        wins[b, a] = 1.0 - wins[a, b]
    # Two candidates need no model of their strengths: the answer about the pair is the score.
    if count == 2 and odds:
        mean = sum(odds[0, 1]) / 2
        strengths = np.array([mean, -mean]) / 2
        shares = wins.sum(axis=1)
    else:
        strengths = bradley_terry(wins)
        shares = mean_wins(strengths)

    def judge(candidate: int) -> EvaluationResult | Failure:
        compared: list[AnswerOdds] = []
        failures: list[Failure] = []
        for pair, both in outcomes.items():
            if candidate not in pair:
                continue
            if isinstance(both, Failure):
                failures.append(both)
            else:
                compared += both

        # A candidate that was compared with some of the others has a score by these.
        if not compared:
            return failures[0]
        strength = float(strengths[candidate])
        score = min(max(float(shares[candidate]), 0.0), 1.0)
        cut = sum(answer.cut for answer in compared)
        odds_fields = AnswerOdds((strength,), compared[0].emulated, cut).told
        text = f"expected to win {score:.0%} of comparisons with the others"

        return context.result(score, [text], cut, log_odds=strength, **odds_fields)

    comparisons = [
        {"first": a, "second": b, "log_odds": list(both)} for (a, b), both in odds.items()
    ]

    return context.judgement(list(map(judge, range(count))), comparisons=comparisons)


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
    """Return each candidate's expected share of wins against the others, in [0, 1]. `logs`: the
    log-strengths, as `bradley_terry` returns them."""
    chances = logistic(logs[:, None] - logs[None, :])
    np.fill_diagonal(chances, 0.0)
    return np.asarray(chances.sum(axis=1) / (len(logs) - 1))
