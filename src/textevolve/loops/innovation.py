"""Innovate: a better input, found without labels. Generate, judge, refine the input, and again.

Outputs are judged against the person's own words, not against the input as it was refined, so that
no refinement can win by asking for something easier. An input's score is the mean over outputs that
it was tuned on; whether it really gained is told by outputs drawn anew for both ends.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from pydantic import BaseModel, ConfigDict, Field

from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Evaluator, Failure, Usage, check_case
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.fence import disarm, draw_nonce, fence
from textevolve.llm.meter import Meter
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.loops.attempt import Attempt, Status
from textevolve.loops.likeness import likeness
from textevolve.loops.samples import (
    ANOTHER_TEMPERATURE,
    Sample,
    Source,
    draw_samples,
    gather_remarks,
    mean_score,
    tell_missing,
)

FRESH_SEEDS = 1_000_000
"""Added to the seed of outputs that no input was tuned on."""

NEAR_COPY = 0.98
SHORTEST, LONGEST, LEEWAY = 0.2, 4.0, 1500
"""A refined input is degenerate when it is nearly the last one, or shorter or longer by these
factors (with so many characters more for a short one)."""

ATTEMPT, FRESH = "attempt", "fresh"


@dataclass(frozen=True, slots=True)
class Plan:
    """How an input is refined. `outputs`: drawn for each input; `fresh`: drawn anew at the end, for
    the first and for the best input. `rounds`: refinements at most. `min_gain`: by which a mean
    score must rise; `patience`: how many rounds in a row may fail to. `threshold`: the mean score
    at which there is nothing more to do; None: never. `seconds`: of the whole."""

    outputs: int = 4
    fresh: int = 8
    rounds: int = 3
    min_gain: float = 0.01
    patience: int = 1
    threshold: float | None = None
    temperature: float = 0.7
    max_answer_tokens: int = 800
    seconds: float | None = None
    seed: int = 0
    side_by_side: int = 8

    def __post_init__(self) -> None:
        ones = ("outputs", "patience", "side_by_side", "max_answer_tokens")
        for name, least in (("rounds", 0), *((name, 1) for name in ones)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be {least} or more, not {getattr(self, name)}")
        if self.fresh != 0 and self.fresh < 2:
            raise InputError(f"fresh must be 0 (none) or 2 or more, not {self.fresh}")
        if not 0 < self.temperature <= 2:
            raise InputError(
                f"the temperature must lie above 0, up to 2, not at {self.temperature}:"
                " at 0 all outputs of an input are the same"
            )
        if not 0 <= self.min_gain < 1:
            raise InputError(f"the least gain must be 0 or more and below 1, not {self.min_gain}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise InputError(f"the threshold must lie between 0 and 1, not at {self.threshold}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError(f"seconds must be finite and above 0, not {self.seconds}")


@dataclass(frozen=True, slots=True)
class Innovation:
    """What came of it. `attempts`: the inputs in order, the person's own first, each with its
    `samples` in the metadata; `before` and `after`: outputs drawn anew for the first and the best
    one, empty where they were not drawn: no input was better, or a limit was reached."""

    input: str
    attempts: tuple[Attempt, ...]
    status: Status
    before: tuple[Sample, ...] = ()
    after: tuple[Sample, ...] = ()
    reason: str = ""
    min_gain: float = 0.0
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def best(self) -> Attempt | None:
        """The best input so far; one that gained less than the least gain does not count."""
        return _best(self.attempts, self.min_gain)

    @property
    def refined(self) -> str:
        """The best input; the person's own where none was better."""
        best = self.best
        return best.output if best is not None and best.output is not None else self.input

    @property
    def improved(self) -> bool:
        """Whether a refined input scored higher on the outputs that it was tuned on."""
        return self.best is not None and self.best.iteration > 1


def _best(attempts: Sequence[Attempt], min_gain: float) -> Attempt | None:
    best: Attempt | None = None
    for attempt in attempts:
        first = best is None and attempt.score is not None
        if first or (best is not None and _gains(attempt, best, min_gain)):
            best = attempt
    return best


