"""Innovate: a better input for a model, without labels. Its gain is told with an interval, by
outputs that nothing was tuned on.

The loop is in `textevolve.loops.innovation`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import model_validator

from textevolve.evaluation import Case, check_case
from textevolve.evaluators import check_absolute, with_model
from textevolve.loops.attempt import Attempt, prompts_version
from textevolve.loops.innovation import (
    ALPHA,
    Innovation,
    InnovationContext,
    InnovationPlan,
    RefinedInput,
    Sample,
    refine_input,
    scores_of,
)
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Column,
    Diff,
    Report,
    Table,
    Texts,
)
from textevolve.spans import loop_span
from textevolve.spec import option
from textevolve.statistics.intervals import (
    UNIT,
    Array,
    Statistic,
    bootstrap_interval,
    mean_interval,
    ratio,
)
from textevolve.studies.cells import finite
from textevolve.studies.rehearsal import UsableEdits
from textevolve.studies.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    note_attempt,
    row_status,
)
from textevolve.wiring import Workbench


class InnovateSpec(InnovationPlan, StudySpec):
    """Refine an input by what a judge says of its outputs, for as long as their scores rise.

    Known elsewhere as prompt optimisation without labels.
    """

    kind: ClassVar[str] = "innovate"

    input: str = option(
        description="The input to refine; @FILE reads it from a file, - from standard input.",
        argument=True,
        text="argument",
        identity=False,
    )
    judge: str = option(
        "debate", "The judge of the outputs, such as probe+rules.", short="-j", group="Judging"
    )
    judge_model: str | None = option(
        None, "The model for a judge that names none.", group="Advanced"
    )

    @model_validator(mode="after")
    def _usable(self) -> InnovateSpec:
        check_absolute(judge_of(self))
        return self


@dataclass(frozen=True, slots=True)
class Innovated:
    """An innovation with figures: the mean scores of fresh outputs `before` and `after`, and their
    difference. NaN where none were drawn, or none were judged."""

    innovation: Innovation
    before: Statistic
    after: Statistic
    gain: Statistic

    @property
    def input(self) -> str:
        """The best input: the refined one, or the person's own where none was taken."""
        return self.innovation.refined


def judge_of(spec: InnovateSpec) -> str:
    return with_model(spec.judge, spec.judge_model)


def ask(spec: InnovateSpec) -> Asks:
    return Asks((judge_of(spec),), writes=True, prompts=prompts_version())


def read_cases(spec: InnovateSpec) -> list[Case]:
    check_case(Case(spec.input, ("x",)))
    return [Case(spec.input, (), "1")]


async def run(
    spec: InnovateSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Innovation]:
    (case,) = cases
    context = InnovationContext(
        model=UsableEdits(bench.model, "input", case.input)
        if bench.mode == "rehearsed"
        else bench.model,
        evaluator=bench.whole_judge_of(judge_of(spec)),
        concurrency=bench.concurrency,
        time_limit=bench.seconds_left,
        listener=bench.listener,
    )
    with loop_span("innovate", input=case.input) as here:
        made = await refine_input(case.input, spec, context)
        row = find_row(made)
        here.note(score=row.score, passed=made.status == "accepted", status=made.status)
        here.note(reason=made.reason, output=made.best and made.best.output)
    yield made


def find_row(made: Innovation) -> Row:
    score = made.best.score if made.best is not None else None
    return Row("1", case="1", score=score, status=row_status(made.status), reason=made.reason)


def summarise(spec: InnovateSpec, records: Iterable[Innovation]) -> Innovated:
    (made,) = records
    before, after = scores_of(made.before), scores_of(made.after)
    return Innovated(
        innovation=made,
        before=_mean(before, spec.seed),
        after=_mean(after, spec.seed),
        gain=difference(before, after, spec.seed),
    )


def _mean(scores: list[float], seed: int) -> Statistic:
    return (
        Statistic(float(np.mean(scores)), mean_interval(scores, seed=seed, bounds=UNIT))
        if scores
        else Statistic()
    )


def difference(before: list[float], after: list[float], seed: int = 0) -> Statistic:
    """The mean of `after` less that of `before`, two samples that have nothing to do with each
    other, with its interval."""
    if not before or not after:
        return Statistic()
    rows = [(score, 1.0, 0.0, 0.0) for score in before] + [(0.0, 0.0, s, 1.0) for s in after]

    def gap(sums: Array) -> Array:
        return ratio(sums[..., 2], sums[..., 3]) - ratio(sums[..., 0], sums[..., 1])

    value = float(np.mean(after) - np.mean(before))
    return Statistic(value, bootstrap_interval(np.array(rows), gap, seed=seed, bounds=(-1, 1)))


