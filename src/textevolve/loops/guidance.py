"""Guided reasoning: a discussion of possible answers as a chain of thought in the final prompt.

Who discusses, and how, is decided above: the discussion comes in as text. The same question is also
answered without it, so that what it was worth can be seen side by side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
)
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, Usage, check_case
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.fence import draw_nonce, fence, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.reasoning import why_without_text
from textevolve.llm.template import Template, load_template
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.attempt import TIME_IS_UP
from textevolve.loops.scoring import outcome_of
from textevolve.spec import Frozen, option

Ending = Literal["done", "budget", "failed"]
Discuss = Callable[[tuple[str, ...]], Awaitable[str]]
"""From candidate answers to the transcript of a discussion about them."""


class GuidancePlan(Frozen):
    """How a question is answered."""

    proposals: int = option(
        3, "Answers that are drawn for the debate where none are given.", group="Debate", ge=1
    )
    proposal_temperature: float = option(
        0.8,
        "Sampling temperature of these; at 0 they would be alike.",
        group="Models",
        ge=0,
        le=2,
    )
    temperature: float = option(
        0.0, "Sampling temperature of the two final answers.", group="Models", ge=0, le=2
    )
    max_answer_tokens: int = option(
        800, "Tokens at most that an answer may have.", group="Models", ge=1
    )
    seed: int = option(0, "Seed of what is drawn: another seed, other answers.", group="Models")


@dataclass(frozen=True, slots=True)
class GuidanceContext:
    """What an answer is made with: the model, the discussion, and who judges both answers, if
    anyone does; how many proposals are drawn at once, and how many seconds it may take."""

    model: Model
    discuss: Discuss
    evaluator: Evaluator | None = None
    concurrency: int = 8
    time_limit: float | None = None
    listener: Listener = silence


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer, or why there is none."""

    text: str | None
    failure: Failure | None = None
    judgement: EvaluationResult | Failure | None = None


@dataclass(frozen=True, slots=True)
class Guided:
    """What came of it. `plain` is the answer without the discussion, `guided` the one with it; None
    where it was not come to. `reason` says why it did not end as `done`."""

    question: str
    candidates: tuple[str, ...]
    transcript: str
    plain: Answer | None
    guided: Answer | None
    status: Ending
    reason: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0


@cache
def _template() -> Template:
    return load_template("textevolve.loops", "guide", ("question", "transcript"))


@dataclass
class _Work:
    """What there is so far."""

    question: str
    model: UsageMeter
    plan: GuidancePlan
    context: GuidanceContext
    candidates: tuple[str, ...] = ()
    transcript: str = ""
    plain: Answer | None = None
    guided: Answer | None = None
    judged: Usage = field(default_factory=Usage)


async def answer_guided(
    question: str, plan: GuidancePlan, context: GuidanceContext, candidates: tuple[str, ...] = ()
) -> Guided:
    """Answer `question` with the discussion of `candidates` in the prompt, and without.

    Candidates are drawn from the model where none are given. The usage is without that of the
    discussion. Both answers are judged in one case, plain first.

    Raises:
        InputError: the question or a candidate cannot be used.
        FatalModelError: no call can succeed.
    """
    check_case(Case(question, candidates or ("x",)))
    work = _Work(question, UsageMeter(context.model), plan, context, candidates)
    started = time.monotonic()
    status: Ending = "budget"
    limit = asyncio.timeout(context.time_limit)
    try:
        async with limit:
            reason = await _work_through(work)
            status = "failed" if reason else "done"
    except TimeoutError:
        if not limit.expired():
            raise
        reason = TIME_IS_UP
    except BudgetError as error:
        reason = str(error)
    return Guided(
        question=question,
        candidates=work.candidates,
        transcript=work.transcript,
        plain=work.plain,
        guided=work.guided,
        status=status,
        reason=reason,
        usage=work.model.usage + work.judged,
        seconds=time.monotonic() - started,
    )


