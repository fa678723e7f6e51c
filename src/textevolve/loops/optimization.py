"""Optimize an answer: generate, judge, revise by the judge's instructions or write anew, keep the
best.

The first functions decide on the basis of earlier attempts: when to stop, which attempt is best,
whether to revise. `ModelGenerator` then asks a model for an answer to a task, or for the revision
of an earlier one. Task, answer and feedback are in its prompt as data between marks. It gets the
judge's feedback as a list of instructions, and no other part of the history, so the prompt does not
grow.

The steps of a chain may be judged one by one while the chain runs (`StepImprover`): a failed step
is revised before the next one begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import pvariance
from time import perf_counter
from typing import Any, Literal, TypeAlias, TypeVar

from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    SettingsError,
    StoreError,
    describe_error,
)
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Result,
    Usage,
    empty_default,
    mend_texts,
    reaches,
    sum_usage,
)
from textevolve.events import Listener, StepFinished, silence
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Model, draw_sample, request_key, text_request
from textevolve.llm.prompts import Template, draw_nonce, fenced, load_template, number_lines
from textevolve.llm.structured import require_text
from textevolve.loops.attempt import (
    TIME_IS_UP,
    Attempt,
    Generator,
    Made,
    StopReason,
    instructions_of,
    notice_degenerate,
    open_step,
    outcome_of,
    text_similarity,
    within_time,
)
from textevolve.loops.rules import FAILED_GATES
from textevolve.protocol.contents import LENGTH
from textevolve.spans import loop_span
from textevolve.spec import Count, Frozen, Share, option
from textevolve.texts.prose import join_lines
from textevolve.user_code import FirstResults

OptimizationMode: TypeAlias = Literal["auto", "revise", "best-of-n"]
"""How attempts after the first are made: as revisions, anew (`best-of-n`), or by `auto`, which
tries one revision and continues with revisions if its score rises enough."""

ROUNDING = 1e-9
"""The tolerance in comparisons of scores, since 0.70 - 0.65 is not exactly 0.05 in binary
fractions."""


def restart_reason(attempts: Sequence[Attempt], mode: OptimizationMode, least: float) -> str:
    """Return the reason why the next attempt is written anew; empty if it revises an earlier one.
    `least`: the gain in score that the first revision needs for further revisions."""
    if mode == "best-of-n":
        return "each attempt is"
    at = next((n for n, attempt in enumerate(attempts) if attempt.made == "revised"), None)
    if mode == "revise" or at is None:
        return ""
    before = next(
        scored_attempt
        for scored_attempt in reversed(attempts[:at])
        if scored_attempt.score is not None
    )

    return _find_fault(before, attempts[at], least)


def _find_fault(before: Attempt, revision: Attempt, least: float) -> str:
    """Return the reason why a revision did not help enough for another one; empty if it did. A
    revision without a score proves nothing; a degenerate one may have an undeserved score."""
    number = before.iteration
    if before.score is None or revision.score is None:
        return "the first revision has no score"
    if wrong := notice_degenerate(revision.output or "", before.output):
        return f"the first revision is degenerate ({wrong})"
    if fails_gate(revision) != fails_gate(before):
        fails = fails_gate(revision)
        return f"the first revision fails a gate that attempt {number} does not" if fails else ""
    gain = revision.score - before.score
    if gain >= least - ROUNDING:
        return ""

    return f"the first revision gained {gain:+.3f} on attempt {number}, not {least:g} or more"


def choose_best(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the highest score, the earliest of equals; None if none has a score.
    Attempts that fail a gate count only if all do."""
    scored = [attempt for attempt in attempts if attempt.score is not None]
    passing = [attempt for attempt in scored if not fails_gate(attempt)]
    return max(passing or scored, key=lambda attempt: attempt.score or 0.0, default=None)


def fails_gate(attempt: Attempt) -> bool:
    """Return whether an attempt breaks a rule that is a gate: a rule that a text must not break."""
    outcome = attempt.evaluation
    return isinstance(outcome, EvaluationResult) and bool(outcome.metadata.get(FAILED_GATES))


