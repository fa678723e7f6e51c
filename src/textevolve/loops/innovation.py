"""Innovate: find a better input without labels, by generating outputs, judging them and refining
the input, repeatedly.

Outputs are judged against the user's own input, not against the refined one, so that no refinement
can win by asking for something easier. The score of an input is the mean over the outputs on which
it was tuned, which overestimates it. A refined input is therefore accepted only if it is also
better by a one-sided test on newly drawn outputs of the first and the best input, unless the plan
draws none (`fresh` is 0).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, zip_longest
from random import Random
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from textevolve.engine.local import gather_bounded
from textevolve.errors import BudgetError, CallError, InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    failure_of,
    reaches,
    select_skipped,
)
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Model, text_request
from textevolve.llm.prompts import draw_nonce, fenced, load_template, number_lines, sanitize
from textevolve.llm.structured import ask_structured, describe_fault
from textevolve.loops.attempt import (
    Attempt,
    CutFailure,
    StopReason,
    ask_judge,
    draw_by_score,
    failure_of_output,
    instructions_of,
    notice_degenerate,
    open_step,
    outcome_of,
    stop_if_skipped,
    text_similarity,
    within_time,
)
from textevolve.spans import step_span
from textevolve.spec import Count, Frozen, NonEmpty, option
from textevolve.statistics.comparisons import permutation_p
from textevolve.texts.prose import join_lines

ANOTHER_TEMPERATURE = 1.0
"""The sampling temperature of a second attempt, if the first gave no usable answer."""

REMARKS_SHOWN = 12
"""The maximum number of remarks that a refinement gets."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One output for an input, with its judgement; `text` is None if none was generated. `remarks`:
    the changes that the judge wants. `usage`: of generating and judging."""

    text: str | None
    evaluation: EvaluationResult | Failure
    remarks: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def score(self) -> float | None:
        return self.evaluation.score


def mean_score(samples: Sequence[Sample], threshold: float | None) -> EvaluationResult | Failure:
    """Return the mean score of the outputs; a failure if fewer than half have a score, or a limit
    prevented one from being generated or judged. An input passes from the mean `threshold` on;
    None: it never passes."""
    if skipped := select_skipped(sample.evaluation for sample in samples):
        return skipped
    scores = scores_of(samples)
    if 2 * len(scores) < len(samples):
        return Failure("failed", describe_missing(samples)[0])
    score = fmean(scores)
    remarks = "\n".join(gather_remarks(samples))

    return EvaluationResult(score, threshold is not None and reaches(score, threshold), remarks)


def scores_of(samples: Sequence[Sample]) -> list[float]:
    """Return the scores of the samples that have one."""
    return [sample.score for sample in samples if sample.score is not None]


def gather_remarks(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return the requested changes without duplicates, at most `REMARKS_SHOWN`: the first of each
    output, the worst output first, then the second of each, and so on."""
    scored = sorted((s for s in samples if s.score is not None), key=lambda s: s.score or 0.0)
    turns = zip_longest(*(sample.remarks for sample in scored))
    # Outputs with fewer remarks than others have None in the later turns.
    remarks = [join_lines(remark) for remark in chain.from_iterable(turns) if remark is not None]

    return tuple(dict.fromkeys(remarks))[:REMARKS_SHOWN]