def _gains(attempt: Attempt, best: Attempt, min_gain: float) -> bool:
    if attempt.score is None or best.score is None:
        return False
    return attempt.score > best.score and attempt.score >= best.score + min_gain


def samples_of(attempt: Attempt) -> tuple[Sample, ...]:
    """The outputs that an input was tuned on; none where it was not judged."""
    return attempt.metadata.get("samples", ())


class _Refined(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    input: str = Field(min_length=1)


@cache
def _template() -> Template:
    return load_template("textevolve.loops", "innovate", ("original", "current", "feedback"))


@dataclass
class _Work:
    """What one innovation works with, and the inputs so far."""

    input: str
    source: Source
    plan: Plan
    listener: Listener
    refining: Meter
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    before: tuple[Sample, ...] = ()
    after: tuple[Sample, ...] = ()

    @property
    def usage(self) -> Usage:
        drawn = [sample for attempt in self.attempts for sample in samples_of(attempt)]
        drawn += [*self.before, *self.after]
        return sum((sample.usage for sample in drawn), self.refining.usage)


async def innovate(
    input: str,
    model: Model,
    evaluator: Evaluator,
    plan: Plan = Plan(),
    listener: Listener = silence,
) -> Innovation:
    """Refine `input` for as long as the outputs of `model` to it are judged better.

    Raises:
        InputError: the input, or the evaluator's set-up, cannot be used.
        FatalModelError: no call can succeed.
    """
    check_case(Case(input, ("x",)))
    source = Source(
        wanted=input,
        model=model,
        evaluator=evaluator,
        temperature=plan.temperature,
        max_answer_tokens=plan.max_answer_tokens,
        side_by_side=plan.side_by_side,
    )
    work = _Work(input, source, plan, listener, Meter(model))
    started = time.monotonic()
    reason = ""
    try:
        async with asyncio.timeout(plan.seconds):
            status, reason = await _search(work)
            if status not in ("budget", "failed"):
                await _draw_anew(work)
    except TimeoutError:
        if plan.seconds is None:
            raise
        status, reason = "budget", f"the limit of {plan.seconds:g} seconds is reached"
    except BudgetError as error:
        status, reason = "budget", str(error)
    return Innovation(
        input=input,
        attempts=tuple(work.attempts),
        status=status,
        before=work.before,
        after=work.after,
        reason=reason,
        min_gain=plan.min_gain,
        usage=work.usage,
        seconds=time.monotonic() - started,
    )


async def _search(work: _Work) -> tuple[Status, str]:
    """Refine until the score rises no more; says why it ended."""
    plan = work.plan
    best = await _judge_input(work, 1, work.input, None)
    if isinstance(best.evaluation, Failure):
        skipped = best.evaluation.kind == "skipped"
        return ("budget" if skipped else "failed"), best.evaluation.reason
    without_gain = 0
    for iteration in range(2, plan.rounds + 2):
        if _is_accepted(best, plan):
            break
        attempt = await _attempt(work, iteration, best)
        if isinstance(attempt.evaluation, Failure) and attempt.evaluation.kind == "skipped":
            return "budget", attempt.evaluation.reason
        if _gains(attempt, best, plan.min_gain):
            best, without_gain = attempt, 0
            continue
        without_gain += 1
        if without_gain >= plan.patience:
            return "converged", f"no gain of {plan.min_gain:g} in {_rounds(without_gain)}"
    if _is_accepted(best, plan):
        return "accepted", f"the mean score reached {plan.threshold:g}"
    return "max_iterations", f"{_rounds(plan.rounds)} used, all there were to be"


def _is_accepted(best: Attempt, plan: Plan) -> bool:
    return plan.threshold is not None and (best.score or 0.0) >= plan.threshold


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


async def _attempt(work: _Work, iteration: int, best: Attempt) -> Attempt:
    """Refine the best input so far, and judge what its outputs are worth."""
    assert best.output is not None
    work.listener(StepStarted("", "refine", {"iteration": iteration}))
    notes: list[str] = []
    refined: str | None = None
    fault = ""
    for again in (False, True):
        try:
            refined = await _refine(work, iteration, best, again=again)
        except FatalModelError:
            raise
        except ModelError as error:
            refined, fault = None, str(error)
        else:
            fault = _degenerate(refined, best.output)
        if not fault:
            break
        notes.append(fault if again else f"{fault}; asked again at another temperature")
    if refined is None or fault:
        alike = None if refined is None else likeness(refined, best.output)
        failed = Failure("failed", f"no usable input: {fault}")
        return _keep(
            work, Attempt(iteration, refined, failed, similarity=alike, notes=tuple(notes))
        )
    return await _judge_input(work, iteration, refined, best.output, tuple(notes))


async def _refine(work: _Work, iteration: int, best: Attempt, *, again: bool) -> str:
    """A new input by the remarks on the outputs of the best one.

    Raises:
        ModelError: none came.
    """
    assert best.output is not None
    remarks = gather_remarks(samples_of(best))
    texts = (work.input, best.output, *remarks)
    nonce = draw_nonce(texts, work.plan.seed)

    def fenced(name: str, text: str) -> str:
        return fence(name, disarm(text, nonce)[0], nonce)

    numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(remarks, 1))
    asked = _template().render(
        original=fenced("person", work.input),
        current="" if best.output == work.input else fenced("input", best.output),
        feedback=fenced("remarks", numbered or "(none: make the input as clear as can be)"),
    )
    request = Request(
        messages=(Message("user", (asked,)),),
        temperature=ANOTHER_TEMPERATURE if again else work.plan.temperature,
        max_tokens=max(800, len(best.output)),
        seed=work.plan.seed + 1000 * iteration + again,
    )
    answer = await ask_structured(work.refining, request, _Refined)
    # It becomes a prompt, so what servers would read as a change of speaker is broken up.
    return disarm(answer.value.input, nonce)[0]