def report(spec: InnovateSpec, found: Innovated) -> Report:
    made = found.innovation
    facts = {"Judge": judge_of(spec)}
    if made.before and made.after:
        facts["Before"] = _say(found.before, f"{len(made.before)} fresh outputs")
        facts["After"] = _say(found.after, f"{len(made.after)} fresh outputs")
        facts["Gain"] = _say(found.gain, _say_p(made.p))
    elif made.improved:
        facts["Gain"] = "not known: no fresh outputs were judged"
    sentence = f"Ended as {made.status}: {made.reason}. {_say_taken(made)}"
    return Report("Innovation of an input", sentence, list(_draw(found)), facts)


def _draw(found: Innovated) -> Iterator[Block]:
    made = found.innovation
    if made.attempts:
        yield _table(made.attempts, made.best)
    if made.improved and made.best is not None:
        taken = "" if made.accepted else ", which is not taken"
        yield Diff(f"What the best input changes{taken}", made.input, made.best.output or "")
    title = "The refined input" if made.accepted else _say_taken(made).rstrip(".")
    yield Texts(title, [("", made.refined)])


def _table(attempts: Sequence[RefinedInput], best: RefinedInput | None) -> Table:
    columns = (
        Column("input"),
        Column("mean score", "score", 3),
        Column("outputs", "count"),
        Column("with a score", "count"),
        Column("like before", "percent", 0),
        Column("time", "duration"),
    )
    rows = [
        (
            _name(attempt),
            attempt.score,
            len(attempt.samples),
            len(scores_of(attempt.samples)),
            attempt.similarity,
            attempt.seconds,
        )
        for attempt in attempts
    ]
    marked = {n for n, one in enumerate(attempts) if best and one.iteration == best.iteration}
    notes = [(_name(attempt), (*_why(attempt), *attempt.notes)) for attempt in attempts]
    note = "\n".join(f"{name.capitalize()}: {'; '.join(said)}" for name, said in notes if said)
    return Table("Inputs", columns, rows, frozenset(marked), note)


def _name(attempt: Attempt) -> str:
    return "input as given" if attempt.iteration == 1 else f"round {attempt.iteration - 1}"


def _why(attempt: Attempt) -> list[str]:
    return [] if attempt.score is not None else [str(getattr(attempt.evaluation, "reason", ""))]


def _say(figure: Statistic, note: str) -> str:
    low, high = figure.interval.low, figure.interval.high
    ends = f"95 %: {low:.3f} to {high:.3f}" if not math.isnan(low) else figure.interval.reason
    return f"{wording.number(figure.value, 3)} ({ends}; {note})"


def _say_p(p: float) -> str:
    if math.isnan(p):
        return "not all of them have a score"
    shown = "< 0.001" if p < 0.001 else f"{p:.3f}"
    return f"one-sided p {shown}: " + (
        "more than chance explains" if p <= ALPHA else "chance alone may explain it"
    )


def _say_taken(made: Innovation) -> str:
    """Which input is returned, and why."""
    if made.best is None:
        return "Nothing has a score; the input stands."
    if not made.improved:
        return "No refinement scored higher; the input stands."
    if made.accepted:
        return "The refined input is taken."
    if not made.after:
        return "The best input was not tried on fresh outputs; the input stands."
    return "On fresh outputs the best input is not clearly better; the input stands."


def data(spec: InnovateSpec, found: Innovated) -> Mapping[str, Any]:
    """Everything of an innovation."""
    made = found.innovation
    return {
        "judge": judge_of(spec),
        "status": made.status,
        "reason": made.reason,
        "improved": made.improved,
        "accepted": made.accepted,
        "p": finite(made.p),
        "input": made.input,
        "refined": made.refined,
        "before": {**_figure(found.before), "samples": [_sample(one) for one in made.before]},
        "after": {**_figure(found.after), "samples": [_sample(one) for one in made.after]},
        "gain": _figure(found.gain),
        "attempts": list(flatten(made)),
        "usage": asdict(made.usage),
        "seconds": made.seconds,
    }


def _figure(figure: Statistic) -> dict[str, Any]:
    return {"value": figure.value, "interval": asdict(figure.interval)}


def flatten(made: Innovation) -> Iterator[Mapping[str, Any]]:
    """A row for each input; the outputs that it was tuned on are within."""
    for attempt in made.attempts:
        yield {
            "iteration": attempt.iteration,
            "input": attempt.output,
            "score": attempt.score,
            "failure": None if attempt.score is not None else asdict(attempt.evaluation),
            "similarity": attempt.similarity,
            "notes": attempt.notes,
            "seconds": attempt.seconds,
            "samples": [_sample(sample) for sample in attempt.samples],
        }


def _sample(sample: Sample) -> dict[str, Any]:
    failure = None if sample.score is not None else asdict(sample.evaluation)
    return {
        "output": sample.text,
        "score": sample.score,
        "failure": failure,
        "remarks": sample.remarks,
    }


STUDY = Study(
    spec=InnovateSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(Innovation),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note_attempt,
    texts={".txt": lambda _spec, found: found.input.rstrip("\n") + "\n"},
)
