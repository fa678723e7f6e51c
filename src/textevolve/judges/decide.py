"""The judge `decide` asks typed questions, all about one text in one request. A decision model
answers with probabilities and writes no text; for a model that only chats, the decision is
emulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, reject_candidate_images
from textevolve.judges.context import AnswerOdds, JudgeContext, Judgement, QuestionJudge, prompt
from textevolve.judges.judge import judge, judge_option
from textevolve.judges.pairwise import ask_better, judge_pairs
from textevolve.judges.probe import QUESTIONS, show_state, weigh_answers
from textevolve.judges.rubric import ask_criteria, read_criteria
from textevolve.llm.decisions import UNSURE, Answer, Option, Question, choice

DECIDED = QUESTIONS[-1:]
"""The question about each candidate if there is no rubric."""

WHICH = "Which option is the right answer to what is asked, or does best what is asked for?"
"""The question about all candidates together if there is no rubric."""

LONGEST_NAME = 60
"""The maximum number of characters of an option's name."""

FIRST = "first"
SECOND = "second"


@judge("decide", help="a typed question for each criterion of a rubric")
@dataclass(frozen=True)
class Decide(QuestionJudge):
    """A judge that asks typed questions about each candidate alone, or, with `pairwise`, which of
    two candidates is better, or, with `choice`, which of all is the right one.

    Raises:
        InputError: options exclude each other.
    """

    examples: bool = judge_option(default=False, help="six answered examples first")
    pairwise: bool = judge_option(default=False, help="compare two candidates")
    choice: bool = judge_option(default=False, help="choose among all candidates")
    by_criteria: ClassVar[bool] = True
    reads_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.choice and (self.reference or self.examples or self.pairwise):
            raise InputError(
                f"judge {self.name}: the option choice can be combined only with rules and rubric"
            )
        if self.pairwise and self.examples:
            raise InputError(
                f"judge {self.name} takes no examples: they show single texts, and this judge"
                " compares pairs"
            )

    @property
    def is_relative(self) -> bool:
        return self.pairwise or self.choice

    @property
    def is_swayed(self) -> bool:
        return self.choice

    async def judge(self, context: JudgeContext) -> Judgement:
        if self.choice:
            return await choose_among_all(context)
        if self.pairwise:
            return await judge_pairs(context, choose_between)
        return await decide_each(context)


async def decide_each(context: JudgeContext) -> Judgement:
    """Decide on each candidate alone: one request for each, with a question for each criterion.

    The criteria are the lines of the rubric, or `DECIDED` without a rubric. Each answer gives a
    share in [0, 1]: P(yes), or how far up the levels the answer is expected to be. The score is
    computed from the mean of the log-odds of these shares.
    """
    questions = ask_criteria(read_criteria(context.rubric) or DECIDED)
    reference = await context.reference()

    async def decide(candidate: int) -> EvaluationResult:
        state = show_state(context, context.show(candidate, reference))
        answers, decided_odds = await context.decide(state, questions, (candidate,))
        lines = [_describe(text, questions[text], answer) for text, answer in answers.items()]
        return weigh_answers(context, tuple(answers), decided_odds, lines)

    return context.judgement(await context.each_candidate(decide))


async def choose_among_all(context: JudgeContext) -> Judgement:
    """Decide in one request which of all candidates is the right one. The model sees the case's
    input unchanged, and the candidates are the options of a choice.

    The score of a candidate is the probability of its option.
    """
    case = context.case
    if len(case.candidates) < 2:
        raise InputError("a choice needs at least two candidates")
    reject_candidate_images(case, "the judge 'decide' with choices")
    question = ask_options(case.candidates, context.rubric)
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


def ask_options(candidates: Sequence[str], rubric: str) -> Question:
    """Make the question that lets a model choose between all candidates of a case. A candidate is
    an option name, or a name with its meaning, such as `refund: Money back`. If any name is long or
    repeated, all candidates become options numbered from 1."""
    wording = f"Which option does best what this rubric asks?\n{rubric}\n" if rubric else WHICH
    options = [Option(*text.partition(": ")[::2]) for text in candidates]
    names = {option.value for option in options}
    are_short = all(len(name) <= LONGEST_NAME and "\n" not in name for name in names)
    if not are_short or len(names) < len(options):
        options = [Option(str(number), text) for number, text in enumerate(candidates, 1)]

    return Question("option", "choice", wording, tuple(options))


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
    question = choice("better", ask_better(context.rubric), (FIRST, SECOND))
    questions = {question.instructions: question}
    _, odds = await context.decide(context.state(text), questions, (candidate, rival))

    return replace(odds, log_odds=(-odds.log_odds[0],))
