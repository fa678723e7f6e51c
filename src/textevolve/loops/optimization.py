"""Optimize: generate, judge, revise by what the judge asked for or write anew, keep the best.

When to stop is decided in `controller.py`, whether to revise in `revising.py`; which generator asks
a model is `generation.py`. What the judge says reaches the generator as a list of instructions, and
nothing else of the history does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from pydantic import model_validator

from textevolve.errors import (
    BudgetError,
    FatalModelError,
    InputError,
    SettingsError,
    StoreError,
)
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    mend_texts,
)
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.loops.attempt import TIME_IS_UP, Attempt, Generator, Made, StopReason
from textevolve.loops.controller import Stopping, notice_degenerate
from textevolve.loops.generation import MOST_TOKENS, TEMPERATURE
from textevolve.loops.revising import OptimizationMode, choose_best, fails_gate, why_anew
from textevolve.loops.scoring import instructions_of, outcome_of, sampled
from textevolve.loops.similarity import text_similarity
from textevolve.spec import option

T = TypeVar("T")
RETRY_TEMPERATURE = 1.0
ATTEMPT, DONE = "attempt", "optimization"
"""The steps that are announced: each attempt with its `Attempt`, the end with the result."""

InstructionsOf = Callable[[Evaluation, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Optimization:
    """What a loop made of a task. `reason` says in a sentence why it stopped.

    `minimum_score` is apart from why the loop stopped: see `reached_minimum`. `position`: of the
    task among those of its run.
    """

    task: str
    status: StopReason
    reason: str
    attempts: tuple[Attempt, ...]
    threshold: float
    minimum_score: float | None = None
    seconds: float = 0.0
    id: str = ""
    position: int = 0

    @property
    def best(self) -> Attempt | None:
        """The best attempt: the highest score among those that fail no gate, else among all."""
        return choose_best(self.attempts)

    @property
    def output(self) -> str | None:
        return self.best.output if self.best else None

    @property
    def score(self) -> float | None:
        return self.best.score if self.best else None

    @property
    def reached_minimum(self) -> bool | None:
        """Whether the best score is `minimum_score` or more; None where no minimum was set."""
        if self.minimum_score is None:
            return None
        return self.score is not None and self.score >= self.minimum_score

    @property
    def usage(self) -> Usage:
        return sum((attempt.usage for attempt in self.attempts), Usage())


class OptimizationPlan(Stopping):
    """How a text is optimised."""

    mode: OptimizationMode = option(
        "auto",
        "How later attempts are made: revise revises the attempt before; best-of-n writes each anew"
        " from the task alone, and only the threshold ends it early; auto revises once, and goes on"
        " so where the judge scores that --min-improvement higher, else writes the rest anew.",
        group="Stopping",
    )
    best_of_n: bool = option(False, "The same as --mode best-of-n.", group="Stopping")
    minimum_score: float | None = option(
        None,
        "The lowest score that will do; where the best is below it, the exit code is 3.",
        group="Stopping",
        ge=0,
        le=1,
    )
    samples: int = option(
        1, "How often each attempt is judged; the mean counts.", group="Judging", ge=1
    )
    temperature: float = option(
        TEMPERATURE, "Sampling temperature of the writing.", group="Models", ge=0, le=2
    )
    max_answer_tokens: int = option(
        MOST_TOKENS, "Tokens at most that an attempt may have.", group="Models", ge=1
    )
    seed: int = option(0, "Seed of the writing: another seed, other attempts.", group="Models")

    @model_validator(mode="after")
    def _one_mode(self) -> OptimizationPlan:
        if self.best_of_n and "mode" in self.model_fields_set and self.mode != "best-of-n":
            raise InputError(f"best_of_n is the mode best-of-n, but mode is {self.mode}; give one")
        return self

    @property
    def way(self) -> OptimizationMode:
        """How attempts after the first are made, by either name."""
        return "best-of-n" if self.best_of_n else self.mode


@dataclass(frozen=True)
class OptimizationContext:
    """What an optimisation works with. `second_judge` judges beside, and nothing is optimised
    against it. `time_limit`: of the whole loop in seconds, at which a call in flight is given up.
    What an attempt costs is known of a generator that has a running sum `usage`."""

    generator: Generator
    evaluator: Evaluator
    second_judge: Evaluator | None = None
    time_limit: float | None = None
    instructions: InstructionsOf = instructions_of
    listener: Listener = silence


async def optimize_text(
    task: str, plan: OptimizationPlan, context: OptimizationContext, id: str = "", position: int = 0
) -> Optimization:
    """Make the best text for a task that an evaluator can be made to like.

    An attempt that cannot be generated or judged is recorded and does not end the loop.

    Raises:
        InputError: the task or the time limit cannot be used.
        FatalModelError: no call can succeed. SettingsError, StoreError: as of the models.
    """
    if not task.strip():
        raise InputError("the task is blank")
    limit = context.time_limit
    if limit is not None and not limit >= 0:
        raise InputError(f"the time limit must be 0 or more seconds, not {limit}")
    judge = sampled(context.evaluator, plan.samples)
    loop = _Loop(task, plan, context, judge, id)
    began = perf_counter()
    status, reason = await loop.run(limit)
    result = Optimization(
        task=task,
        status=status,
        reason=reason,
        attempts=tuple(loop.attempts),
        threshold=plan.threshold,
        minimum_score=plan.minimum_score,
        seconds=perf_counter() - began,
        id=id,
        position=position,
    )
    context.listener(StepFinished(id, DONE, result))
    return result


class _Stop(Exception):
    """A limit is reached: the loop ends with what it has."""


@dataclass
class _Draft:
    """An attempt in the making."""

    iteration: int
    output: str | None = None
    evaluation: EvaluationResult | Failure | None = None
    second: EvaluationResult | Failure | None = None
    usage: Usage = Usage()
    notes: list[str] = field(default_factory=list[str])
    instructions: tuple[str, ...] = ()
    made: Made = "written"


@dataclass
class _Loop:
    """The state of one loop, and its steps."""

    task: str
    plan: OptimizationPlan
    context: OptimizationContext
    judge: Evaluator
    id: str
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    async def run(self, time_limit: float | None) -> tuple[StopReason, str]:
        """Attempts until something ends them; why it did."""
        self.limit = asyncio.timeout(time_limit)
        try:
            async with self.limit:
                while True:
                    await self._attempt(len(self.attempts) + 1)
                    if status := self._decide():
                        return status, _explain(status, self.attempts, self.plan)
        except (_Stop, TimeoutError) as error:
            if isinstance(error, TimeoutError) and not self.limit.expired():
                raise
            reason = str(error) or TIME_IS_UP
        return "budget", reason

    def _decide(self) -> StopReason | None:
        scores = [a.score for a in self.attempts if a.score is not None]
        last = self.attempts[-1]
        acceptable = last.score is not None and not fails_gate(last)
        stopping: Stopping = self.plan
        if self._why_anew():  # what others scored says nothing of one that is written anew
            never = {"convergence_window": self.plan.max_iterations, "oscillation_limit": None}
            stopping = self.plan.model_copy(update=never)
        return stopping.decide(scores, len(self.attempts), acceptable=acceptable)

    def _why_anew(self) -> str:
        return why_anew(self.attempts, self.plan.way, self.plan.min_improvement)

    async def _attempt(self, iteration: int) -> None:
        """One attempt, which is recorded however it ends."""
        began, used = perf_counter(), _used(self.context.generator)
        ground = next((a for a in reversed(self.attempts) if a.score is not None), None)
        draft, why = _Draft(iteration), self._why_anew()
        if ground is not None and not why:
            draft.made = "revised"
        elif self.attempts and self.attempts[-1].made == "revised":
            draft.notes.append(f"written anew: {why}")
        try:
            await self._generate(draft, ground if draft.made == "revised" else None)
            if draft.output is not None and draft.evaluation is None:
                await self._judge(draft)
        except (_Stop, asyncio.CancelledError) as error:
            if isinstance(error, _Stop) or self.limit.expired():
                reason = str(error) or TIME_IS_UP
                draft.evaluation = draft.evaluation or Failure("skipped", reason)
                self._record(draft, began, used, ground)
            raise
        self._record(draft, began, used, ground)

    async def _generate(self, draft: _Draft, ground: Attempt | None) -> None:
        """Set the output, or why there is none. A degenerate one is asked for once more, and the
        first is kept where the second is no better."""
        details = {"iteration": draft.iteration, "made": draft.made}
        self.context.listener(StepStarted(self.id, "generate", details))
        previous = ground.output if ground else None
        feedback: tuple[str, ...] = ground.instructions if ground else ()

        async def ask(temperature: float | None) -> str | Failure:
            made: Any = await _attempted(
                lambda: self.context.generator(
                    self.task, previous=previous, feedback=feedback, temperature=temperature
                )
            )
            if isinstance(made, str | Failure):
                return mend_texts(made)
            return Failure("failed", f"the generator gave no text but {type(made).__name__}")

        made = await ask(None)
        if isinstance(made, str) and (wrong := notice_degenerate(made, previous)):
            draft.notes.append(f"degenerate ({wrong}), asked for again")
            again = await ask(RETRY_TEMPERATURE)
            still = notice_degenerate(again, previous) if isinstance(again, str) else again.reason
            if still is None:
                made = again
            else:
                draft.notes.append(f"the second was no better ({still})")
        if isinstance(made, Failure):
            draft.evaluation = made
        elif not made.strip():
            draft.output = made
            draft.evaluation = Failure("failed", "the output is empty")
        else:
            draft.output = made

    async def _judge(self, draft: _Draft) -> None:
        """Set the evaluation, and that of the second judge."""
        assert draft.output is not None
        self.context.listener(StepStarted(self.id, "judge", {"iteration": draft.iteration}))
        case = Case(self.task, (draft.output,), self.id)
        made = await _attempted(lambda: self.judge(case))
        if isinstance(made, Failure):
            draft.evaluation = made
            return
        draft.usage += made.usage
        draft.evaluation = outcome_of(made)
        if getattr(made, "stopped", None) == "budget":  # of a debate that was cut short
            draft.evaluation = Failure("skipped", "the limits were reached within the debate")
        if isinstance(draft.evaluation, Failure):
            if draft.evaluation.kind == "skipped":
                raise _Stop(draft.evaluation.reason)
            return
        draft.instructions = tuple(self.context.instructions(made, 0))
        await self._judge_beside(draft, case)

    async def _judge_beside(self, draft: _Draft, case: Case) -> None:
        if self.context.second_judge is None:
            return
        judge = self.context.second_judge
        made = await _attempted(lambda: judge(case))
        if not isinstance(made, Failure):
            draft.usage += made.usage
            made = outcome_of(made)
        draft.second = made
        if isinstance(made, Failure) and made.kind == "skipped":
            raise _Stop(made.reason)

    def _record(
        self, draft: _Draft, began: float, used: Usage | None, ground: Attempt | None
    ) -> None:
        spent = _used(self.context.generator)
        if spent is not None and used is not None:
            draft.usage += spent - used
        assert draft.evaluation is not None
        last = ground.output if ground else None
        known = draft.output is not None and last is not None
        attempt = Attempt(
            iteration=draft.iteration,
            output=draft.output,
            evaluation=draft.evaluation,
            usage=draft.usage,
            seconds=perf_counter() - began,
            similarity=text_similarity(draft.output or "", last or "") if known else None,
            notes=(*draft.notes, *self._regression(draft)),
            second=draft.second,
            instructions=draft.instructions,
            made=draft.made,
        )
        self.attempts.append(attempt)
        self.context.listener(StepFinished(self.id, ATTEMPT, attempt))

    def _regression(self, draft: _Draft) -> list[str]:
        best = choose_best(self.attempts)
        if best is None or best.score is None or not isinstance(draft.evaluation, EvaluationResult):
            return []
        fall = best.score - draft.evaluation.score
        least = self.plan.min_improvement
        if fall <= 0 or fall < least:
            return []
        return [f"{fall:.2f} below attempt {best.iteration}, which is kept"]


async def _attempted(work: Callable[[], Awaitable[T]]) -> T | Failure:
    """What `work` gives, or why it gave nothing; a callable of the user's may raise anything.

    Raises:
        _Stop: a budget is spent. FatalModelError, SettingsError, StoreError: nothing can go on.
    """
    try:
        return await work()
    except BudgetError as error:
        raise _Stop(str(error)) from None
    except (FatalModelError, SettingsError, StoreError):
        raise
    except Exception as error:  # noqa: BLE001
        ours = type(error).__module__.startswith("textevolve.")
        told = str(error) if ours else f"{type(error).__name__}: {error}"
        return Failure("failed", told or type(error).__name__)


def _used(generator: Generator) -> Usage | None:
    usage: object = getattr(generator, "usage", None)
    return usage if isinstance(usage, Usage) else None


def _explain(status: StopReason, attempts: Sequence[Attempt], stopping: Stopping) -> str:
    """Why the loop stopped, in a sentence."""
    last, window = attempts[-1], stopping.convergence_window
    if status == "accepted":
        return f"attempt {last.iteration} reached the threshold of {stopping.threshold:g}"
    if status == "converged":
        least = stopping.min_improvement
        return f"the last {window} scores gained less than {least:g} on the best before them"
    if status == "oscillating":
        scores = ", ".join(f"{a.score:.2f}" for a in attempts if a.score is not None)
        return f"the scores go up and down: {scores}"
    if status == "failed":
        assert isinstance(last.evaluation, Failure)
        return f"no attempt has a score; the last: {last.evaluation.reason}"
    number = len(attempts)
    gated = any(a.score is not None and a.score >= stopping.threshold for a in attempts)
    kept = " with every gate kept" if gated else ""
    return f"{number} attempt{'s' * (number != 1)} made, none reached {stopping.threshold:g}{kept}"