def describe_missing(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return a tuple with one note: how many outputs have no score, and the first reason; empty if
    all have one."""
    reasons = [s.evaluation.reason for s in samples if isinstance(s.evaluation, Failure)]
    number = f"{len(reasons)} of {len(samples)} outputs have no score"
    return (f"{number}: {reasons[0]}",) if reasons else ()


def describe_cut(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return a tuple with one remark for the writer of an input: how many outputs were cut at the
    token limit; empty if none was."""
    number = sum(isinstance(sample.evaluation, CutFailure) for sample in samples)
    if not number:
        return ()
    return (
        f"{number} of {len(samples)} outputs did not come to an end within the space that they"
        " have: ask for shorter outputs.",
    )


FRESH_SEEDS = 1_000_000
"""The number added to the seeds of newly drawn outputs, on which no input was tuned."""

ALPHA = 0.05
"""The significance level: the maximum probability of accepting an input that is not better."""
FEWEST_FRESH = 3
"""The least number of new outputs for each of the two inputs; with fewer the test cannot be
significant (there are 20 ways to divide 6 outputs)."""
ATTEMPT = "attempt"
FRESH = "fresh"
"""The steps that events report."""


class InnovationPlan(Frozen):
    """The options of refining an input."""

    outputs: Count = option(
        4, "The number of outputs that are sampled and judged for each input.", group="Search"
    )
    fresh: int = option(
        8,
        "The number of new outputs that test the gain at the end, for the first and for the best"
        " input; 0: no test.",
        group="Search",
        ge=0,
    )
    rounds: int = option(3, "The most refinements of the input.", group="Search", ge=0)
    select: Literal["argmax", "sample"] = option(
        "argmax",
        "Which input is refined next: argmax (the best) or sample (at random by scores).",
        group="Advanced",
        metavar="NAME",
    )
    min_gain: float = option(
        0.01,
        "The least gain of the mean score that counts as an improvement.",
        group="Advanced",
        ge=0,
        lt=1,
    )
    patience: Count = option(
        1, "Stop after this many rounds in a row without such a gain.", group="Advanced"
    )
    threshold: float | None = option(
        None, "Stop when an input has this mean score or more.", group="Search", ge=0, le=1
    )
    temperature: float = option(
        0.7, "The temperature of the outputs, above 0.", group="Advanced", le=2
    )
    max_answer_tokens: Count = option(800, "The most tokens of an output.", group="Advanced")
    seed: int = option(
        0, "The seed of the outputs; another seed gives other outputs.", group="Advanced"
    )

    @model_validator(mode="after")
    def _consistent(self) -> InnovationPlan:
        if 0 < self.fresh < FEWEST_FRESH:
            raise InputError(
                f"fresh must be 0 (no test) or {FEWEST_FRESH} or more, not {self.fresh}: with"
                " fewer outputs no gain can be significant"
            )

        if self.temperature <= 0:
            raise InputError(
                f"temperature must be above 0, up to 2, not {self.temperature:g}: at 0 all outputs"
                " of an input are the same"
            )

        return self


@dataclass(frozen=True, slots=True)
class InnovationContext:
    """The context of an innovation. `model`: writes outputs and refines inputs. `evaluator`: judges
    outputs. `concurrency`: the number of outputs drawn at once. `time_limit`: in seconds; None: no
    limit."""

    model: Model
    evaluator: Evaluator
    concurrency: int = 8
    time_limit: float | None = None
    listener: Listener = silence


@dataclass(frozen=True, slots=True)
class RefinedInput(Attempt):
    """A refined input with the judgement of its outputs. `samples`: the outputs that it was tuned
    on; empty if it was not judged."""

    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Innovation:
    """The result of an innovation. `input`: the user's own. `attempts`: the inputs in order, the
    user's first. `before`, `after`: newly drawn outputs of the first and the best input; empty if
    they were not drawn, because no input was better or a limit was reached. `min_gain`: the least
    gain of the mean score that counts. `tested`: whether the best input must also be better on new
    outputs to be accepted."""

    input: str
    attempts: tuple[RefinedInput, ...] = ()
    status: StopReason = "stopped"
    before: tuple[Sample, ...] = ()
    after: tuple[Sample, ...] = ()
    reason: str = ""
    min_gain: float = 0.0
    tested: bool = False
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def outputs(self) -> tuple[Sample, ...]:
        """Return all outputs: those of the search, and fresh ones."""
        tuned = (sample for attempt in self.attempts for sample in attempt.samples)
        return (*tuned, *self.before, *self.after)

    @property
    def best(self) -> RefinedInput | None:
        """Return the best input so far; inputs that gain less than the minimum do not count."""
        best: RefinedInput | None = None
        for attempt in self.attempts:
            if _gains(attempt, best, self.min_gain):
                best = attempt
        return best

    @property
    def score(self) -> float | None:
        """Return the mean score of the input to use, on fresh outputs, which did not choose it.
        Without fresh outputs it is that of the search; None if nothing was scored."""
        drawn = scores_of(self.after if self.accepted else self.before)
        if drawn:
            return sum(drawn) / len(drawn)
        chosen = self.best if self.accepted else next(iter(self.attempts), None)
        return None if chosen is None else chosen.score

    @property
    def refined(self) -> str:
        """Return the best refined input if it was accepted, otherwise the user's own."""
        best = self.best if self.accepted else None
        return best.output if best is not None and best.output is not None else self.input

    @property
    def p(self) -> float:
        """Return the one-sided p-value of the gain on fresh outputs: how often an input that is no
        better would look as good by chance. NaN without fresh outputs."""
        return permutation_p(scores_of(self.after), scores_of(self.before))

    @property
    def accepted(self) -> bool:
        """Return whether a refined input is accepted: it scores higher, also on new outputs if
        these are required, of which no more may lack a score than of those of the first input."""
        if not self.tested:
            return self.improved
        covers_less = len(scores_of(self.after)) < len(scores_of(self.before))
        return self.improved and self.p <= ALPHA and not covers_less

    @property
    def improved(self) -> bool:
        """Tell whether a refined input scored higher, by `min_gain` or more, on the outputs that it
        was tuned on than the user's own input."""
        return self.best is not None and self.best.iteration > 1


def _gains(attempt: RefinedInput, best: RefinedInput | None, min_gain: float) -> bool:
    if attempt.score is None or best is None or best.score is None:
        return attempt.score is not None and best is None
    return attempt.score > best.score and attempt.score >= best.score + min_gain


class _Refined(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    input: NonEmpty


@dataclass
class _Work:
    """The state of one innovation: its context, the model that refines inputs, and the result so
    far."""

    plan: InnovationPlan
    context: InnovationContext
    refining: UsageMeter
    result: Innovation


async def refine_input(input: str, plan: InnovationPlan, context: InnovationContext) -> Innovation:
    """Refine `input` in rounds until the outputs of refined inputs score no higher, or the
    threshold or a limit is reached; then draw new outputs that test the best input. A limit raises
    no error: the result has the status `budget`.

    Raises:
        InputError: the evaluator's set-up cannot be used.
        FatalModelError: no call can succeed.
    """
    begun = Innovation(input, min_gain=plan.min_gain, tested=plan.fresh > 0)
    work = _Work(plan, context, UsageMeter(context.model), begun)
    started = time.monotonic()

    try:
        async with within_time(context.time_limit):
            status, reason = await _search(work)
            if status != "failed":
                await _draw_anew(work)
    except BudgetError as error:
        status = "budget"
        reason = str(error)

    result = work.result

    return replace(
        result,
        status=status,
        reason=reason,
        usage=sum((sample.usage for sample in result.outputs), work.refining.usage),
        seconds=time.monotonic() - started,
    )


async def _search(work: _Work) -> tuple[StopReason, str]:
    """Refine the input until its score reaches the threshold or stops rising, or all rounds are
    done; return the reason for the end. It ends at once if the user's own input cannot be judged.

    Raises:
        BudgetError: a limit prevented outputs from being drawn or judged.
    """
    plan = work.plan
    without_gain = 0
    best = await _judge_input(work, 1, work.result.input)
    if isinstance(best.evaluation, Failure):
        return "failed", best.evaluation.reason
    for iteration in count(2):
        if plan.threshold is not None and (best.score or 0.0) >= plan.threshold:
            return "accepted", f"the mean score reached {plan.threshold:g}"
        if iteration > plan.rounds + 1:
            break
        attempt = await _attempt(work, iteration, _choose_base(work, iteration, best))
        if _gains(attempt, best, plan.min_gain):
            best = attempt
            without_gain = 0
            continue

        without_gain += 1
        if without_gain >= plan.patience:
            return "converged", f"no gain of {plan.min_gain:g} in {_rounds(without_gain)}"

    return "max_iterations", f"{_rounds(plan.rounds)} done, which is the most"


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


def _choose_base(work: _Work, iteration: int, best: RefinedInput) -> RefinedInput:
    """Return the input to refine: the best so far, or one that is drawn by its score."""
    if work.plan.select == "argmax":
        return best
    scored = {a.iteration: a for a in work.result.attempts if a.score is not None}
    scores = {number: attempt.score or 0.0 for number, attempt in scored.items()}
    (drawn,) = draw_by_score(scores, 1, Random(f"{work.plan.seed} {iteration}"))

    return scored[drawn]


async def _attempt(work: _Work, iteration: int, base: RefinedInput) -> RefinedInput:
    """Refine an input, generate outputs for the new one, and judge them."""
    before = base.output or ""
    work.context.listener(StepStarted("", "refine", {"iteration": iteration}))
    notes: list[str] = []

    for again in (False, True):
        with step_span("generate", "refine", iteration=iteration) as here:
            try:
                refined = await _refine(work, iteration, base, again=again)
                fault = notice_degenerate(refined, before)
            except CallError as error:
                refined = None
                fault = str(error)

            here.note(output=refined, failure=Failure("failed", fault) if fault else None)

        if refined is not None and not fault:
            return await _judge_input(work, iteration, refined, before, notes)
        notes.append(fault if again else f"{fault}; asked again at another temperature")

    failed = Failure("failed", f"no usable input: {fault}")
    alike = None if refined is None else text_similarity(refined, before)

    return _keep(
        work, RefinedInput(iteration, refined, failed, similarity=alike, notes=tuple(notes))
    )


async def _refine(work: _Work, iteration: int, base: RefinedInput, *, again: bool) -> str:
    """Ask for a new input that follows the remarks on the outputs of another one.

    Raises:
        ModelError: the call failed.
    """
    assert base.output is not None
    remarks = (*describe_cut(base.samples), *gather_remarks(base.samples))
    original = work.result.input
    nonce = draw_nonce((original, base.output, *remarks), work.plan.seed)
    numbered = number_lines(remarks)
    request_text = load_template("textevolve.loops", "innovate").render(
        original=fenced("person", original, nonce),
        current="" if base.output == original else fenced("input", base.output, nonce),
        feedback=fenced("remarks", numbered or "(none: make the input as clear as can be)", nonce),
    )
    request = text_request(
        request_text,
        max(800, len(base.output)),
        work.plan.seed + 1000 * iteration + again,
        ANOTHER_TEMPERATURE if again else work.plan.temperature,
    )
    answer = await ask_structured(work.refining, request, _Refined)
    # It becomes a prompt, so what servers would read as a change of speaker is broken up.
    return sanitize(answer.value.input, nonce)[0]


async def _judge_input(
    work: _Work, iteration: int, text: str, before: str | None = None, notes: Sequence[str] = ()
) -> RefinedInput:
    """Draw outputs for an input and judge them; the mean is its score. `before`: the input that it
    refines."""
    began = time.monotonic()
    plan = work.plan
    hear = work.context.listener
    with open_step(hear, "evaluate", "outputs", iteration=iteration, number=plan.outputs) as here:
        samples = await _draw_samples(work, text, plan.outputs, plan.seed, f"{iteration}")
        evaluation = mean_score(samples, plan.threshold)
        here.note(outcome=evaluation)

    attempt = RefinedInput(
        iteration=iteration,
        output=text,
        evaluation=evaluation,
        seconds=time.monotonic() - began,
        similarity=None if before is None else text_similarity(text, before),
        notes=(*notes, *describe_missing(samples)),
        samples=samples,
    )

    return _keep(work, attempt)


def _keep(work: _Work, attempt: RefinedInput) -> RefinedInput:
    """Record an attempt, and report it to the listener.

    Raises:
        BudgetError: a limit prevented outputs from being drawn or judged.
    """
    work.result = replace(work.result, attempts=(*work.result.attempts, attempt))
    work.context.listener(StepFinished("", ATTEMPT, attempt))
    stop_if_skipped(sample.evaluation for sample in attempt.samples)

    return attempt


async def _draw_samples(
    work: _Work, text: str, number: int, seed: int, case: str
) -> tuple[Sample, ...]:
    """Draw `number` outputs for the input `text`, with seeds from `seed` on. A failed output is
    recorded.

    Raises:
        FatalModelError: no call can succeed.
    """
    drawn = await gather_bounded(
        [lambda n=n: _sample(work, text, seed + n, f"{case}.{n + 1}") for n in range(number)],
        work.context.concurrency,
    )

    return tuple(drawn)


async def _sample(work: _Work, text: str, seed: int, case: str) -> Sample:
    meter = UsageMeter(work.context.model)
    try:
        output = await _generate(work.plan, meter, text, seed)
    except (CallError, BudgetError) as error:
        output = failure_of(error)
    if isinstance(output, Failure):
        return Sample(None, output, usage=meter.usage)

    evaluation = await ask_judge(work.context.evaluator, Case(work.result.input, (output,), case))
    if isinstance(evaluation, Failure):
        return Sample(output, evaluation, usage=meter.usage)
    outcome = outcome_of(evaluation)

    return Sample(
        text=output,
        evaluation=outcome,
        remarks=() if isinstance(outcome, Failure) else instructions_of(evaluation, 0),
        usage=meter.usage + evaluation.usage,
    )


async def _generate(plan: InnovationPlan, model: Model, text: str, seed: int) -> str | Failure:
    """Generate an output; if it is not complete, ask once more. Return a failure if it was not
    complete twice.

    Raises:
        ModelError: the call failed.
    """
    request = text_request(text, plan.max_answer_tokens, seed, plan.temperature)
    response = await model(request)
    if describe_fault(response):
        response = await model(replace(request, temperature=ANOTHER_TEMPERATURE))
    if failure := failure_of_output(response, "--max-answer-tokens"):
        return replace(failure, reason=f"{model.name}: asked twice, {failure.reason}")

    return response.text.strip()


async def _draw_anew(work: _Work) -> None:
    """Draw new outputs, on which no input was tuned, for the first and the best input; none if no
    refined input was better or the plan has `fresh` 0.

    Raises:
        BudgetError: a limit prevented some from being drawn or judged.
    """
    best = work.result.best
    fresh = work.plan.fresh
    seed = work.plan.seed + FRESH_SEEDS
    if best is None or best.iteration == 1 or best.output is None or not fresh:
        return
    inputs = {"before": (1, work.result.input), "after": (best.iteration, best.output)}

    for name, (number, text) in inputs.items():
        hear = work.context.listener
        with open_step(hear, "evaluate", FRESH, of=name, iteration=number, number=fresh):
            samples = await _draw_samples(work, text, fresh, seed, name)
        stop_if_skipped(sample.evaluation for sample in samples)
        work.result = replace(work.result, **{name: samples})
