"""Guided reasoning: a discussion of possible answers serves as the chain of thought in the final
prompt.

The caller decides who discusses and how; the discussion is passed as text. The same question is
also answered without it, so that both answers can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, BudgetError, CallError
from textevolve.evaluation import Case, Failure, Usage, check_case
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.fence import draw_nonce, fenced
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.reasoning import describe_missing_text
from textevolve.llm.template import load_template
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.attempt import within_time
from textevolve.spans import step_span
from textevolve.spec import Frozen, option

Ending = Literal["done", "budget", "failed"]
"""How a guidance ended: completely, because of a limit, or because a step failed."""
Discuss = Callable[[tuple[str, ...]], Awaitable[str]]
"""A function that returns the transcript of a discussion about candidate answers."""


class GuidancePlan(Frozen):
    """The options of answering a question with a discussion."""

    proposals: int = option(
        3,
        "The number of answers that are sampled for the debate if none are given.",
        group="Debate",
        ge=1,
    )
    proposal_temperature: float = option(
        0.8,
        "The temperature at which the answers for the debate are sampled.",
        group="Advanced",
        ge=0,
        le=2,
    )
    temperature: float = option(
        0.0, "The temperature of the two final answers.", group="Advanced", ge=0, le=2
    )
    max_answer_tokens: int = option(800, "The most tokens of an answer.", group="Advanced", ge=1)
    seed: int = option(
        0, "The seed of the answers; another seed gives other answers.", group="Advanced"
    )


@dataclass(frozen=True, slots=True)
class GuidanceContext:
    """The context of a guidance. `model`: answers the question. `discuss`: returns the discussion.
    `concurrency`: the number of proposals drawn concurrently. `time_limit`: in seconds; None: no
    limit."""

    model: Model
    discuss: Discuss
    concurrency: int = 8
    time_limit: float | None = None
    listener: Listener = silence


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer, or the reason why there is none."""

    text: str | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Guided:
    """The result of a guidance. `candidates`: the discussed answers. `transcript`: the discussion.
    `plain`: the answer without the discussion, `guided`: the one with it; None if it was not
    reached. `reason`: why it did not end as `done`."""

    question: str
    candidates: tuple[str, ...]
    transcript: str
    plain: Answer | None
    guided: Answer | None
    status: Ending
    reason: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass
class _Work:
    """The state of a guidance so far."""

    question: str
    model: UsageMeter
    plan: GuidancePlan
    context: GuidanceContext
    candidates: tuple[str, ...] = ()
    transcript: str = ""
    plain: Answer | None = None
    guided: Answer | None = None


async def answer_guided(
    question: str, plan: GuidancePlan, context: GuidanceContext, candidates: tuple[str, ...]
) -> Guided:
    """Answer `question` twice: with the discussion of `candidates` in the prompt, and without it.
    Without candidates, they are drawn from the model. The usage does not include the discussion.

    Raises:
        InputError: the question or a candidate cannot be used.
        FatalModelError: no call can succeed.
    """
    check_case(Case(question, candidates or ("x",)))
    work = _Work(question, UsageMeter(context.model), plan, context, candidates)
    started, status, reason = time.monotonic(), "done", ""
    try:
        async with within_time(context.time_limit):
            await _work_through(work)
    except AnswerError as error:
        status, reason = "failed", str(error)
    except BudgetError as error:
        status, reason = "budget", str(error)
    return Guided(
        question=question,
        candidates=work.candidates,
        transcript=work.transcript,
        plain=work.plain,
        guided=work.guided,
        status=status,
        reason=reason,
        usage=work.model.usage,
        seconds=time.monotonic() - started,
    )


async def _work_through(work: _Work) -> None:
    """Draw the candidates if there are none, answer without a discussion, hold the discussion, and
    answer with it.

    Raises:
        AnswerError: a step gave no usable text. BudgetError: a limit was reached.
    """
    hear, context, plan = work.context.listener, work.context, work.plan
    if not work.candidates:
        hear(StepStarted("", "candidates", {"number": plan.proposals}))
        try:
            with step_span("generate", "candidates", number=plan.proposals):
                proposed = await propose(work.question, work.model, plan, context.concurrency)
            work.candidates = proposed
        except CallError as error:
            raise AnswerError(f"the model gave no candidate answer: {error}") from error
    hear(StepFinished("", "candidates", work.candidates))
    hear(StepStarted("", "answers", {"of": "plain"}))
    with step_span("generate", "answers", of="plain") as here:
        work.plain = await _answer(work, work.question)
        here.note(output=work.plain.text, failure=work.plain.failure)
    hear(StepFinished("", "plain", work.plain))
    hear(StepStarted("", "debate", {"candidates": len(work.candidates)}))
    try:
        with step_span("evaluate", "debate", candidates=len(work.candidates)):
            work.transcript = await context.discuss(work.candidates)
    except CallError as error:
        raise AnswerError(f"the debate gave nothing to reason with: {error}") from error
    hear(StepStarted("", "answers", {"of": "guided"}))
    with step_span("generate", "answers", of="guided") as here:
        work.guided = await _answer(work, guided_prompt(work.question, work.transcript, plan.seed))
        here.note(output=work.guided.text, failure=work.guided.failure)
    hear(StepFinished("", "guided", work.guided))
    for name, answer in (("plain", work.plain), ("guided", work.guided)):
        if answer.failure is not None:
            raise AnswerError(f"the model did not give the {name} answer: {answer.failure.reason}")


async def propose(
    question: str, model: Model, plan: GuidancePlan, concurrency: int = 8
) -> tuple[str, ...]:
    """Draw candidate answers from the model, each with its own seed; duplicates are dropped.

    Raises:
        CallError: no call gave a usable text. BudgetError: a limit was reached before all were
            drawn.
    """

    async def draw(number: int) -> str | CallError | BudgetError:
        request = Request(
            messages=(Message("user", (question,)),),
            temperature=plan.proposal_temperature,
            max_tokens=plan.max_answer_tokens,
            seed=plan.seed + 1 + number,
        )
        try:
            return (await model(request)).text.strip()
        except (CallError, BudgetError) as error:
            return error  # raised when the others are done, else they would be lost

    drawn = await gather_bounded([lambda n=n: draw(n) for n in range(plan.proposals)], concurrency)
    errors = [draft for draft in drawn if isinstance(draft, Exception)]
    if limits := [error for error in errors if isinstance(error, BudgetError)]:
        raise limits[0]
    texts = [draft for draft in drawn if isinstance(draft, str) and draft and "\0" not in draft]
    if not texts:
        raise errors[0] if errors else AnswerError(f"{model.name}: all sampled answers were empty")
    return tuple(dict.fromkeys(texts))


def guided_prompt(question: str, transcript: str, seed: int) -> str:
    """Return a prompt with the question and, in a fence, the transcript of a discussion to reason
    with."""
    nonce = draw_nonce((question, transcript), seed)
    template = load_template("textevolve.loops", "guide")
    return template.render(question=question, transcript=fenced("discussion", transcript, nonce))


async def _answer(work: _Work, prompt: str) -> Answer:
    request = Request(
        messages=(Message("user", (prompt,)),),
        temperature=work.plan.temperature,
        max_tokens=work.plan.max_answer_tokens,
        seed=work.plan.seed,
    )
    try:
        response = await work.model(request)
    except CallError as error:
        return Answer(None, Failure("failed", str(error)))
    if text := response.text.strip():
        return Answer(text)
    return Answer(None, Failure("failed", f"{work.model.name}: {describe_missing_text(response)}"))
