"""The innovate study: it searches for a better input for a model without labels, by a judge's
feedback. The gain is measured on fresh outputs that the search did not use, and has an interval.

The loop is in `textevolve.loops.innovation`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.evaluation import Case, Result, check_case
from textevolve.judges.judge import Judge, parse_judge, require_absolute
from textevolve.llm.prompts import prompt_versions
from textevolve.loading import np
from textevolve.loops.attempt import Attempt
from textevolve.loops.innovation import (
    ALPHA,
    Innovation,
    InnovationContext,
    InnovationPlan,
    RefinedInput,
    Sample,
    describe_missing,
    refine_input,
    scores_of,
)
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Diff, Report, Table, Texts
from textevolve.runs.aggregates import finite
from textevolve.runs.estimate import open_editor
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    note_attempt,
    record_reason,
    row_status,
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
from textevolve.wiring import Workbench


class InnovateSpec(InnovationPlan, StudySpec):
    """Refine an input by a judge's feedback on its outputs, as long as their scores rise.

    Known elsewhere as prompt optimisation without labels.
    """

    kind: ClassVar[str] = "innovate"

    input: str = option(
        description="The input to refine; @FILE reads it from a file, - from standard input.",
        argument=True,
        text="argument",
        identity=False,
    )
    judge: Judge = option(
        parse_judge("debate"),
        "The judge of the outputs, such as probe+rules.",
        short="-j",
        group="Judging",
    )
    judge_model: str | None = option(
        None,
        "The model of a judge that names none; default: the model of the study.",
        group="Advanced",
    )

    @model_validator(mode="after")
    def _usable(self) -> InnovateSpec:
        require_absolute(judge_of(self))
        return self


@dataclass(frozen=True)
class Innovated(Result):
    """The result of the study: the search (`innovation`), the mean scores of fresh outputs for the
    original input (`before`) and the best one (`after`), and `after` minus `before` (`gain`).
    Figures are NaN if no fresh outputs were drawn or judged."""

    innovation: Innovation
    before: Statistic
    after: Statistic
    gain: Statistic

    @property
    def input(self) -> str:
        """The best input: the refined one, or the original if it was not accepted."""
        return self.innovation.refined


def judge_of(spec: InnovateSpec) -> Judge:
    return spec.judge.with_model(spec.judge_model)


def ask(spec: InnovateSpec) -> Asks:
    return Asks((judge_of(spec),), writes=True, prompts=prompt_versions("loops"))


def read_cases(spec: InnovateSpec) -> list[Case]:
    check_case(Case(spec.input, ("x",)))
    return [Case(spec.input, (), "1")]


async def run(
    spec: InnovateSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Innovation]:
    (case,) = cases
    context = InnovationContext(
        model=open_editor(bench, bench.model, "input", case.input),
        evaluator=bench.whole_judge_of(judge_of(spec)),
        concurrency=bench.concurrency,
        time_limit=bench.seconds_left,
        listener=bench.listener,
    )

    with loop_span("innovate", input=case.input) as here:
        innovation = await refine_input(case.input, spec, context)
        row = find_row(innovation)
        here.note(score=row.score, passed=innovation.status == "accepted", status=innovation.status)
        here.note(reason=innovation.reason, output=innovation.best and innovation.best.output)

    yield innovation


def find_row(innovation: Innovation) -> Row:
    outputs = innovation.outputs
    missing = describe_missing(outputs)
    return Row(
        "1",
        case="1",
        score=innovation.score,
        status=row_status(innovation.status),
        reason=innovation.reason,
        trials=(len(outputs) - len(scores_of(outputs)), len(outputs)),
        missing=missing[0] if missing else "",
    )


def summarise(spec: InnovateSpec, records: Iterable[Innovation]) -> Innovated:
    (innovation,) = records
    before = scores_of(innovation.before)
    after = scores_of(innovation.after)
    return Innovated(
        innovation=innovation,
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
    """Return the mean of `after` minus that of `before` with its interval; the samples are
    independent."""
    if not before or not after:
        return Statistic()
    rows = [(score, 1.0, 0.0, 0.0) for score in before] + [(0.0, 0.0, s, 1.0) for s in after]

    def gap(sums: Array) -> Array:
        return ratio(sums[..., 2], sums[..., 3]) - ratio(sums[..., 0], sums[..., 1])

    value = float(np.mean(after) - np.mean(before))

    return Statistic(value, bootstrap_interval(np.array(rows), gap, seed=seed, bounds=(-1, 1)))


def report(spec: InnovateSpec, innovated: Innovated) -> Report:
    innovation = innovated.innovation
    facts = {"Judge": judge_of(spec).text}
    if innovation.before and innovation.after:
        facts["Before"] = _format_figure(
            innovated.before, f"{len(innovation.before)} fresh outputs"
        )
        facts["After"] = _format_figure(innovated.after, f"{len(innovation.after)} fresh outputs")
        facts["Gain"] = _format_figure(innovated.gain, _describe_p(innovation.p))
    elif innovation.improved:
        facts["Gain"] = "not known: no fresh outputs were judged"

    return Report(
        "Innovation of an input",
        f"Ended as {innovation.status}: {innovation.reason}. {_describe_choice(innovation)}",
        list(_draw(innovated)),
        facts,
    )


def _draw(innovated: Innovated) -> Iterator[Block]:
    innovation = innovated.innovation
    if innovation.attempts:
        yield _table(innovation.attempts, innovation.best)
    if innovation.improved and innovation.best is not None:
        suffix = "" if innovation.accepted else ", which was not accepted"
        yield Diff(
            f"Changes of the best input{suffix}", innovation.input, innovation.best.output or ""
        )

    title = "The refined input" if innovation.accepted else _describe_choice(innovation).rstrip(".")
    yield Texts(title, [("", innovation.refined)])


def _table(attempts: Sequence[RefinedInput], best: RefinedInput | None) -> Table:
    columns = (
        "input",
        Column("mean score", "score", 3),
        Column("outputs", "count"),
        Column("with a score", "count"),
        Column("like before", "percent", 0),
        Column("time", "duration"),
    )
    rows: list[tuple[Cell, ...]] = []
    marked: set[int] = set()
    notes: list[str] = []

    for number, attempt in enumerate(attempts):
        name = _name(attempt)
        scored = len(scores_of(attempt.samples))
        outputs = len(attempt.samples)
        rows.append((name, attempt.score, outputs, scored, attempt.similarity, attempt.seconds))
        if best is not None and attempt.iteration == best.iteration:
            marked.add(number)
        failures = filter(None, [record_reason(attempt.evaluation)])
        if remarks := "; ".join([*failures, *attempt.notes]):
            notes.append(f"{name.capitalize()}: {remarks}")

    return Table("Inputs", columns, rows, frozenset(marked), "\n".join(notes))


def _name(attempt: Attempt) -> str:
    return "input as given" if attempt.iteration == 1 else f"round {attempt.iteration - 1}"


def _format_figure(figure: Statistic, note: str) -> str:
    low = figure.interval.low
    high = figure.interval.high
    ends = f"95 %: {low:.3f} to {high:.3f}" if not math.isnan(low) else figure.interval.reason
    return f"{wording.number(figure.value, 3)} ({ends}; {note})"


def _describe_p(p: float) -> str:
    if math.isnan(p):
        return "not all of them have a score"
    p_text = "< 0.001" if p < 0.001 else f"{p:.3f}"
    return f"one-sided p {p_text}: " + (
        "more than chance explains" if p <= ALPHA else "chance alone may explain it"
    )


def _describe_choice(innovation: Innovation) -> str:
    """Say whether the refined input or the user's own is returned, and why."""
    if innovation.best is None:
        return "Nothing has a score; the input stands."
    if not innovation.improved:
        return "No refinement scored higher; the input stands."
    if innovation.accepted:
        return "The refined input is accepted."
    if not innovation.after:
        return "The best input was not tried on fresh outputs; the input stands."

    return "On fresh outputs the best input is not clearly better; the input stands."