class Stopping(Frozen):
    """The options that decide when a loop stops.

    Converged: the best of the last `convergence_window` scores is less than `min_improvement` above
    the best score before them. Oscillating: the last three scores change direction, their variance
    is above `oscillation_limit` (None: never), and the last is not above the best before it by
    `min_improvement`.
    """

    threshold: Share = option(0.8, "Accept an attempt with this score or more.", group="Stopping")
    max_iterations: Count = option(3, "The most attempts.", group="Stopping")
    min_improvement: Share = option(
        0.05,
        "Stop if the last attempts (--convergence-window) raise the best score by less than this.",
        group="Stopping",
    )
    convergence_window: Count = option(
        2, "The number of last attempts that --min-improvement looks at.", group="Advanced"
    )
    oscillation_limit: float | None = option(
        0.01,
        "Stop if the last three scores go up and down with a variance above this.",
        group="Advanced",
        ge=0,
    )

    def decide(
        self, scores: Sequence[float], iterations: int, *, acceptable: bool = True
    ) -> StopReason | None:
        """Return the reason to stop, or None if the loop continues.

        `scores` are those of the attempts that have one, in order; `iterations` counts all.
        `acceptable` is False if the last attempt fails a gate, even with a high score.
        """
        if scores and acceptable and reaches(scores[-1], self.threshold):
            return "accepted"
        if self._oscillates(scores):
            return "oscillating"
        earlier = scores[: -self.convergence_window]
        last = scores[-self.convergence_window :]
        if earlier and max(last) - max(earlier) < self.min_improvement:
            return "converged"
        if iterations >= self.max_iterations:
            return "max_iterations" if scores else "failed"

        return None

    def _oscillates(self, scores: Sequence[float]) -> bool:
        if self.oscillation_limit is None or len(scores) < 3:
            return False
        oldest, two, three = scores[-3:]
        turned = (two - oldest) * (three - two) < 0
        gained = three - max(scores[:-1]) >= self.min_improvement
        return turned and pvariance(scores[-3:]) > self.oscillation_limit and not gained


def _prompt(name: str) -> Template:
    return load_template("textevolve.loops", name)


