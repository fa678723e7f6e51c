"""Compare prompts and models on your own rows: a matrix of rows and variants, each output scored.

A variant is one prompt with one model. What the scores are worth, side by side, is in
`textevolve.bench.variants`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, cast

from pydantic import field_validator, model_validator

from textevolve.bench.variants import (
    VariantSummary,
    compare_variants,
    say_differences,
    summarise_variant,
)
from textevolve.engine.local import stream
from textevolve.errors import AnswerError, BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage, failure_of
from textevolve.evaluators import check_absolute, with_model
from textevolve.events import RecordsExpected
from textevolve.llm.model import Message, Request
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.placeholders import fill, find_placeholders
from textevolve.metrics.label_metrics import grade_output, needs_label, open_metric
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Estimate, IntervalChart, Report, Table
from textevolve.rows import read_rows
from textevolve.spec import Frozen, option
from textevolve.statistics.comparisons import PairedDifference
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
from textevolve.wiring import Workbench

DEFAULT_JUDGE = "single"
WORST_SHOWN = 10


class NamedPrompt(Frozen):
    """A prompt template with placeholders in braces, and what it is called in the results."""

    name: str
    text: str


class CompareSpec(StudySpec):
    """Run prompts and models over your rows, score every output, and say which is better.

    The first prompt with the first model is the baseline. Judges see the row filled into the
    baseline's prompt as the input, so that no prompt wins by asking for something easier.
    """

    kind: ClassVar[str] = "compare"

    prompts: tuple[NamedPrompt, ...] = option(
        (),
        "A file with a prompt template, in which {names} of columns are placeholders. Repeatable.",
        flag="--prompt",
        short="-p",
        text="named-file",
        group="Variants",
    )
    models: tuple[str, ...] = option(
        (),
        "A model that answers the prompts. Repeatable. Where none is named, one is looked for.",
        flag="--model",
        short="-m",
        group="Variants",
    )
    data: str = option(
        "", "Rows as JSONL, JSON, CSV or Parquet.", short="-d", group="Data", identity=False
    )
    label: str | None = option(
        None, "The column with the right answer, for metrics and judges.", group="Data"
    )
    metric: str | None = option(
        None,
        "What scores an output without a model: exact, regex:PATTERN, FILE.py:FUNCTION or"
        " MODULE:FUNCTION.",
        group="Judging",
    )
    judge: str | None = option(
        None,
        f"The judge that scores outputs, such as probe+rules. Without it and a metric: "
        f"{DEFAULT_JUDGE}.",
        short="-j",
        group="Judging",
    )
    model: str | None = option(
        None,
        "The model for a judge that names none; otherwise the first of the models compared.",
        flag="--judge-model",
        group="Judging",
        identity=False,
    )
    samples: int = option(
        1, "Outputs of each variant for each row.", group="Variants", ge=1, le=100
    )
    temperature: float | None = option(
        0.0, "Sampling temperature of the outputs.", group="Variants", ge=0, le=2
    )
    max_output_tokens: int = option(
        512, "Tokens at most that an output may have.", group="Variants", ge=1
    )
    seed: int = option(0, "Seed of the outputs and of the bootstrap.", group="Variants")

    @field_validator("prompts", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        return [
            {"name": f"prompt {n}", "text": one} if isinstance(one, str) else one
            for n, one in enumerate(cast("Sequence[Any]", given), 1)
        ]

    @model_validator(mode="after")
    def _usable(self) -> CompareSpec:
        if not self.prompts:
            raise InputError("--prompt is missing: name a file with a prompt template")
        names = [prompt.name for prompt in self.prompts]
        for values, what in ((names, "prompts"), (self.models, "models")):
            if len(set(values)) < len(values):
                raise InputError(f"two {what} have the same name; names must differ")
        if self.metric is not None:
            open_metric(self.metric)
            if needs_label(self.metric) and self.label is None:
                raise InputError(f"metric {self.metric}: name the column of the label, too")
        if self.judge is not None:
            check_absolute(self.judge)
        return self


@dataclass(frozen=True, slots=True)
class Output:
    """One cell of the matrix: what a variant gave for a row, and the scores of that. `failure`: why
    there is no output, or no score. `seconds`: the model's time for the output alone."""

    position: int
    row: str
    prompt: str
    model: str
    sample: int
    text: str = ""
    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def variant(self) -> str:
        return f"{self.prompt}, {self.model}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found: each variant by itself, and each beside the baseline."""

    baseline: str
    rows: int
    variants: tuple[VariantSummary, ...]
    pass_rates: Mapping[str, float | None]
    differences: Mapping[str, PairedDifference]
    worst: tuple[Output, ...]
    failed: int
    usage: Usage