def _degenerate(text: str, before: str) -> str:
    """Why a refined input cannot be one; empty where it can."""
    if "\0" in text:
        return "it holds a NUL character"
    if len(text) < SHORTEST * len(before):
        return f"absurdly short: {len(text)} characters after {len(before)}"
    if len(text) > LONGEST * len(before) + LEEWAY:
        return f"absurdly long: {len(text)} characters after {len(before)}"
    if likeness(text, before) >= NEAR_COPY:
        return "nearly a copy of the input before"
    return ""


async def _judge_input(
    work: _Work,
    iteration: int,
    text: str,
    before: str | None,
    notes: tuple[str, ...] = (),
) -> Attempt:
    """Draw outputs for an input and judge them; the mean is its score."""
    began, plan = time.monotonic(), work.plan
    work.listener(StepStarted("", "outputs", {"iteration": iteration, "number": plan.outputs}))
    samples = await draw_samples(work.source, text, plan.outputs, plan.seed, f"{iteration}")
    attempt = Attempt(
        iteration=iteration,
        output=text,
        evaluation=mean_score(samples, plan.threshold),
        seconds=time.monotonic() - began,
        similarity=None if before is None else likeness(text, before),
        notes=(*notes, *tell_missing(samples)),
        metadata={"samples": samples},
    )
    return _keep(work, attempt)


def _keep(work: _Work, attempt: Attempt) -> Attempt:
    work.attempts.append(attempt)
    work.listener(StepFinished("", ATTEMPT, attempt))
    return attempt


async def _draw_anew(work: _Work) -> None:
    """Outputs that no input was tuned on, for the first and the best input."""
    best = _best(work.attempts, work.plan.min_gain)
    if best is None or best.iteration == 1 or best.output is None or not work.plan.fresh:
        return
    seed = work.plan.seed + FRESH_SEEDS
    for name, text in (("before", work.input), ("after", best.output)):
        work.listener(StepStarted("", FRESH, {"of": name, "number": work.plan.fresh}))
        samples = await draw_samples(work.source, text, work.plan.fresh, seed, name)
        for sample in samples:
            if isinstance(sample.evaluation, Failure) and sample.evaluation.kind == "skipped":
                raise BudgetError(sample.evaluation.reason)
        if name == "before":
            work.before = samples
        else:
            work.after = samples
