"""Innovating as a run: kept, gone on with, and its gain told with intervals over fresh outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from textevolve.evaluation import Case, Usage, check_case
from textevolve.events import Listener, silence
from textevolve.loops.attempt import Attempt
from textevolve.loops.innovation import Innovation, Plan, innovate, samples_of
from textevolve.loops.samples import REMARKS_SHOWN, Sample, scores_of
from textevolve.runs.estimate import SHORT_ANSWER, PriceOf, UsageRange
from textevolve.runs.improving import count_calls, open_means, specify_loop
from textevolve.runs.judge_estimate import CHARACTERS_A_TOKEN, estimate_judge
from textevolve.runs.judging import choose_judge
from textevolve.runs.optimization import Judge
from textevolve.runs.spec import MeasurementSpec, read_measurement
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.statistics.intervals import Array, Figure, bootstrap_interval, mean_interval, ratio
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

REFINING_CHARACTERS = 1800
REMARK_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Innovated:
    """An innovation with figures: the mean scores of fresh outputs `before` and `after`, and their
    difference. NaN where none were drawn, or none were judged. `repeated`: fresh outputs, word for
    word ones that the best input was tuned on."""

    innovation: Innovation
    before: Figure
    after: Figure
    gain: Figure
    repeated: int
    run: str
    model: str
    evaluator: str

    @property
    def input(self) -> str:
        """The best input: the refined one, or the person's own where none was better."""
        return self.innovation.refined


async def specify_innovation(
    settings: Settings, evaluator: Judge, plan: Plan, model: str | None = None
) -> MeasurementSpec:
    """The specification of an innovation; time and calls in flight are no part of it.

    Raises:
        InputError: the judge cannot be used, or tells candidates apart only within one case.
    """
    parameters: dict[str, Any] = asdict(replace(plan, seconds=None, side_by_side=1))
    del parameters["seconds"], parameters["side_by_side"]
    chosen = choose_judge(evaluator)
    parameters |= chosen.parameters
    return await specify_loop(settings, "innovate", chosen.specs, model, parameters)


def begin_innovation(
    store: Store, spec: MeasurementSpec, input: str, *, name: str = "", source: str = "Python"
) -> RunRecord:
    """The run of an innovation: a new one, or the one that is kept already.

    Raises:
        InputError: the input cannot be used.
    """
    check_case(Case(input, ("x",)))
    return take_in(store, spec, [Case(input, (), "1")], name=name, source=source)


