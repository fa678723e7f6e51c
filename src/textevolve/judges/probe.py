"""Judges that ask yes / no questions about one candidate at a time, and compute scores from the
log-probabilities of the answers.

No prompt shows more than one candidate, so no position can be preferred. `Probe` asks the same
questions about every case; `Checklist` first has a model write criteria for the input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.judges.context import (
    ANSWER_TOKENS,
    AnswerOdds,
    DecidedJudge,
    JudgeContext,
    Judgement,
    QuestionJudge,
    StrictAnswer,
    example_state,
    example_turns,
    prompt,
)
from textevolve.judges.judge import judge, judge_option
from textevolve.judges.rubric import read_criteria, read_levels
from textevolve.llm.decisions import probability
from textevolve.metrics.label_metrics import list_calls
from textevolve.trajectory import Trajectory

QUESTIONS = (
    "Does the response follow the instruction?",
    "Would the person who wrote the instruction be satisfied with this response?",
    "Does the response do exactly what the instruction asks, correctly and completely?",
)
"""The questions about each candidate if there is no rubric."""
BY_RUBRIC = "Does the response do all that this rubric asks?"
"""The question that, with the rubric after it, replaces `QUESTIONS`."""

MOST_CRITERIA = 5
"""The maximum number of criteria that a model writes for an input."""


@judge("probe", help="the probability of yes to questions about each text")
@dataclass(frozen=True)
class Probe(QuestionJudge):
    """A judge that asks each of `QUESTIONS` about each candidate: one call of one token for each
    question and candidate, or, with a decision model, one request for each candidate.

    score = P(yes) / (P(yes) + P(no)), from the log-odds averaged over the questions. With the
    option `examples` only the first question is asked, after six answered examples. With a rubric
    there is one question: whether the response does all that the rubric asks.
    """

    examples: bool = judge_option(default=False, help="six answered examples, and one question")

    async def judge(self, context: JudgeContext) -> Judgement:
        reference = await context.reference()
        questions = QUESTIONS[:1] if self.examples else QUESTIONS
        if context.rubric:
            questions = (f"{BY_RUBRIC}\n{context.rubric}\n",)
        return context.judgement(await _examine(context, questions, reference))


@dataclass(frozen=True)
class CriteriaJudge(QuestionJudge):
    """The base of judges that ask for each candidate whether it meets each of several criteria: the
    lines of a rubric, or else at most `MOST_CRITERIA` that the model writes for the input."""

    by_criteria: ClassVar[bool] = True

    async def judge(self, context: JudgeContext) -> Judgement:
        # Without levels, since a probe asks yes / no questions only.
        lines = dict.fromkeys(read_levels(line).text for line in read_criteria(context.rubric))
        criteria = tuple(lines) or await _write_criteria(context)
        reference = await context.reference()
        questions = [f"Is this true of the response: {text}" for text in criteria]
        return context.judgement(await _examine(context, questions, reference), criteria=criteria)


@judge("checklist", help="yes / no questions that a model writes for the input")
@dataclass(frozen=True)
class Checklist(CriteriaJudge, DecidedJudge):
    """A checklist whose criteria `model` writes, and `decider` answers, if there is one."""


class _Criteria(StrictAnswer):
    criteria: list[Annotated[str, Field(min_length=1, max_length=300)]] = Field(
        min_length=1, max_length=MOST_CRITERIA
    )


async def _write_criteria(context: JudgeContext) -> tuple[str, ...]:
    request_text = prompt("criteria").render(
        instruction=context.lone_instruction, most=MOST_CRITERIA
    )
    messages = (context.system(), context.user(request_text))
    answer = await context.ask(messages, ANSWER_TOKENS, _Criteria)

    return tuple(dict.fromkeys(text.strip() for text in answer.criteria))


async def _examine(
    context: JudgeContext, questions: Sequence[str], reference: str
) -> list[EvaluationResult | Failure]:
    """Ask the questions about each candidate, and return its result or failure."""

    async def probe(candidate: int) -> AnswerOdds:
        material = context.show(candidate, reference)
        if context.decides:
            return await context.decide_all(show_state(context, material), questions, (candidate,))

        # One question after the other, so that the prompts share a prefix.
        odds: list[float] = []
        for text in questions:
            shots = example_turns(text) if context.shows_examples else ()
            question = prompt("question").render(question=text)
            message = context.user(material, question, candidates=(candidate,))
            messages = (context.system(quoted=True), *shots, message)
            odds.append(await context.choose(messages, "yes", "no"))

        return AnswerOdds(tuple(odds))

    probed = await context.each_candidate(probe)

    results: list[EvaluationResult | Failure] = []
    for answers in probed:
        if isinstance(answers, Failure):
            results.append(answers)
        else:
            results.append(weigh_answers(context, questions, answers))

    return results


def show_state(context: JudgeContext, material: str) -> tuple[str, ...]:
    """Return the state that a decision model sees of one candidate, after examples if the options
    ask for them."""
    examples = (example_state(QUESTIONS[0]),) if context.shows_examples else ()
    return context.state(*examples, material)


def weigh_answers(
    context: JudgeContext, questions: Sequence[str], odds: AnswerOdds, lines: Sequence[str] = ()
) -> EvaluationResult:
    """Make a result of the mean log-odds of all answers. `lines`: describe the answers; empty: by
    their probability of yes."""
    # The mean of log-odds, not of probabilities: one sure answer outweighs several unsure ones.
    total = sum(odds.log_odds) / len(odds.log_odds)
    answers = dict(zip(questions, odds.log_odds, strict=True))
    lines = lines or [f"{text} {probability(v):.0%} yes" for text, v in answers.items()]
    metadata: dict[str, Any] = {"log_odds": total, "answers": answers, **odds.told}

    return context.result(probability(total), lines, odds.cut, **metadata)


# A judge of a whole trajectory: the request, each tool call with its result, and the answer.

MOST_SHOWN = 4000
"""The maximum number of characters of each call, with its result, that the model sees."""


@judge("trajectory", help="a checklist over an agent's tool calls and answer")
@dataclass(frozen=True)
class TrajectoryJudge(CriteriaJudge):
    """A checklist over the whole trajectory instead of the answer alone. The criteria are the
    user's rubric, otherwise the shipped rubric `trajectory`."""

    shipped: ClassVar[str] = "trajectory"

    @property
    def reads_trajectory(self) -> bool:
        return True

    def show_case(self, case: Case) -> Case:
        """Return the case with each candidate as the final answer of its trajectory.

        Raises:
            InputError: no calls are recorded.
        """
        trajectory = case.trajectory or Trajectory()
        texts = tuple(write_trajectory(trajectory, answer) for answer in case.candidates)
        return replace(case, candidates=texts)


def write_trajectory(trajectory: Trajectory, answer: str) -> str:
    """Write each call with its result on a line of JSON, which no result can break, then the errors
    of other steps, and the final answer. A call is cut at `MOST_SHOWN` characters.

    Raises:
        InputError: no calls are recorded.
    """
    list_calls(trajectory)
    calls: list[Any] = trajectory.as_row()["tool_calls"]
    lines = [f"Tool call {n}: {_shorten(call)}" for n, call in enumerate(calls, 1)]
    lines += [f"Another step failed: {_shorten(error)}" for error in trajectory.errors]

    return "\n".join([*(lines or ["No tool was called."]), "Final answer:", answer])


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


@judge("reference", help="a probe with a reference answer")
@dataclass(frozen=True)
class ReferenceProbe(Probe):
    """A probe that always sees the reference of the case, or, without one, the judge's own."""

    reference: bool = judge_option(default=True, help="show the reference answer")
