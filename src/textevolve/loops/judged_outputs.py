"""Outputs that a model gives to one input, each judged by itself, and what they tell together.

Judged by itself, an output's score does not depend on the company it is in, so that means over
different inputs can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, BudgetError, CallError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    failure_of,
)
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.reasoning import why_without_text
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.scoring import ask_judge, instructions_of, outcome_of

ANOTHER_TEMPERATURE = 1.0
"""Of a second try, where the first gave nothing that could be used."""

REMARKS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """One output for an input and its judgement; `text` is None where none came. `remarks`: what
    the judge wants changed. `usage`: of making and judging it."""

    text: str | None
    evaluation: EvaluationResult | Failure
    remarks: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def score(self) -> float | None:
        return self.evaluation.score if isinstance(self.evaluation, EvaluationResult) else None


@dataclass(frozen=True, slots=True)
class Source:
    """Where samples come from. `wanted`: what the outputs are judged against."""

    wanted: str
    model: Model
    evaluator: Evaluator
    temperature: float
    max_answer_tokens: int
    concurrency: int


async def draw_samples(
    source: Source, text: str, number: int, seed: int, case: str
) -> tuple[Sample, ...]:
    """So many outputs for the input `text`, with seeds from `seed` on. One that fails is recorded.

    Raises:
        FatalModelError: no call can succeed.
    """
    drawn = await gather_bounded(
        [lambda n=n: _sample(source, text, seed + n, f"{case}.{n + 1}") for n in range(number)],
        source.concurrency,
    )
    return tuple(drawn)


async def _sample(source: Source, text: str, seed: int, case: str) -> Sample:
    meter = UsageMeter(source.model)
    try:
        output = await _generate(source, meter, text, seed)
    except (CallError, BudgetError) as error:
        return Sample(None, failure_of(error), usage=meter.usage)
    evaluation = await ask_judge(source.evaluator, Case(source.wanted, (output,), case))
    if isinstance(evaluation, Failure):
        return Sample(output, evaluation, usage=meter.usage)
    outcome = outcome_of(evaluation)
    return Sample(
        text=output,
        evaluation=outcome,
        remarks=() if isinstance(outcome, Failure) else instructions_of(evaluation, 0),
        usage=meter.usage + evaluation.usage,
    )


async def _generate(source: Source, model: Model, text: str, seed: int) -> str:
    """An output; an empty one is asked for once more.

    Raises:
        AnswerError: it was empty twice. ModelError: none came.
    """
    request = Request(
        messages=(Message("user", (text,)),),
        temperature=source.temperature,
        max_tokens=source.max_answer_tokens,
        seed=seed,
    )
    why = ""
    for asked in (request, replace(request, temperature=ANOTHER_TEMPERATURE)):
        response = await model(asked)
        if output := response.text.strip():
            return output
        why = why_without_text(response, "the output")
    raise AnswerError(f"{model.name}: asked twice, {why}")


def mean_score(samples: Sequence[Sample], threshold: float | None) -> EvaluationResult | Failure:
    """The mean over what has a score, which must be half of the outputs at least; one that a limit
    kept from being asked leaves the mean unknown."""
    failures = [s.evaluation for s in samples if isinstance(s.evaluation, Failure)]
    for failure in failures:
        if failure.kind == "skipped":
            return failure
    scores = scores_of(samples)
    if 2 * len(scores) < len(samples):
        number = f"{len(failures)} of {len(samples)} outputs have no score"
        return Failure("failed", f"{number}: {failures[0].reason}")
    score = fmean(scores)
    remarks = "\n".join(gather_remarks(samples))
    return EvaluationResult(score, threshold is not None and score >= threshold, remarks)


def scores_of(samples: Sequence[Sample]) -> list[float]:
    """Those that there are."""
    return [sample.score for sample in samples if sample.score is not None]


def gather_remarks(samples: Sequence[Sample]) -> tuple[str, ...]:
    """What is to be changed, each once: of the worst output first, and in turn from each."""
    scored = sorted((s for s in samples if s.score is not None), key=lambda s: s.score or 0.0)
    found: dict[str, None] = {}
    for place in range(max((len(s.remarks) for s in scored), default=0)):
        for sample in scored:
            if place < len(sample.remarks):
                found[" ".join(sample.remarks[place].split())] = None
    return tuple(found)[:REMARKS_SHOWN]


def tell_missing(samples: Sequence[Sample]) -> tuple[str, ...]:
    """A note on outputs without a score, where there are any."""
    failures = [s.evaluation for s in samples if isinstance(s.evaluation, Failure)]
    if not failures:
        return ()
    return (f"{len(failures)} of {len(samples)} outputs have no score: {failures[0].reason}",)