async def do_innovation(
    store: Store,
    run: RunRecord,
    evaluator: Judge,
    plan: Plan,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> Innovated:
    """Ask what is missing of an innovation, and sum it up.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    (case,) = store.iterate_cases(run.id)
    async with open_means(store, run, settings, limits, listener) as means:
        judge = choose_judge(evaluator).open(means)
        plan = replace(plan, side_by_side=means.in_flight)
        made = await innovate(case.input, means.model, judge, plan, listener)
        if made.status != "budget":
            store.finish_run(run.id, "finished")
    return sum_up(made, run, plan.seed)


def sum_up(made: Innovation, run: RunRecord, seed: int = 0) -> Innovated:
    """The figures of an innovation."""
    spec = read_measurement(run)
    tuned = {s.text for s in samples_of(made.best)} if made.best is not None else set[str | None]()
    return Innovated(
        innovation=made,
        before=_mean(scores_of(made.before), seed),
        after=_mean(scores_of(made.after), seed),
        gain=difference(scores_of(made.before), scores_of(made.after), seed),
        repeated=sum(sample.text is not None and sample.text in tuned for sample in made.after),
        run=run.id,
        model=spec.model,
        evaluator=str(spec.parameters["evaluator"]),
    )


def _mean(scores: list[float], seed: int) -> Figure:
    if not scores:
        return Figure()
    return Figure(float(np.mean(scores)), mean_interval(scores, seed=seed))


def difference(before: list[float], after: list[float], seed: int = 0) -> Figure:
    """The mean of `after` less that of `before`, two samples that have nothing to do with each
    other, with a bootstrap interval."""
    if not before or not after:
        return Figure()
    rows = [(score, 1.0, 0.0, 0.0) for score in before] + [(0.0, 0.0, s, 1.0) for s in after]

    def gap(sums: Array) -> Array:
        return ratio(sums[..., 2], sums[..., 3]) - ratio(sums[..., 0], sums[..., 1])

    value = float(np.mean(after) - np.mean(before))
    return Figure(value, bootstrap_interval(np.array(rows), gap, seed=seed))


def estimate_innovation(
    input: str, spec: MeasurementSpec, plan: Plan, price_of: PriceOf
) -> UsageRange:
    """What an innovation may take. The least: one refinement that gains nothing; the most: all
    rounds, each answer as long as allowed, and asked for again where that may happen."""
    price = price_of(spec.model)
    short, long = SHORT_ANSWER, plan.max_answer_tokens
    remarks = REMARKS_SHOWN * REMARK_CHARACTERS
    refined = max(800, len(input))
    rounds = min(plan.rounds, 1)
    outputs = plan.outputs * (1 + rounds)
    least = count_calls(outputs, len(input) / 5, short, price) + _judged(
        outputs, input, short, spec, price_of, longest=False
    )
    least += count_calls(rounds, (REFINING_CHARACTERS + len(input)) / 5, short, price)
    outputs = plan.outputs * (1 + plan.rounds) + 2 * plan.fresh
    most = count_calls(2 * outputs, 4 * len(input) / 3, long, price) + _judged(
        outputs, input, long, spec, price_of, longest=True
    )
    shown = REFINING_CHARACTERS + remarks + 5 * len(input) + refined
    most += count_calls(4 * plan.rounds, shown / 3, refined, price)
    return UsageRange(1, least, most)


def _judged(
    number: int,
    input: str,
    tokens: int,
    spec: MeasurementSpec,
    price_of: PriceOf,
    *,
    longest: bool,
) -> Usage:
    """Judging so many outputs of so many tokens; nothing is known of a judge of the user's own."""
    if not spec.judges:
        return Usage()
    case = Case(input, ("x" * (tokens * CHARACTERS_A_TOKEN),), "1")
    found = estimate_judge([case], spec.judges[0], spec.model, price_of)
    return sum([found.most if longest else found.least] * number, Usage())


def to_data(found: Innovated) -> Mapping[str, Any]:
    """Everything of an innovation as JSON-ready data."""
    made = found.innovation
    return {
        "kind": "innovate",
        "run": found.run,
        "model": found.model,
        "evaluator": found.evaluator,
        "status": made.status,
        "reason": made.reason,
        "improved": made.improved,
        "input": made.input,
        "refined": made.refined,
        "before": _figure(found.before, made.before),
        "after": _figure(found.after, made.after),
        "gain": _figure(found.gain, None),
        "repeated": found.repeated,
        "attempts": [_attempt(attempt) for attempt in made.attempts],
        "usage": asdict(made.usage),
        "seconds": made.seconds,
    }


def _figure(figure: Figure, samples: Iterable[Sample] | None) -> dict[str, Any]:
    drawn = {} if samples is None else {"samples": [_sample(sample) for sample in samples]}
    ends = {"low": _number(figure.interval.low), "high": _number(figure.interval.high)}
    interval = {**ends, "reason": figure.interval.reason}
    return {"value": _number(figure.value), "interval": interval, **drawn}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _attempt(attempt: Attempt) -> dict[str, Any]:
    failure = None if attempt.score is not None else asdict(attempt.evaluation)
    return {
        "iteration": attempt.iteration,
        "input": attempt.output,
        "score": attempt.score,
        "failure": failure,
        "similarity": attempt.similarity,
        "notes": attempt.notes,
        "seconds": attempt.seconds,
        "samples": [_sample(sample) for sample in samples_of(attempt)],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    failure = None if sample.score is not None else asdict(sample.evaluation)
    return {
        "output": sample.text,
        "score": sample.score,
        "failure": failure,
        "remarks": sample.remarks,
    }