def data(spec: InnovateSpec, innovated: Innovated) -> Mapping[str, Any]:
    """Return all data of an innovation."""
    innovation = innovated.innovation
    return {
        "judge": judge_of(spec).text,
        **read_fields(innovation, "status", "reason", "improved", "accepted"),
        "p": finite(innovation.p),
        **read_fields(innovation, "input", "refined"),
        "before": {**_figure(innovated.before), "samples": _samples(innovation.before)},
        "after": {**_figure(innovated.after), "samples": _samples(innovation.after)},
        "gain": _figure(innovated.gain),
        "attempts": list(flatten(innovation)),
        "usage": asdict(innovation.usage),
        "seconds": innovation.seconds,
    }


def _figure(figure: Statistic) -> dict[str, Any]:
    return {"value": figure.value, "interval": asdict(figure.interval)}


def flatten(innovation: Innovation) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each input, with the outputs by which it was judged in the search."""
    for attempt in innovation.attempts:
        yield {
            "iteration": attempt.iteration,
            "input": attempt.output,
            **_score(attempt),
            **read_fields(attempt, "similarity", "notes", "seconds"),
            "samples": _samples(attempt.samples),
        }


def _samples(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    return [
        {"output": sample.text, **_score(sample), "remarks": sample.remarks} for sample in samples
    ]


def _score(judged: Attempt | Sample) -> dict[str, Any]:
    failure = asdict(judged.evaluation) if judged.score is None else None
    return {"score": judged.score, "failure": failure}


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
    texts={".txt": lambda _spec, innovated: innovated.input.rstrip("\n") + "\n"},
)