async def _work_through(work: _Work) -> str:
    """Candidates, discussion, answers, judgement; gives why the end was not come to, if so.

    Raises:
        BudgetError: a limit was reached.
    """
    if not work.candidates:
        work.context.listener(StepStarted("", "candidates", {"number": work.plan.proposals}))
        try:
            work.candidates = await propose(
                work.question, work.model, work.plan, work.context.concurrency
            )
        except FatalModelError:
            raise
        except ModelError as error:
            return f"no candidate answer came: {error}"
    work.context.listener(StepFinished("", "candidates", work.candidates))
    work.context.listener(StepStarted("", "answers", {"of": "plain"}))
    work.plain = await _answer(work, work.question)
    work.context.listener(StepFinished("", "plain", work.plain))
    work.context.listener(StepStarted("", "debate", {"candidates": len(work.candidates)}))
    try:
        work.transcript = await work.context.discuss(work.candidates)
    except FatalModelError:
        raise
    except ModelError as error:
        return f"the debate gave nothing to reason with: {error}"
    work.context.listener(StepStarted("", "answers", {"of": "guided"}))
    work.guided = await _answer(work, guided_prompt(work.question, work.transcript, work.plan.seed))
    work.context.listener(StepFinished("", "guided", work.guided))
    for name, answer in (("plain", work.plain), ("guided", work.guided)):
        if answer.failure is not None:
            return f"the {name} answer did not come: {answer.failure.reason}"
    if work.context.evaluator is not None:
        work.context.listener(StepStarted("", "judgement", {}))
        failed = await _judge(work, work.context.evaluator)
        work.context.listener(StepFinished("", "judgement", work.guided.judgement))
        return failed
    return ""


async def propose(
    question: str, model: Model, plan: GuidancePlan, concurrency: int = 8
) -> tuple[str, ...]:
    """Candidate answers, each with a seed of its own; the same text twice counts once.

    Raises:
        ModelError: none came. BudgetError: a limit was reached before all had come.
    """
    failed: list[ModelError] = []
    limited: list[BudgetError] = []  # raised when the others are done, else they would be lost

    async def draw(number: int) -> str:
        request = Request(
            messages=(Message("user", (question,)),),
            temperature=plan.proposal_temperature,
            max_tokens=plan.max_answer_tokens,
            seed=plan.seed + 1 + number,
        )
        try:
            return (await model(request)).text.strip()
        except FatalModelError:
            raise
        except ModelError as error:
            failed.append(error)
        except BudgetError as error:
            limited.append(error)
        return ""

    drawn = await gather_bounded([lambda n=n: draw(n) for n in range(plan.proposals)], concurrency)
    if limited:
        raise limited[0]
    candidates = tuple(dict.fromkeys(text for text in drawn if text and "\0" not in text))
    if not candidates:
        raise failed[0] if failed else AnswerError(f"{model.name}: all were empty")
    return candidates


def guided_prompt(question: str, transcript: str, seed: int = 0) -> str:
    """The question with the transcript of a discussion, fenced, as material to reason with."""
    nonce = draw_nonce((question, transcript), seed)
    shown = fence("discussion", sanitize(transcript, nonce)[0], nonce)
    return _template().render(question=question, transcript=shown)


async def _answer(work: _Work, prompt: str) -> Answer:
    request = Request(
        messages=(Message("user", (prompt,)),),
        temperature=work.plan.temperature,
        max_tokens=work.plan.max_answer_tokens,
        seed=work.plan.seed,
    )
    try:
        response = await work.model(request)
    except FatalModelError:
        raise
    except ModelError as error:
        return Answer(None, Failure("failed", str(error)))
    if text := response.text.strip():
        return Answer(text)
    return Answer(None, Failure("failed", f"{work.model.name}: {why_without_text(response)}"))


async def _judge(work: _Work, evaluator: Evaluator) -> str:
    """Both answers in one case; why there is no judgement, if so."""
    assert work.plain is not None
    assert work.plain.text is not None
    assert work.guided is not None
    assert work.guided.text is not None
    try:
        case = Case(work.question, (work.plain.text, work.guided.text), "answers")
        check_case(case)
        found = await evaluator(case)
    except FatalModelError:
        raise
    except (ModelError, InputError) as error:
        return f"the answers were not judged: {error}"
    except TextEvolveError:
        raise
    except Exception as error:  # noqa: BLE001  the caller's own evaluator, on any text
        return f"the answers were not judged: {type(error).__name__}: {error}"
    work.judged += found.usage
    results = outcome_of(found, 0), outcome_of(found, 1)
    work.plain = Answer(work.plain.text, None, results[0])
    work.guided = Answer(work.guided.text, None, results[1])
    for result in results:
        if isinstance(result, Failure):
            if result.kind == "skipped":
                raise BudgetError(result.reason)
            return f"the answers were not judged: {result.reason}"
    return ""