class ModelGenerator:
    """A `Generator` that asks a model. `usage`: the sum of its calls.

    A repeated request, for example for another attempt that is written anew, draws another sample.
    An instance belongs to one loop, since its earlier requests determine which sample is next.
    """

    def __init__(self, model: Model, plan: OptimizationPlan) -> None:
        self._model = UsageMeter(model)
        self._plan = plan
        self._asked: Counter[str] = Counter()

    @property
    def usage(self) -> Usage:
        return self._model.usage

    async def __call__(
        self,
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str:
        """Write an answer to a task, or revise an earlier answer.

        Raises:
            AnswerError: the answer was cut at the token limit. ModelError: the call failed.
        """
        plan = self._plan
        nonce, text = write_prompt(task, previous, feedback, plan.seed)
        temperature = plan.temperature if temperature is None else temperature
        request = text_request(text, plan.max_answer_tokens, plan.seed, temperature)
        key = request_key(self._model.name, request)
        sample = self._asked[key]
        self._asked[key] += 1
        response = await self._model(draw_sample(request, sample))
        if response.finish_reason == LENGTH and response.text:
            raise AnswerError(
                f"the answer was cut at {plan.max_answer_tokens} tokens; --max-answer-tokens may be"
                " too low"
            )
        # Small models like to repeat the marks of the prompt's fences.
        return re.sub(rf"\[\[/?{nonce}[^\[\]\n]*\]\]\n?", "", require_text(response)).strip()


def write_prompt(
    task: str, previous: str | None, feedback: Sequence[str], seed: int = 0
) -> tuple[str, str]:
    """Return the nonce of the marks around texts, and the prompt."""
    listed = number_lines(join_lines(line) for line in feedback)
    nonce = draw_nonce((task, previous or "", listed), seed)
    if previous is None:
        return nonce, _prompt("generate").render(task=fenced("task", task, nonce))
    return nonce, _prompt("revise").render(
        task=fenced("task", task, nonce),
        previous=fenced("answer", previous, nonce),
        feedback=fenced("requests", listed, nonce) if listed else "",
    )


T = TypeVar("T")
RETRY_TEMPERATURE = 1.0
"""The sampling temperature with which a degenerate output is requested again."""
ATTEMPT = "attempt"
"""The step that events report: each attempt with its `Attempt`."""


@dataclass(frozen=True)
class Optimization(Result):
    """The attempts of a loop at a task. `reason`: a sentence on why it stopped. `threshold`: the
    score from which an attempt is accepted. `id`, `position`: of the task in its run."""

    task: str
    status: StopReason
    reason: str
    attempts: tuple[Attempt, ...]
    threshold: float
    seconds: float = 0.0
    id: str = ""
    position: int = 0

    @property
    def best(self) -> Attempt | None:
        """Return the best attempt: the highest score among attempts that fail no gate, otherwise
        among all."""
        return choose_best(self.attempts)

    @property
    def output(self) -> str | None:
        return self.best.output if self.best else None

    @property
    def score(self) -> float | None:
        return self.best.score if self.best else None

    @property
    def usage(self) -> Usage:
        return sum_usage(self.attempts)


class OptimizationPlan(Stopping):
    """The options of optimising a text."""

    mode: OptimizationMode = option(
        "auto",
        "How later attempts are made: revise (improve the last one), best-of-n (write each"
        " independently), or auto (revise if the first revision raises the score by"
        " --min-improvement or more, else best-of-n).",
        group="Stopping",
        metavar="NAME",
    )
    temperature: float = option(
        0.7,
        "The temperature of the model that writes attempts.",
        group="Advanced",
        ge=0,
        le=2,
    )
    max_answer_tokens: Count = option(2000, "The most tokens of an attempt.", group="Advanced")
    seed: int = option(
        0, "The seed of the attempts; another seed gives other attempts.", group="Advanced"
    )


@dataclass(frozen=True, slots=True)
class OptimizationContext:
    """The context of an optimisation. `second_judge`: a control whose scores the loop does not use.
    `time_limit`: of the whole loop in seconds, after which a call in flight is abandoned; None: no
    limit. The usage of an attempt is known only if the generator has a running sum `usage`.
    `first_results`: of the generator, which may fail from the beginning."""

    generator: Generator
    evaluator: Evaluator
    second_judge: Evaluator | None = None
    time_limit: float | None = None
    listener: Listener = silence
    first_results: FirstResults = field(default_factory=lambda: FirstResults("the generator"))


async def optimize_text(
    task: str, plan: OptimizationPlan, context: OptimizationContext, id: str, position: int = 0
) -> Optimization:
    """Improve the answer to a task over several attempts, so that the judge scores it as high as
    possible.

    An attempt that cannot be generated or judged is recorded and does not end the loop.

    Raises:
        InputError: the task is blank.
        FatalModelError: no call can succeed. SettingsError, StoreError: as of the models.
    """
    if not task.strip():
        raise InputError("the task is blank")
    loop = _Loop(task, plan, context, id)
    began = perf_counter()

    with loop_span("optimize", case=id, input=task) as here:
        status, reason = await loop.run()
        result = Optimization(
            task=task,
            status=status,
            reason=reason,
            attempts=tuple(loop.attempts),
            threshold=plan.threshold,
            seconds=perf_counter() - began,
            id=id,
            position=position,
        )
        here.note(score=result.score, passed=status == "accepted", status=status, reason=reason)
        here.note(
            output=result.output, failure=Failure("failed", reason) if status == "failed" else None
        )

    return result


UNJUDGED = Failure("skipped", TIME_IS_UP)
"""The evaluation of an attempt that is not finished."""


@dataclass
class _Loop:
    """The state of one loop, and its steps. `draft`: the unfinished attempt. `used`: the
    generator's usage before the draft. `ground`: the last attempt with a score, which a revision
    starts from."""

    task: str
    plan: OptimizationPlan
    context: OptimizationContext
    id: str
    attempts: list[Attempt] = empty_default(list)
    draft: Attempt = field(default_factory=lambda: Attempt(0, None, UNJUDGED))
    ground: Attempt | None = None
    began: float = 0.0
    used: Usage | None = None

    async def run(self) -> tuple[StopReason, str]:
        """Make attempts until there is a reason to stop; return that reason and a sentence about
        it."""
        hear = self.context.listener
        try:
            async with within_time(self.context.time_limit):
                while True:
                    self._begin()
                    number = self.draft.iteration
                    origin = self.draft.made
                    with open_step(
                        hear, "generate", "generate", self.id, iteration=number, made=origin
                    ) as here:
                        has_output = await self._generate()
                        here.note(output=self.draft.output)
                        here.note(failure=None if has_output else self.draft.evaluation)

                    if has_output:
                        with open_step(
                            hear, "evaluate", "judge", self.id, iteration=number
                        ) as here:
                            await self._judge()
                            here.note(outcome=self.draft.evaluation)

                    self._record()
                    if status := self._decide():
                        return status, _explain(status, self.attempts, self.plan)
        except BudgetError as error:
            if self.draft.evaluation is UNJUDGED:
                self._set(evaluation=Failure("skipped", str(error)))
            self._record()
            return "budget", str(error)

    def _decide(self) -> StopReason | None:
        scores = [a.score for a in self.attempts if a.score is not None]
        last = self.attempts[-1]
        acceptable = last.score is not None and not fails_gate(last)
        stopping: Stopping = self.plan
        if self._restart_reason():  # what others scored says nothing of one that is written anew
            never = {"convergence_window": self.plan.max_iterations, "oscillation_limit": None}
            stopping = self.plan.model_copy(update=never)
        return stopping.decide(scores, len(self.attempts), acceptable=acceptable)

    def _restart_reason(self) -> str:
        return restart_reason(self.attempts, self.plan.mode, self.plan.min_improvement)

    def _begin(self) -> None:
        self.began = perf_counter()
        self.used = _used(self.context.generator)
        self.ground = next((a for a in reversed(self.attempts) if a.score is not None), None)
        reason = self._restart_reason()
        notes = ()
        origin: Made = "revised" if self.ground is not None and not reason else "written"
        if origin == "written" and self.attempts and self.attempts[-1].made == "revised":
            notes = (f"written anew: {reason}",)
        self.draft = Attempt(len(self.attempts) + 1, None, UNJUDGED, notes=notes, made=origin)

    def _set(self, **changes: Any) -> None:
        self.draft = replace(self.draft, **changes)

    async def _generate(self) -> bool:
        """Set the output or the failure of the draft; return whether the output can be judged. A
        degenerate output is requested once more; if the second is no better, the first is kept."""
        ground = self.ground if self.draft.made == "revised" else None
        previous = ground.output if ground else None
        text = await self._ask_generator(ground, None)

        if isinstance(text, str) and (wrong := notice_degenerate(text, previous)):
            self._set(notes=(*self.draft.notes, f"degenerate ({wrong}), asked for again"))
            again = await self._ask_generator(ground, RETRY_TEMPERATURE)
            still = notice_degenerate(again, previous) if isinstance(again, str) else again.reason
            if not still:
                text = again
            else:
                self._set(notes=(*self.draft.notes, f"the second was no better ({still})"))

        if isinstance(text, Failure):
            self._set(evaluation=text)
            return False
        self._set(output=text)
        if not text.strip():
            self._set(evaluation=Failure("failed", "the output is empty"))

        return bool(text.strip())

    async def _ask_generator(
        self, ground: Attempt | None, temperature: float | None
    ) -> str | Failure:
        previous, feedback = (ground.output, ground.instructions) if ground else (None, ())
        text: Any = await _attempted(
            lambda: self.context.generator(
                self.task, previous=previous, feedback=feedback, temperature=temperature
            )
        )
        if not isinstance(text, str | Failure):
            text = Failure("failed", f"the generator gave no text but {type(text).__name__}")
        self.context.first_results.note(text)

        return mend_texts(text)

    async def _judge(self) -> None:
        """Set the evaluation of the draft, and that of the second judge."""
        evaluation = await self._ask_judge(self.context.evaluator, "evaluation")
        if evaluation is None:
            return
        self._set(instructions=instructions_of(evaluation, 0))
        if self.context.second_judge is not None:
            await self._ask_judge(self.context.second_judge, "second")

    async def _ask_judge(self, judge: Evaluator, field: str) -> Evaluation | None:
        """Record the judge's outcome for the output; return the evaluation if there is a score,
        otherwise None. BudgetError is raised if a limit was reached."""
        case = Case(self.task, (self.draft.output or "",), self.id)
        evaluation = await _attempted(lambda: judge(case))
        if isinstance(evaluation, Failure):
            self._set(**{field: evaluation})
            return None
        outcome = outcome_of(evaluation)
        if getattr(evaluation, "stopped", None) == "budget":  # of a debate that was cut short
            outcome = Failure("skipped", "the limits were reached within the debate")
        self._set(**{field: outcome, "usage": self.draft.usage + evaluation.usage})
        if isinstance(outcome, Failure) and outcome.kind == "skipped":
            raise BudgetError(outcome.reason)

        return None if isinstance(outcome, Failure) else evaluation

    def _record(self) -> None:
        draft = self.draft
        spent = _used(self.context.generator)
        best = choose_best(self.attempts)
        if spent is not None and self.used is not None:
            self._set(usage=draft.usage + (spent - self.used))
        if draft.output is not None and self.ground is not None:
            self._set(similarity=text_similarity(draft.output, self.ground.output or ""))
        if best is not None and best.score is not None and draft.score is not None:
            fall = best.score - draft.score
            if fall > 0 and fall >= self.plan.min_improvement:
                fell = f"{fall:.2f} below attempt {best.iteration}, which is kept"
                self._set(notes=(*draft.notes, fell))

        self._set(seconds=perf_counter() - self.began)
        self.attempts.append(self.draft)
        self.context.listener(StepFinished(self.id, ATTEMPT, self.draft))


async def _attempted(work: Callable[[], Awaitable[T]]) -> T | Failure:
    """Return the result of `work`, or a failure; a user's callable may raise any exception.

    Raises:
        BudgetError: a limit was reached.
        FatalModelError, SettingsError, StoreError: no later work can succeed.
    """
    try:
        return await work()
    except (BudgetError, FatalModelError, SettingsError, StoreError):
        raise
    except Exception as error:  # noqa: BLE001
        ours = type(error).__module__.startswith("textevolve.")
        reason = str(error) if ours else describe_error(error)
        return Failure("failed", reason or type(error).__name__)


def _used(generator: Generator) -> Usage | None:
    usage: object = getattr(generator, "usage", None)
    return usage if isinstance(usage, Usage) else None


def _explain(status: StopReason, attempts: Sequence[Attempt], stopping: Stopping) -> str:
    """Return a sentence that says why the loop stopped."""
    last = attempts[-1]
    window = stopping.convergence_window
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
    gated = any(a.score is not None and reaches(a.score, stopping.threshold) for a in attempts)
    suffix = " with every gate kept" if gated else ""

    return (
        f"{number} attempt{'s' * (number != 1)} made, none reached {stopping.threshold:g}{suffix}"
    )


@dataclass(frozen=True, slots=True)
class StepImprover:
    """A function that improves the answers of a chain's steps. `judges`: the judges by the names of
    the steps to improve; other steps stay unchanged. `case`: the case that events name."""

    judges: Mapping[str, Evaluator]
    plan: OptimizationPlan
    listener: Listener = silence
    case: str = "1"

    async def __call__(
        self, step: str, prompt: str, answer: str, model: Model
    ) -> tuple[str, Usage]:
        """Improve the answer of a step to its prompt; return the best one, and the usage of the
        judge.

        Raises:
            BudgetError: a limit was reached, so the final answer of the step is unknown.
        """
        if step not in self.judges:
            return answer, Usage()
        generator = ModelGenerator(model, self.plan)
        existing = [answer]

        async def write(task: str, /, **options: Any) -> str:
            return existing.pop() if existing else await generator(task, **options)

        context = OptimizationContext(write, self.judges[step], listener=self.listener)
        improved = await optimize_text(prompt, self.plan, context, f"{self.case}/{step}")
        if improved.status == "budget":
            raise BudgetError(improved.reason)

        return improved.output or answer, improved.usage