def judge_of(spec: CompareSpec) -> str | None:
    judge = spec.judge or (None if spec.metric else DEFAULT_JUDGE)
    first = spec.models[0] if spec.models else None
    return None if judge is None else with_model(judge, spec.model or first)


def name_variants(spec: CompareSpec, model: str) -> list[str]:
    models = spec.models or (model,)
    return [Output(0, "", p.name, m, 0).variant for p in spec.prompts for m in models]


def ask(spec: CompareSpec) -> Asks:
    judge = judge_of(spec)
    return Asks((judge,) if judge else (), spec.models, writes=not spec.models)


def read_cases(spec: CompareSpec) -> Iterator[Case]:
    """A case for each row: its columns as JSON, and its label."""
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    for number, (where, row) in enumerate(read_rows(spec.data, "row", lambda _: True), 1):
        columns = [name for name in row if name != spec.label]
        for prompt in spec.prompts:
            if not find_placeholders(prompt.text, columns):
                raise InputError(
                    f"prompt {prompt.name}: has no placeholder that {where} has a value for;"
                    f" columns: {', '.join(columns)}"
                )
        label = None if spec.label is None else row.get(spec.label)
        if spec.label is not None and label is None:
            raise InputError(f"{where}: the label '{spec.label}' is missing")
        values = {name: _text(row[name]) for name in columns}
        reference = None if label is None else _text(label)
        id = str(row.get("id", number))
        yield Case(json.dumps(values, ensure_ascii=False), (), id, reference=reference)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


async def run(spec: CompareSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Output]:
    rows = list(cases)
    models = spec.models or (bench.default_model,)
    cells = itertools.product(enumerate(rows), spec.prompts, models, range(spec.samples))
    number = len(rows) * len(spec.prompts) * len(models) * spec.samples
    bench.listener(RecordsExpected(number))

    async def work(numbered: tuple[int, Any]) -> Output:
        position, ((_, case), prompt, model, sample) = numbered
        empty = Output(position, case.id, prompt.name, model, sample)
        return await _fill_cell(spec, bench, case, prompt, empty)

    results = stream(enumerate(cells), work, bench.concurrency)
    try:
        async for output in results:
            yield output
    finally:
        await results.aclose()


async def _fill_cell(
    spec: CompareSpec, bench: Workbench, case: Case, prompt: NamedPrompt, empty: Output
) -> Output:
    """Generate one output and have it scored; what goes wrong is said in the cell."""
    values: Mapping[str, str] = json.loads(case.input)
    model = UsageMeter(bench.model_of(empty.model))
    request = Request(
        messages=(Message("user", (fill(prompt.text, values),)),),
        temperature=spec.temperature,
        max_tokens=spec.max_output_tokens,
        seed=spec.seed,
        sample=empty.sample,
    )
    try:
        response = await model(request)
        if not response.text.strip():
            raise AnswerError("the output is empty")
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return replace(empty, failure=failure_of(error), usage=model.usage)
    made = replace(empty, text=response.text, usage=model.usage, seconds=model.seconds)
    if response.finish_reason == "length":
        made = replace(made, reason="cut at the token limit")
    return await _score(spec, bench, case, values, made)


async def _score(
    spec: CompareSpec, bench: Workbench, case: Case, values: Mapping[str, str], made: Output
) -> Output:
    if spec.metric is not None:
        result = await grade_output(open_metric(spec.metric), made.text, case.reference)
        if isinstance(result, Failure):
            return replace(made, failure=result)
        made = replace(made, score=result.score, passed=result.passed)
    judge = judge_of(spec)
    if judge is None:
        return made
    asked = fill(spec.prompts[0].text, values)
    try:
        found = await bench.judge_of(judge)(
            Case(asked, (made.text,), case.id, reference=case.reference)
        )
    except FatalModelError:
        raise
    except (ModelError, BudgetError, InputError) as error:
        return replace(made, failure=failure_of(error))
    result, used = found.result[0], made.usage + found.usage
    if not isinstance(result, EvaluationResult):
        return replace(made, failure=result, usage=used)
    score, passed = (made.score, made.passed) if spec.metric else (result.score, result.passed)
    reason = "\n".join(filter(None, (made.reason, result.feedback)))
    return replace(made, score=score, passed=passed, reason=reason, usage=used)


