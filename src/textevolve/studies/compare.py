"""Compare prompts, models and outputs on your own rows: a matrix of rows and variants, each scored.

The specification is in `compare_spec`, a cell is filled in `compare_cells`, and
`textevolve.bench.variants` has the arithmetic. Outputs are read again for the matrix, so that they
are never in memory all at once.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from textevolve.agents.simulated_user import SimulatedUser, user_prompt
from textevolve.bench.variants import (
    RowScores,
    compare_variants,
    mean_score,
    pass_rate,
    say_differences,
)
from textevolve.engine.local import stream
from textevolve.evaluation import Case, Failure, Usage, empty_default
from textevolve.events import RecordsExpected
from textevolve.images import image_reference
from textevolve.llm.chains.chain import Chain
from textevolve.llm.model import Message, Request
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Entry,
    Estimate,
    Matrix,
    MatrixRow,
    Report,
    Table,
    Texts,
)
from textevolve.report.html import html_fragment
from textevolve.settings import Settings
from textevolve.showing import Shown, show_as
from textevolve.statistics.comparisons import PairedDifference
from textevolve.statistics.intervals import Statistic
from textevolve.studies.aggregates import (
    Aggregates,
    aggregate,
    describe_scores,
    draw_aggregates,
    keep_greatest,
)
from textevolve.studies.cells import estimate
from textevolve.studies.chained import chains_among, open_chain_named
from textevolve.studies.compare_cells import (
    Output,
    Planned,
    Scorers,
    fill_cells,
    input_column,
    read_cases,
    row_values,
    shown,
    take_rows,
)
from textevolve.studies.compare_spec import (
    CompareSpec,
    Variant,
    baseline_of,
    decides,
    together_of,
    variants_of,
    with_models,
)
from textevolve.studies.conversations import TurnFigures, TurnTally, turn_row, turn_tables, user_of
from textevolve.studies.judged_report import say_images, trajectory_texts
from textevolve.studies.study import Asks, Row, Study, json_decoder, write_json
from textevolve.studies.targeted import column_text, describe_targets, write_request
from textevolve.trajectory import RECORDED
from textevolve.wiring import Workbench

LISTED = 5
"""Of the lowest scores, and of the cells without one, so many are listed."""


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """What is known of one variant: `mean` score and `pass_rate` of its `scored` outputs,
    with 95 % intervals clustered by row. `scorers`: the mean of each
    metric and judge; `missing`: how many outputs each has no score of. `usage`: of the outputs,
    without judging; `seconds`: the median of the model's time. `turns`: figures of conversations by
    turn, and `endings`, how many ended in which way."""

    variant: str
    outputs: int
    scored: int
    cut: int
    mean: Statistic
    pass_rate: Statistic
    scorers: Mapping[str, Statistic]
    missing: Mapping[str, int]
    usage: Usage
    seconds: float | None
    turns: tuple[TurnFigures, ...] = ()
    endings: Mapping[str, int] = empty_default(dict)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """What was found: each variant by itself, and each beside the baseline. `decides`: whose score
    it is. `worst`: the lowest scores; `failures`: the first outputs without one, of `failed` in
    all. `judging`: what the judges used. `outputs`: all cells, in the order of the rows."""

    baseline: str
    decides: str
    rows: int
    variants: tuple[VariantSummary, ...]
    differences: Mapping[str, PairedDifference]
    worst: tuple[Output, ...]
    failures: tuple[Output, ...]
    failed: int
    judging: Usage
    outputs: Iterable[Output]

    def __repr__(self) -> str:
        return f"Comparison({self.sentence})"

    @property
    def sentence(self) -> str:
        """What is known, in plain words."""
        if not self.variants:
            return "There are no outputs."
        said = say_differences(self.differences, self.baseline)
        if len(self.variants) == 1:
            figures = aggregate(map(find_row, self.outputs)).get(self.baseline, Aggregates())
            return f"{self.baseline}: {describe_scores(figures, 'output')}"
        replaced = (wording.other_models(one.usage) for one in self.variants)
        if others := "; ".join(dict.fromkeys(filter(None, replaced))):
            said += f" Not every output is its variant's own: {others}."
        failed = wording.count(self.failed, "output")
        return f"{said} {failed} without a score left out." if self.failed else said


@dataclass
class _Tally:
    """The figures of one variant while its outputs go by."""

    grades: dict[str, dict[str, list[float]]] = empty_default(dict)
    scores: dict[str, list[float]] = empty_default(dict)
    passes: dict[str, list[bool]] = empty_default(dict)
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outputs: int = 0
    cut: int = 0
    usage: Usage = field(default_factory=Usage)
    turns: TurnTally = field(default_factory=TurnTally)

    def add(self, output: Output) -> None:
        self.turns.add(output.row, output.turns, output.ending)
        self.outputs += 1
        self.cut += output.cut
        self.usage += output.usage
        if output.seconds is not None:
            self.seconds.append(output.seconds)
        for name, grade in output.grades.items():
            if grade.score is not None:
                self.grades.setdefault(name, {}).setdefault(output.row, []).append(grade.score)
        if output.score is not None:
            self.scores.setdefault(output.row, []).append(output.score)
            self.passes.setdefault(output.row, []).append(bool(output.passed))

    def summarise(self, variant: str, scorers: tuple[str, ...]) -> VariantSummary:
        counts = {n: sum(map(len, self.grades.get(n, {}).values())) for n in scorers}
        return VariantSummary(
            variant=variant,
            outputs=self.outputs,
            scored=sum(map(len, self.scores.values())),
            cut=self.cut,
            mean=mean_score(self.scores),
            pass_rate=pass_rate(self.passes),
            scorers={name: mean_score(self.grades.get(name, {})) for name in scorers},
            missing={name: self.outputs - count for name, count in counts.items()},
            usage=self.usage,
            seconds=median(self.seconds) if self.seconds else None,
            turns=self.turns.summarise(),
            endings=dict(self.turns.endings),
        )


def summarise(spec: CompareSpec, records: Iterable[Output]) -> Comparison:
    """The figures, from the cells that there are. Records that can be gone through only once are
    kept; others are read again for the matrix."""
    records = tuple(records) if isinstance(records, Iterator) else records
    named = variants_of(spec)
    tallies = {variant.name: _Tally() for variant in named}
    rows, scorers = dict[str, None](), dict[str, None]()
    worst: list[tuple[float, int, Output]] = []
    failures: list[Output] = []
    failed, judging = 0, Usage()
    for output in records:
        tallies.setdefault(output.variant, _Tally()).add(output)
        rows[output.row] = None
        scorers |= dict.fromkeys(output.grades)
        judging += output.judging
        if output.failure is not None:
            failed += 1
            failures += [output] * (len(failures) < LISTED)
        elif output.score is not None and output.score < 1:
            keep_greatest(worst, (-output.score, -output.position, output), LISTED)
    baseline = baseline_of(spec, named or [Variant(name) for name in tallies])
    first = baseline.name if baseline else ""
    return Comparison(
        baseline=first,
        decides=decides(spec),
        rows=len(rows),
        variants=tuple(t.summarise(name, tuple(scorers)) for name, t in tallies.items()),
        differences=compare_variants(_scores(tallies), first, seed=spec.seed),
        worst=tuple(output for _, _, output in sorted(worst, key=lambda one: one[:2])[::-1]),
        failures=tuple(failures),
        failed=failed,
        judging=judging,
        outputs=records,
    )


def _scores(tallies: Mapping[str, _Tally]) -> Mapping[str, RowScores]:
    return {name: tally.scores for name, tally in tallies.items()}


def report(_spec: CompareSpec, found: Comparison) -> Report:
    facts = {
        "Score": shown(found.decides),
        "Used for judging": wording.spent(found.judging) if found.judging.calls else "",
    }
    return Report("Comparison", found.sentence, _blocks(found), facts)


def _blocks(found: Comparison) -> Iterator[Block]:
    """What the results of every run do not have."""
    if found.differences:
        yield _differences(found)
    names = list(dict.fromkeys(name for v in found.variants for name in v.scorers))
    if len(names) > 1:
        yield _scorers(found, names)
    yield from turn_tables({v.variant: (v.turns, v.endings) for v in found.variants})
    if any(v.seconds is not None or v.cut for v in found.variants):
        yield _spending(found)
    names = [v.variant for v in found.variants]
    yield Matrix("Outputs", names, matrix_rows(found.outputs, names))


def _differences(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("difference", "number", 3),
        Column("rows", "count"),
        Column("p (Holm)", "p_value"),
        Column("rows needed", "count"),
    )
    rows = [
        (
            wording.shorten_models(variant),
            Estimate(one.difference, one.low, one.high),
            one.items,
            one.p,
            one.needed,
        )
        for variant, one in found.differences.items()
    ]
    note = (
        "On the rows that both have a score of. p: a sign-flip test. Rows needed: for a test with"
        " 80 % power to find a difference of this size."
    )
    baseline = wording.shorten_models(found.baseline)
    return Table(f"Compared with {baseline}", columns, rows, note=note)


def _scorers(found: Comparison, names: list[str]) -> Table:
    columns = [Column("variant")]
    rows: list[list[Cell]] = [[wording.shorten_models(one.variant)] for one in found.variants]
    note = ""
    for name in names:
        columns.append(Column(wording.shorten(shown(name), 40), "number", 3))
        missing = [one.missing.get(name, one.outputs) for one in found.variants]
        if any(missing):
            columns.append(Column("missing", "count"))
            note = "Missing: outputs that it gave no score of, and those that there are not."
        for one, row, number in zip(found.variants, rows, missing, strict=True):
            figure = estimate(one.scorers.get(name, Statistic()))
            row += [figure, number] if any(missing) else [figure]
    return Table("Each metric and judge", columns, rows, note=note)


def _spending(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("cut at the limit", "count"),
        Column("prompt tokens", "count"),
        Column("output tokens", "count"),
        Column("median time", "duration"),
        Column("cost", "money"),
    )
    rows: list[list[Cell]] = []
    for one in found.variants:
        used = one.usage
        tokens = (used.prompt_tokens, used.completion_tokens) if used.calls else (None, None)
        cost = used.cost if used.calls else None
        rows.append([wording.shorten_models(one.variant), one.cut, *tokens, one.seconds, cost])
    return Table("What the outputs took", columns, rows)


def matrix_rows(outputs: Iterable[Output], names: Sequence[str]) -> Iterator[MatrixRow]:
    """A row for each sample of each row of the data, as they are read."""
    for (row, sample), cells in itertools.groupby(outputs, lambda o: (o.row, o.sample)):
        given = {output.variant: output for output in cells}
        first = next(iter(given.values()))
        name = row if not sample else f"{row}, sample {sample + 1}"
        entries = [_entry(given[n]) if n in given and _is_there(given[n]) else None for n in names]
        yield MatrixRow(name, first.input, entries, first.reference or "", say_images(first.images))


def _is_there(output: Output) -> bool:
    """Whether it came to anything: what an interrupted run has not asked yet has not failed."""
    return bool(output.text) or output.failure is None or output.failure.kind != "skipped"


def _entry(output: Output) -> Entry:
    facts = {
        "tokens": f"{output.usage.tokens:,}" if output.usage.calls else "",
        "time": "" if output.seconds is None else wording.duration(output.seconds),
        "cost": wording.money(output.usage.cost) if output.usage.cost else "",
        "cut": "at the token limit" if output.cut else "",
        "ended": output.ending,
    }
    grades = {shown(name): grade for name, grade in output.grades.items()}
    reasons = {n: g.failure.reason if g.failure else g.reason for n, g in grades.items()}
    taken = trajectory_texts(output.trajectory)
    return Entry(
        output=output.text,
        scores={name: grade.score for name, grade in grades.items()},
        passed=output.passed,
        reasons={name: said for name, said in reasons.items() if said},
        failure=output.failure.reason if output.failure else "",
        facts={name: said for name, said in facts.items() if said},
        details=[Texts("Trajectory", taken)] if taken else [],
    )


def find_row(output: Output) -> Row:
    missing = [grade.failure for grade in output.grades.values() if grade.failure]
    skipped = next((one for one in missing if one.kind == "skipped"), None)
    failure, sample = skipped or output.failure, output.sample + 1
    return Row(
        key=f"{output.row.replace('|', '||')}|{output.variant}" + f"|{sample}" * (sample > 1),
        position=output.position,
        case=output.row,
        score=output.score,
        status=failure.kind if failure else "scored",
        reason=failure.reason if failure else output.reason,
        variant=output.variant,
        passed=output.passed,
    )


def flatten(output: Output) -> Iterator[Mapping[str, Any]]:
    """One row: what was asked and given, each score in a column of its own."""
    row = find_row(output)
    aside = _NESTED if output.turns else (*_NESTED, "turns", "ending")
    own = {name: value for name, value in asdict(output).items() if name not in aside}
    scores = {shown(name): grade.score for name, grade in output.grades.items()}
    reasons = {shown(name): grade.reason or None for name, grade in output.grades.items()}
    several = {"reasons": reasons} if len(reasons) > 1 else {}
    several |= {"images": list(map(image_reference, output.images))} if output.images else {}
    several |= output.trajectory.as_row() if output.trajectory else {}
    yield {
        **own,
        "status": row.status,
        "reason": row.reason or None,
        "scores": scores,
        **several,
        "usage": asdict(output.usage),
        "judging": asdict(output.judging),
    }


_NESTED = ("failure", "grades", "reason", "usage", "judging", "images", "trajectory")


def data(_spec: CompareSpec, found: Comparison) -> Mapping[str, Any]:
    variants = [
        {
            **asdict(one),
            **{name: estimate(getattr(one, name)) for name in _FIGURES},
            "scorers": {name: estimate(figure) for name, figure in one.scorers.items()},
            "turns": [
                {**asdict(turn), **{name: estimate(getattr(turn, name)) for name in _FIGURES}}
                for turn in one.turns
            ],
        }
        for one in found.variants
    ]
    for one in variants:  # only conversations have them
        for name in ("turns", "endings"):
            if not one[name]:
                del one[name]
    return {
        "sentence": found.sentence,
        "baseline": found.baseline,
        "decides": found.decides,
        "rows": found.rows,
        "variants": variants,
        "differences": {
            variant: {**asdict(one), "difference": one.difference}
            for variant, one in found.differences.items()
        },
        "worst": [next(flatten(output)) for output in found.worst],
        "failures": [next(flatten(output)) for output in found.failures],
        "failed": found.failed,
        "judging": found.judging,
    }


_FIGURES = ("mean", "pass_rate")


def _draw(found: Comparison) -> str:
    """What a notebook shows."""
    figures = draw_aggregates(aggregate(map(find_row, found.outputs)))
    return html_fragment(Report("Comparison", found.sentence, [*figures, *_blocks(found)]))


def _rows(found: Comparison) -> Iterator[Mapping[str, Any]]:
    return (row for output in found.outputs for row in flatten(output))


show_as(Comparison, _draw, _rows)


async def describe(
    spec: CompareSpec, _settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    return describe_targets(spec.targets, spec.target_version)


def ask(spec: CompareSpec) -> Asks:
    judges, chains = tuple(with_models(spec).values()), chains_among(*spec.models)
    models = tuple(model for model in spec.models if model not in chains)
    writes, played = bool(spec.prompts) and not models, spec.user_model is not None
    prompts = {"agents.simulated_user": user_prompt().version} if played else {}
    models += (spec.user_model,) if spec.user_model is not None else ()
    return Asks(judges, models, writes=writes, prompts=prompts, chains=chains)


def plan_rows(
    spec: CompareSpec,
    cases: Sequence[Case],
    default_model: str,
    chains: Mapping[str, Chain],
    first: int,
) -> Iterator[list[Planned]]:
    """The cells of each row, sample by sample. `chains`: by their names. `first`: the place of the
    first row.

    Raises:
        InputError: no variant is called like the baseline.
    """
    number = itertools.count(_count_cells(spec, first))
    variants = [
        one if one.chain or one.target else replace(one, model=one.model or default_model)
        for one in variants_of(spec)
    ]
    baseline = baseline_of(spec, variants)
    for case in cases:
        values = {name: column_text(value) for name, value in row_values(case).items()}
        known = values if spec.label is None else {**values, spec.label: case.reference or ""}
        asked = _show_input(spec, baseline, values)
        blank = Output(
            0,
            case.id,
            "",
            input=asked,
            reference=case.reference,
            context=case.context,
            images=case.images,
        )

        def placed(sample: int, blank: Output = blank) -> Output:
            return replace(blank, position=next(number), sample=sample)

        yield [
            _plan(spec, case, known, variant, placed(sample), chains)
            for sample in range(spec.samples)
            for variant in variants
            if sample == 0 or not variant.column
        ]


def _plan(
    spec: CompareSpec,
    case: Case,
    values: Mapping[str, str],
    variant: Variant,
    empty: Output,
    chains: Mapping[str, Chain],
) -> Planned:
    if variant.chain:
        named = replace(empty, variant=variant.name)
        return Planned(named, chain=chains[variant.chain], values=values)
    user = user_of(spec, values)
    if (target := variant.target) is not None:
        row, sample = row_values(case), empty.sample

        def send(messages: Sequence[Message]) -> Request:
            sent = turn_row(row, messages, whole=target.body is None) if messages else row
            return write_request(target, sent, spec.target_version, sample)

        named = replace(empty, variant=variant.name)
        return Planned(named, send(()), send, target=target, values=values, user=user)
    if variant.prompt is None:
        text = case.candidates[spec.outputs.index(variant.column)]
        why = Failure("failed", f"the column '{variant.column}' is empty in this row")
        failure = None if text.strip() else why
        named = replace(empty, variant=variant.name, text=text, failure=failure)
        if len(spec.outputs) > 1:  # nothing says whose calls of tools are recorded
            values = {name: value for name, value in values.items() if name not in RECORDED}
        return Planned(named, values=values)
    prompt = variant.prompt
    messages = (
        prompt.fill_opening(values, spec.system)
        if user
        else prompt.fill(values, spec.system, case.images)
    )
    named = replace(empty, variant=variant.name, prompt=prompt.name, model=variant.model)
    asks = user or case.images or any(one.text.strip() for one in messages if one.role == "user")
    if not asks:
        failure = Failure("failed", f"the prompt {prompt.name} is empty")
        return Planned(replace(named, failure=failure), values=values)
    request = Request(
        messages=messages,
        temperature=spec.temperature,
        max_tokens=spec.max_output_tokens,
        seed=spec.seed,
        sample=empty.sample,
    )

    def ask(said: Sequence[Message]) -> Request:
        return replace(request, messages=(*messages, *said))

    return Planned(named, request, ask, values=values, user=user)


def _show_input(spec: CompareSpec, baseline: Variant | None, values: Mapping[str, str]) -> str:
    """What judges and people see as the input of a row."""
    column = input_column(spec, values)
    if column:
        return values[column]
    own = [baseline.prompt] if baseline is not None and baseline.prompt is not None else []
    prompt = next((one for one in (*own, *spec.prompts) if not one.is_blank), None)
    parts, user = [prompt.show(values)] if prompt else [], user_of(spec, values)
    if isinstance(user, SimulatedUser):
        parts += [f"The user: {user.persona}"] * bool(user.persona)
        parts.append(f"The user's goal: {user.goal}")
    elif not parts:
        parts += user
    return "\n\n".join(parts) or json.dumps(values, ensure_ascii=False)


def open_scorers(spec: CompareSpec, bench: Workbench) -> Scorers:
    """
    Raises:
        InputError: there is no such metric or judge, or the program did not put it in.
    """
    together = together_of(spec)
    judges = {n: bench.whole_judge_of(text) for n, text in with_models(spec).items()}
    return Scorers(
        metrics={name: bench.metric_of(name) for name in spec.metric},
        alone={name: judge for name, judge in judges.items() if name not in together},
        together={name: judge for name, judge in judges.items() if name in together},
        decides=decides(spec),
        threshold=spec.threshold,
        each_turn=spec.each_turn,
    )


async def run(spec: CompareSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Output]:
    """Each cell as soon as it is filled; what is judged side by side comes together."""
    read, scorers = list(cases), open_scorers(spec, bench)
    chains = {n: open_chain_named(n, bench.objects) for n in chains_among(*spec.models)}
    for target in spec.targets:
        bench.target_of(target)  # what cannot be loaded is told before anything is asked
    for case, chain in itertools.product(read if chains else (), chains.values()):
        chain.take_inputs(row_values(case), others=True)  # said before anything is asked
    bench.listener(RecordsExpected(_count_cells(spec, len(read))))
    together, per_row = bool(scorers.together), len(spec.prompts) * max(1, len(spec.models))
    rows = plan_rows(spec, read, bench.default_model, chains, bench.first)
    results = stream(
        (group for row in rows for group in _groups(row, together=together)),
        lambda group: fill_cells(bench, scorers, group),
        max(1, bench.concurrency // max(1, per_row)) if together else bench.concurrency,
        ordered=False,
    )
    async with aclosing(results):
        async for made in results:
            for output in made:
                yield output


def _count_cells(spec: CompareSpec, cases: int) -> int:
    generated = sum(spec.samples for variant in variants_of(spec) if not variant.column)
    return cases * (generated + len(spec.outputs))


def _groups(row: Sequence[Planned], *, together: bool) -> Iterator[list[Planned]]:
    """What is filled at once: a cell, or all outputs of a row that are judged side by side."""
    if not together:
        yield from ([planned] for planned in row)
        return
    for _, same in itertools.groupby(row, key=lambda planned: planned.empty.sample):
        yield list(same)


def encode(output: Output) -> bytes:
    return write_json(replace(output, images=tuple(map(image_reference, output.images))))


STUDY = Study(
    spec=CompareSpec,
    cases=read_cases,
    take=take_rows,
    describe=describe,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=json_decoder(Output),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    independent=lambda _spec: True,
    variants=lambda spec, _model: [variant.name for variant in variants_of(spec)],
    rows=matrix_rows,
)
