"""Judges that ask typed questions, all about one text in one request. A decision model answers with
probabilities and writes no text; for a model that only chats, the decision is emulated.

`Decide` asks about each candidate alone, `DecideChoice` asks about all candidates as the options of
one choice, and `choose_between` compares two candidates for `Pairwise`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure, reject_candidate_images
from textevolve.judges.context import AnswerOdds, JudgeContext, Judgement, ModelJudge, prompt
from textevolve.judges.probe import QUESTIONS, show_state, weigh_answers
from textevolve.judges.rubric import ask_criteria, read_criteria
from textevolve.llm.decisions import UNSURE, Answer, Option, Question, choice, probability
from textevolve.statistics.calibration import logistic
from textevolve.statistics.intervals import Array

# A judge that compares two candidates side by side, in both orders: which one follows the
# instruction better?
#
# The log-odds are averaged over both orders, so that a preference for a letter or a position
# cancels out. `ask_letters` asks a model for one of two letters, `decide.choose_between` asks a
# typed question. With more than two candidates all pairs are compared, and a Bradley-Terry model
# computes the strength of each candidate.

Pair: TypeAlias = tuple[int, int]
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
        reference = await context.reference()

        async def compare(pair: Pair) -> tuple[AnswerOdds, AnswerOdds]:
            forward = await self.ask(context, reference, *pair)
            return forward, await self.ask(context, reference, *pair[::-1])

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
    odds = {pair: (one.log_odds[0], -other.log_odds[0]) for pair, (one, other) in answers.items()}
    wins = np.zeros((count, count))
    for (a, b), both in odds.items():
        wins[a, b] = probability(sum(both) / 2)
        wins[b, a] = 1.0 - wins[a, b]
    if count == 2 and odds:
        mean = sum(odds[0, 1]) / 2
        strengths = np.array([mean, -mean]) / 2
        shares = wins.sum(axis=1)
    else:
        strengths = bradley_terry(wins)
        shares = mean_wins(strengths)

    def judge(candidate: int) -> EvaluationResult | Failure:
        own = [outcome for pair, outcome in outcomes.items() if candidate in pair]
        compared = [answer for both in own if not isinstance(both, Failure) for answer in both]
        if not compared:
            return next(outcome for outcome in own if isinstance(outcome, Failure))
        strength = float(strengths[candidate])
        score = min(max(float(shares[candidate]), 0.0), 1.0)
        cut = sum(answer.cut for answer in compared)
        told = AnswerOdds((strength,), compared[0].emulated, cut).told
        text = f"expected to win {score:.0%} of comparisons with the others"

        return context.result(score, [text], cut, log_odds=strength, **told)

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


DECIDED = QUESTIONS[-1:]
"""The question about each candidate if there is no rubric."""

WHICH = "Which option is the right answer to what is asked, or does best what is asked for?"
"""The question about all candidates together if there is no rubric."""

LONGEST_NAME = 60
"""The maximum number of characters of an option's name."""

FIRST = "first"
SECOND = "second"


@dataclass(frozen=True)
class Decide(ModelJudge):
    """A judge that decides on each candidate alone: one request for each, with a question for each
    criterion.

    The criteria are the lines of the rubric, or `DECIDED` without a rubric. Each answer gives a
    share in [0, 1]: P(yes), or how far up the levels the answer is expected to be. The score is
    computed from the mean of the log-odds of these shares.
    """

    async def judge(self, context: JudgeContext) -> Judgement:
        questions = ask_criteria(read_criteria(self.options.rubric) or DECIDED)
        reference = await context.reference()

        async def decide(candidate: int) -> EvaluationResult:
            state = show_state(context, context.show(candidate, reference))
            answers, decided_odds = await context.decide(state, questions, (candidate,))
            lines = [_describe(text, questions[text], answer) for text, answer in answers.items()]
            return weigh_answers(context, tuple(answers), decided_odds, lines)

        return context.judgement(await context.each(range(len(context.case.candidates)), decide))


@dataclass(frozen=True)
class DecideChoice(ModelJudge):
    """A judge that decides in one request which of all candidates is the right one. The model sees
    the case's input unchanged, and the candidates are the options of a choice.

    The score of a candidate is the probability of its option.
    """

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        if len(case.candidates) < 2:
            raise InputError("a choice needs at least two candidates")
        reject_candidate_images(case, "the judge 'decide' with choices")
        question = ask_options(case.candidates, self.options.rubric)
        answers, odds = await context.decide((case.input,), {question.name: question})
        probabilities = answers[question.name].probabilities
        logs = [math.log(max(p, UNSURE)) for p in probabilities]
        mean = sum(logs) / len(logs)
        results = [
            context.result(
                p, [f"the right option with {p:.0%}"], odds.cut, log_odds=log - mean, **odds.told
            )
            for p, log in zip(probabilities, logs, strict=True)
        ]

        return context.judgement(results)


def ask_options(candidates: Sequence[str], rubric: str = "") -> Question:
    """Make the question that lets a model choose between all candidates of a case. A candidate is
    an option name, or a name with its meaning, such as `refund: Money back`. If any name is long or
    repeated, all candidates become options numbered from 1."""
    wording = f"Which option does best what this rubric asks?\n{rubric}\n" if rubric else WHICH
    labelled = [text.partition(": ") for text in candidates]
    names = {name for name, _, _ in labelled}
    short = all(len(name) <= LONGEST_NAME and "\n" not in name for name in names)
    if short and len(names) == len(labelled):
        options = tuple(Option(name, described) for name, _, described in labelled)
    else:
        options = tuple(Option(str(number), text) for number, text in enumerate(candidates, 1))

    return Question("option", "choice", wording, options)


def _describe(criterion: str, question: Question, answer: Answer) -> str:
    """Return the line of the feedback about one criterion."""
    if question.kind == "predicate":
        return f"{criterion} {answer.share:.0%} yes"
    level = question.options[answer.best].description
    return f"{criterion} {answer.share:.0%} of the way up, most likely: {level}"


async def choose_between(
    context: JudgeContext, reference: str, candidate: int, rival: int
) -> AnswerOdds:
    """Ask which of two candidates is better; return the log-odds that the first one is.

    Raises:
        AnswerError: the question has no answer. ModelError: the call failed.
    """
    text = prompt("pair").render(
        instruction=context.quoted_instruction,
        reference=context.quoted(reference),
        first=context.quoted_response(candidate),
        second=context.quoted_response(rival, (candidate,)),
    )
    question = choice("better", ask_better(context.options.rubric), (FIRST, SECOND))
    questions = {question.instructions: question}
    _, odds = await context.decide(context.state(text), questions, (candidate, rival))

    return replace(odds, log_odds=(-odds.log_odds[0],))