def find_row(output: Output) -> Row:
    failure = output.failure
    return Row(
        key=f"{output.row}|{output.variant}|{output.sample}",
        position=output.position,
        case=output.row,
        score=output.score,
        status=failure.kind if failure else "scored",
        reason=failure.reason if failure else output.reason,
        variant=output.variant,
        passed=output.passed,
    )


def summarise(spec: CompareSpec, records: Iterable[Output]) -> Comparison:
    """The figures, from the cells that there are."""
    scores: dict[str, dict[str, list[float]]] = {}
    passed: dict[str, list[bool]] = {}
    rows, failed, usage = set[str](), 0, Usage()
    worst: list[Output] = []
    for output in records:
        own = scores.setdefault(output.variant, {})
        rows.add(output.row)
        failed += output.failure is not None
        usage += output.usage
        if output.score is not None:
            own.setdefault(output.row, []).append(output.score)
            passed.setdefault(output.variant, []).append(bool(output.passed))
            worst = sorted([*worst, output], key=lambda one: one.score or 0.0)[:WORST_SHOWN]
    baseline = next(iter(scores), "")
    return Comparison(
        baseline=baseline,
        rows=len(rows),
        variants=tuple(summarise_variant(v, own, seed=spec.seed) for v, own in scores.items()),
        pass_rates={v: fmean(passed[v]) if v in passed else None for v in scores},
        differences=compare_variants(scores, baseline, seed=spec.seed),
        worst=tuple(worst),
        failed=failed,
        usage=usage,
    )


def report(_spec: CompareSpec, found: Comparison) -> Report:
    columns = (
        Column("variant"),
        Column("mean score", "number", 3),
        Column("pass rate", "percent", 1),
        Column("scored", "count"),
    )
    estimates = [(v.variant, Estimate(v.mean, v.low, v.high)) for v in found.variants]
    means = [v.mean if v.mean is not None else -1.0 for v in found.variants]
    best = frozenset({means.index(max(means))} if means else ())
    rows = [
        (name, estimate, found.pass_rates[name], v.scored)
        for v, (name, estimate) in zip(found.variants, estimates, strict=True)
    ]
    note = "Intervals are 95 % bootstrap intervals, clustered by row."
    lowest = [
        (one.row, one.variant, one.score, wording.shorten(one.text, 80), one.reason)
        for one in found.worst
    ]
    named = (Column("row"), Column("variant"), Column("score", "score", 2), Column("output"))
    blocks: list[Block] = [
        Table("Variants", columns, rows, best, note),
        IntervalChart("Mean scores", estimates),
        _differences(found),
        Table("The lowest scores", (*named, Column("reason")), lowest),
    ]
    failed = {"Without a score": wording.count(found.failed, "output")} if found.failed else {}
    facts = {"Rows": f"{found.rows:,}", **failed, "Used": wording.spent(found.usage)}
    sentence = say_differences(found.differences, found.baseline)
    return Report("Comparison of prompts and models", sentence, blocks, facts)


def _differences(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("difference", "number", 3),
        Column("rows", "count"),
        Column("p (Holm)", "p_value"),
        Column("rows needed", "count"),
    )
    rows = [
        (variant, Estimate(one.difference, one.low, one.high), one.items, one.p, one.needed)
        for variant, one in found.differences.items()
    ]
    return Table(f"Beside the baseline: {found.baseline}", columns, rows)


def flatten(output: Output) -> Iterator[Mapping[str, Any]]:
    row = find_row(output)
    own = {name: value for name, value in asdict(output).items() if name != "failure"}
    yield {**own, "status": row.status, "reason": row.reason or None}


encode, decode = json_codec(Output)

STUDY = Study(
    spec=CompareSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=lambda _, found: asdict(found),
    flat=flatten,
    variants=name_variants,
    aggregates=False,
)
