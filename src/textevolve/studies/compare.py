"""The comparison of prompts, models and outputs on the user's rows: a matrix with a row for each
row of data and a column for each variant, in which each cell is an output with its scores.

`compare_spec` has the specification, `compare_cells` fills one cell, and
`textevolve.bench.variants` has the statistics. The report reads outputs from the store again for
the matrix, so that they are never in memory all at once.
"""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from statistics import median
from typing import Any

from textevolve.agents.simulated_user import SimulatedUser
from textevolve.engine.local import stream
from textevolve.evaluation import (
    EQUAL_TO,
    GROUP,
    Case,
    Failure,
    Result,
    Usage,
    empty_default,
    reaches,
    select_skipped,
)
from textevolve.events import RecordsExpected
from textevolve.images import image_reference
from textevolve.json_texts import write_text
from textevolve.llm.chains.chain import Chain
from textevolve.llm.model import Request
from textevolve.llm.prompts import prompt_versions
from textevolve.llm.target_calls import describe_targets
from textevolve.loops.rules import describe_checks
from textevolve.mappings import drop_empty, drop_none, map_values, omit, pick, read_fields
from textevolve.metrics.label_metrics import is_shipped
from textevolve.metrics.plain import NO_NUMBER
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
from textevolve.rows.columns import find_title, prompt_text
from textevolve.runs.aggregates import (
    Aggregates,
    compare_figures,
    describe_variants,
    draw_aggregates,
)
from textevolve.runs.chains import chains_among, open_chain_named
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    json_decoder,
    record_status,
    remember_row,
    write_json,
)
from textevolve.settings import Settings
from textevolve.showing import show_as
from textevolve.statistics.comparisons import PairedDifference
from textevolve.studies.compare_cells import (
    Output,
    Planned,
    Scorers,
    ask_model,
    ask_steps,
    call_target,
    fill_cells,
    scorer_label,
)
from textevolve.studies.compare_rows import (
    input_column,
    list_asked,
    list_unread,
    read_compared_rows,
    reads_rows,
    row_columns,
    take_rows,
)
from textevolve.studies.compare_spec import (
    CompareSpec,
    NamedPrompt,
    Variant,
    baseline_of,
    decides,
    judges_of,
    together_of,
    variants_of,
    with_models,
)
from textevolve.studies.conversations import USER_COLUMNS, user_of
from textevolve.studies.judged_report import (
    describe_calls,
    describe_images,
    image_fields,
    trajectory_texts,
)
from textevolve.studies.row_values import RowValues, SentChat, read_sent_chat, read_values
from textevolve.studies.rows import keep_columns
from textevolve.texts.placeholders import find_placeholders
from textevolve.trajectory import RECORDED, read_trajectory
from textevolve.wiring import Workbench


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """The figures of one metric or judge (`scorer`) for the answers at one turn of a variant's
    conversations. `turn`: its number; `answers`: the number of answers; `mean`: the mean score, and
    `pass_rate`, both in [0, 1]."""

    scorer: str
    turn: int
    answers: int
    mean: Estimate
    pass_rate: Estimate


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The figures of one variant.

    Attributes:
        outputs: The number of outputs; `scored`: the number with a score.
        cut: The number of outputs that ended at the token limit.
        mean: The mean score, and `pass_rate` the share of outputs that passed; both in [0, 1], with
            95 % intervals clustered by row.
        scorers: The mean score by each metric and judge.
        missing: The number of outputs without a score, by metric and judge.
        usage: The tokens and cost of the outputs, without those of judges.
        seconds: The median time of the model for an output; None if it is unknown.
        turns: For conversations, the figures of each turn.
        endings: The number of conversations by the reason for which they ended.
        reasons: The first reason for a missing score, by metric and judge.
    """

    variant: str
    outputs: int
    scored: int
    cut: int
    mean: Estimate
    pass_rate: Estimate
    scorers: Mapping[str, Estimate]
    missing: Mapping[str, int]
    usage: Usage
    seconds: float | None
    turns: tuple[TurnFigures, ...] = ()
    endings: Mapping[str, int] = empty_default(dict)
    reasons: Mapping[str, str] = empty_default(dict)


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The result of a comparison: the figures of each variant, and its score minus the baseline's
    (`differences`).

    Attributes:
        decides: The name of the metric or judge whose score counts.
        rows: The number of rows of data.
        figures: The counts, mean score and pass rate of each variant.
        failed: The number of outputs without a score.
        judging: The usage of the judges.
        outputs: All cells, in the order of the rows.
        no_number: The number of grades of outputs in which `numeric` found no number.
    """

    baseline: str
    decides: str
    rows: int
    variants: tuple[VariantSummary, ...]
    figures: Mapping[str, Aggregates]
    differences: Mapping[str, PairedDifference]
    failed: int
    judging: Usage
    outputs: Iterable[Output]
    no_number: int = 0

    def __repr__(self) -> str:
        return f"Comparison({self.sentence})"

    @property
    def sentence(self) -> str:
        """The result in a sentence: which variant is better, and by how much."""
        return describe_variants(self.figures, self.differences, self.baseline)


NO_USAGE = Usage()
"""The usage of outputs that exist already, which are not worth an addition each."""


@dataclass
class _Tally:
    """The running figures of one variant, to which outputs are added as they are read."""

    figures: Aggregates = empty_default(Aggregates)
    grades: dict[str, Aggregates] = field(default_factory=lambda: defaultdict(Aggregates))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outputs: int = 0
    cut: int = 0
    usage: Usage = Usage()
    turns: dict[tuple[str, int], Aggregates] = field(
        default_factory=lambda: defaultdict(Aggregates)
    )
    endings: Counter[str] = empty_default(Counter)
    reasons: dict[str, str] = empty_default(dict)
    no_number: int = 0

    def add(self, output: Output) -> None:
        row = find_row(output)
        if output.ending:
            self.endings[output.ending] += 1
        for number, turn in enumerate(output.turns, 1):
            for name, grade in turn.grades.items():
                figures = self.turns[name, number]
                figures.add_score(row.case, row.cluster, grade.score, grade.passed)
        self.figures.add(row)
        self.outputs += 1
        self.cut += output.cut
        if output.usage != NO_USAGE:
            self.usage += output.usage
        if output.seconds is not None:
            self.seconds.append(output.seconds)
        for name, grade in output.grades.items():
            self.grades[name].add_score(row.case, row.cluster, grade.score, grade.passed)
            self.no_number += grade.reason.startswith(NO_NUMBER)
            if grade.failure is not None:
                self.reasons.setdefault(name, grade.failure.reason)

    def summarise(self, variant: str, scorers: tuple[str, ...]) -> VariantSummary:
        return VariantSummary(
            variant=variant,
            outputs=self.outputs,
            scored=self.figures.scored,
            cut=self.cut,
            mean=self.figures.mean,
            pass_rate=self.figures.pass_rate,
            scorers={name: self.grades[name].mean for name in scorers},
            missing={name: self.outputs - self.grades[name].scored for name in scorers},
            usage=self.usage,
            seconds=median(self.seconds) if self.seconds else None,
            turns=tuple(
                TurnFigures(*key, turn.scored, turn.mean, turn.pass_rate)
                for key, turn in sorted(self.turns.items())
                if turn.scored
            ),
            endings=dict(self.endings),
            reasons=self.reasons,
        )


def summarise(spec: CompareSpec, records: Iterable[Output]) -> Comparison:
    """Compute the figures from the cells that exist. An iterator of records is read into a list;
    another iterable is read a second time for the matrix."""
    records = tuple(records) if isinstance(records, Iterator) else records
    variants = variants_of(spec)
    tallies = defaultdict(_Tally, {variant.name: _Tally() for variant in variants})
    rows: dict[str, None] = {}
    scorers: dict[str, None] = {}
    failed = 0
    judging = Usage()

    for output in records:
        tallies[output.variant].add(output)
        rows[output.row] = None
        scorers |= dict.fromkeys(output.grades)
        if output.judging != NO_USAGE:
            judging += output.judging
        failed += output.failure is not None

    baseline = baseline_of(spec, variants or list(map(Variant, tallies)))
    baseline_name = baseline.name if baseline else ""
    figures = {name: tally.figures for name, tally in tallies.items()}

    return Comparison(
        baseline=baseline_name,
        decides=decides(spec),
        rows=len(rows),
        variants=tuple(t.summarise(name, tuple(scorers)) for name, t in tallies.items()),
        figures=figures,
        differences=compare_figures(figures, baseline_name, spec.seed),
        failed=failed,
        judging=judging,
        outputs=records,
        no_number=sum(tally.no_number for tally in tallies.values()),
    )


def _list_kin(spec: CompareSpec) -> str:
    """Name the models whose answers a judge of their own family grades, one line a judge; empty if
    there are none. Models recognise their own texts and prefer them: Panickssery, Bowman and Feng
    (2024), arXiv 2404.13076."""
    answering = [variant.model for variant in variants_of(spec) if variant.model]
    lines: list[str] = []

    for text, judge in with_models(spec).items():
        families = {wording.model_family(str(model)) for model in judge.models("") if model}
        kin = [model for model in answering if wording.model_family(model) in families]
        if kin:
            lines.append(f"{text}: {', '.join(dict.fromkeys(kin))}")
    if not lines:
        return ""

    advice = "Models prefer texts of their own family; a judge of another shows by how much."
    return "\n".join([*lines, advice])


def report(spec: CompareSpec, comparison: Comparison) -> Report:
    facts = {
        "Score": scorer_label(comparison.decides),
        "Used for judging": wording.spent(comparison.judging) if comparison.judging.calls else "",
    }
    if comparison.no_number:
        # Wrong answers, but most often because of the form that the prompt asks for.
        facts["Without a number"] = wording.count(comparison.no_number, "output")

    if kin := _list_kin(spec):
        facts["Judged by its own family"] = kin

    number = comparison.rows if spec.samples == 1 else None
    return Report("Comparison", comparison.sentence, _blocks(comparison, number), facts)


def _blocks(comparison: Comparison, number: int | None = None) -> Iterator[Block]:
    """Yield the blocks of a comparison's report that other studies do not have. `number`: the
    number of rows of the matrix if it is known."""
    if comparison.differences:
        yield _differences(comparison)
    names = list(dict.fromkeys(name for v in comparison.variants for name in v.scorers))
    if len(names) > 1:
        yield _scorers(comparison, names)
    yield from _turns(comparison.variants)
    if any(v.seconds is not None or v.cut for v in comparison.variants):
        yield _spending(comparison)
    names = [v.variant for v in comparison.variants]
    yield Matrix("Outputs", names, matrix_rows(comparison.outputs, names), number=number)


def _differences(comparison: Comparison) -> Table:
    columns = (
        "variant",
        Column("difference", "number", 3),
        Column("rows", "count"),
        Column("p (Holm)", "p_value"),
        Column("rows needed", "count"),
    )
    rows = [
        (
            wording.shorten_models(variant),
            Estimate(paired.difference, paired.low, paired.high),
            paired.items,
            paired.p,
            paired.needed,
        )
        for variant, paired in comparison.differences.items()
    ]
    note = (
        "Only rows with a score for both variants count. p: sign-flip test. Rows needed: to find a"
        " difference of this size with 80 % power."
    )
    if any(paired.groups for paired in comparison.differences.values()):
        note += " Tests and intervals count equal rows, and the rows of a group, as one."
    baseline = wording.shorten_models(comparison.baseline)

    return Table(f"Compared with {baseline}", columns, rows, note=note)


MISSING_NOTE = "Missing: outputs that it did not score, and outputs that do not exist."


def _scorers(comparison: Comparison, names: list[str]) -> Table:
    columns: list[Column | str] = ["variant"]
    rows: list[list[Cell]] = [
        [wording.shorten_models(summary.variant)] for summary in comparison.variants
    ]
    note = ""

    for name in names:
        columns.append(Column(wording.shorten(scorer_label(name), 40), "number", 3))
        missing = [summary.missing[name] for summary in comparison.variants]
        if any(missing):
            columns.append(Column("missing", "count"))
            note = note or MISSING_NOTE
            reasons = (summary.reasons.get(name) for summary in comparison.variants)
            if reason := next(filter(None, reasons), None):
                note += f" The first of {scorer_label(name)}: {wording.shorten(reason, 200)}."
        for summary, row, number in zip(comparison.variants, rows, missing, strict=True):
            figure = summary.scorers[name]
            row += [figure, number] if any(missing) else [figure]

    return Table("Each metric and judge", columns, rows, note=note)


def _turns(variants: Sequence[VariantSummary]) -> Iterator[Block]:
    """Yield tables of each variant's figures by turn, and of the reasons for which its
    conversations ended; none without conversations."""
    columns = (
        "variant",
        "scorer",
        Column("turn", "count"),
        Column("answers", "count"),
        Column("mean score", "number", 3),
        Column("passed", "percent", 1),
    )
    rows = [
        (
            summary.variant,
            scorer_label(figures.scorer),
            figures.turn,
            figures.answers,
            figures.mean,
            figures.pass_rate,
        )
        for summary in variants
        for figures in summary.turns
    ]
    if rows:
        yield Table("By turn", columns, rows)
    ends = list(dict.fromkeys(end for summary in variants for end in summary.endings))
    if ends:
        heads = ("variant", *(Column(end, "count") for end in ends))
        counts = [[v.variant, *(v.endings.get(end, 0) for end in ends)] for v in variants]
        yield Table("How conversations ended", heads, counts)


def _spending(comparison: Comparison) -> Table:
    columns = (
        "variant",
        Column("cut at the limit", "count"),
        Column("prompt tokens", "count"),
        Column("output tokens", "count"),
        Column("median time", "duration"),
        Column("cost", "money"),
    )
    rows: list[list[Cell]] = []

    for summary in comparison.variants:
        used = summary.usage
        tokens = (used.prompt_tokens, used.completion_tokens) if used.calls else (None, None)
        cost = used.cost if used.calls else None
        rows.append(
            [wording.shorten_models(summary.variant), summary.cut, *tokens, summary.seconds, cost]
        )

    return Table("Cost of the outputs", columns, rows)


def matrix_rows(outputs: Iterable[Output], names: Sequence[str]) -> Iterator[MatrixRow]:
    """Yield a row of the matrix for each sample of each row of data, while the outputs are read;
    those of the same row and sample must follow each other."""
    for (row, sample), group in itertools.groupby(outputs, lambda o: (o.row, o.sample)):
        cells = list(group)
        first_output = cells[0]
        if len(names) == 1 and first_output.trajectory is None:
            # Recorded calls are those of the only output; of several nothing says whose they are.
            recorded = read_trajectory(pick(first_output.columns, RECORDED), row)
            cells = [output.amend(trajectory=recorded) for output in cells]

        entries: dict[str, Entry] = {}
        for output in cells:
            # An interrupted run did not reach cells that are skipped.
            if output.text or output.failure is None or output.failure.kind != "skipped":
                entries[output.variant] = _entry(output)

        # The title and the recorded calls are shown in places of their own.
        aside = (find_title(first_output.columns), *RECORDED)
        columns: dict[str, str] = {}
        for name in first_output.used:
            if name not in aside and first_output.columns.get(name, row) != row:
                columns[name] = prompt_text(first_output.columns[name])

        # Judges see conversations with the prompt of one bot, which is no input of another.
        prompts = {output.prompt for output in cells if output.turns}
        input = "" if columns and len(prompts) > 1 else first_output.input
        sample_name = f", sample {sample + 1}" if sample else ""
        title = _title_of(first_output) or row

        yield MatrixRow(
            f"{row}{sample_name}",
            input,
            [entries.get(name) for name in names],
            first_output.reference or "",
            describe_images(first_output.images),
            title=f"{title}{sample_name}",
            columns=columns,
        )


def _entry(output: Output) -> Entry:
    usage = output.usage
    facts = {
        "tokens": f"{usage.tokens:,}" if usage.calls else "",
        "time": "" if output.seconds is None else wording.duration(output.seconds),
        "cost": wording.money(usage.cost) if usage.cost else "",
        "cut": "at the token limit" if output.cut else "",
        "prompt": wording.cut_prompts(usage + output.judging),
        "ended": output.ending,
    }
    if output.trajectory:
        facts |= describe_calls(output.trajectory)

    scores: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, grade in output.grades.items():
        label = scorer_label(name)
        scores[label] = grade.score
        reasons[label] = grade.failure.reason if grade.failure else grade.reason

    steps = trajectory_texts(output.trajectory)

    return Entry(
        output=output.text,
        scores=scores,
        passed=output.passed,
        reasons=drop_empty(reasons),
        failure=output.failure.reason if output.failure else "",
        facts=drop_empty(facts),
        details=[Texts("Trajectory", steps)] if steps else [],
    )


@remember_row
def find_row(output: Output) -> Row:
    failure = output.failure
    grade_failures = [grade.failure for grade in output.grades.values() if grade.failure]
    if grade_failures:
        failure = select_skipped(grade_failures) or failure
    key = f"{output.row.replace('|', '||')}|{output.variant}"
    if output.sample:
        key += f"|{output.sample + 1}"

    return Row(
        key=key,
        position=output.position,
        case=output.row,
        score=output.score,
        status=record_status(failure),
        reason=failure.reason if failure else output.reason,
        variant=output.variant,
        passed=output.passed,
        cluster=output.cluster,
        # Only messages about missing scores name rows, and runs have many others.
        title=_title_of(output) if failure else "",
    )


def _title_of(output: Output) -> str:
    """Return the name by which people know a row; empty if it is known by its id."""
    column = find_title(output.columns)
    return str(output.columns[column]) if column else ""


def at_threshold(output: Output, threshold: float) -> Output:
    """Return an output that passes from a score of `threshold` on."""
    if output.score is None:
        return output
    return output.amend(passed=reaches(output.score, threshold))


def flatten(output: Output) -> Iterator[Mapping[str, Any]]:
    """Yield the row of an output in a table: input, output, each score in its own column, and at
    the end the row's own columns: by their names, after `row.` where a field has the same name."""
    row = find_row(output)
    aside = _NESTED if output.turns else (*_NESTED, "turns", "ending")
    aside = aside if output.group else (*aside, GROUP)
    fields = omit(asdict(output), aside)
    fields["status"] = row.status
    fields["reason"] = row.reason or None
    grades = {scorer_label(name): grade for name, grade in output.grades.items()}
    fields["scores"] = {name: grade.score for name, grade in grades.items()}
    if len(grades) > 1:
        fields["reasons"] = {name: grade.reason or None for name, grade in grades.items()}
    fields |= image_fields(images=output.images)
    if output.trajectory:
        fields |= output.trajectory.as_row()
    fields["usage"] = asdict(output.usage)
    fields["judging"] = asdict(output.judging)
    for name, value in output.columns.items():
        fields[f"row.{name}" if name in fields else name] = value

    yield fields


_NESTED = (
    *("failure", "grades", "reason", "usage", "judging", "images", "trajectory"),
    *("columns", "used", "equal_to"),
)


OF_CONVERSATIONS = ("turns", "endings")
"""The figures of a variant that are left out if none of its outputs is a conversation."""


def data(_spec: CompareSpec, comparison: Comparison) -> Mapping[str, Any]:
    variants = [
        {n: v for n, v in asdict(variant).items() if v or n not in OF_CONVERSATIONS}
        for variant in comparison.variants
    ]
    return {
        **read_fields(comparison, "sentence", "baseline", "decides", "rows"),
        "variants": variants,
        "differences": {
            variant: figures.data for variant, figures in comparison.differences.items()
        },
        **read_fields(comparison, "failed", "judging"),
    }


def _draw(comparison: Comparison) -> str:
    """Return the HTML of a comparison for notebooks."""
    figures = draw_aggregates(comparison.figures)
    return html_fragment(
        Report("Comparison", comparison.sentence, [*figures, *_blocks(comparison)])
    )


show_as(Comparison, _draw)


async def describe(
    spec: CompareSpec, _settings: Settings, objects: dict[str, object]
) -> Mapping[str, Any]:
    described = describe_targets(spec.targets, spec.target_version, objects)
    return described | describe_checks(spec.check)


def ask(spec: CompareSpec) -> Asks:
    named_judges = with_models(spec)
    chains = chains_among(*spec.models)
    models = tuple(model for model in spec.models if model not in chains)
    writes = bool(spec.prompts) and not models
    played = spec.user_model is not None
    prompts = prompt_versions("agents", "simulated_user") if played else {}
    models += (spec.user_model,) if spec.user_model is not None else ()
    decisive = named_judges.get(decides(spec))
    return Asks(
        tuple(named_judges.values()),
        models,
        writes=writes,
        prompts=prompts,
        chains=chains,
        decides=decisive.text if decisive else decides(spec),
        metrics=spec.metric,
    )


def reads(spec: CompareSpec) -> Callable[[Case], Case]:
    """Return a function that keeps the columns of a row that outputs or scores depend on. The label
    and existing outputs are no columns of the input."""
    own_metrics = not all(map(is_shipped, spec.metric))
    if reads_rows(spec) or own_metrics or chains_among(*spec.models):
        return keep_columns

    bodies = [write_text(target.body) for target in spec.targets]
    templates = [text for prompt in spec.prompts for _, text in prompt.templates]
    template_texts = "\n".join([*bodies, *templates, spec.system])

    @cache  # since all rows have the same columns
    def choose(columns: tuple[str, ...]) -> Collection[str]:
        read_columns = {*find_placeholders(template_texts, columns), *RECORDED, *USER_COLUMNS}
        return read_columns | {input_column(spec, columns)}

    return partial(keep_columns, choose=choose)


_BLANK = Output(0, "", "")


def plan_rows(
    spec: CompareSpec,
    cases: Sequence[Case],
    default_model: str,
    chains: Mapping[str, Chain],
    first_row: int,
) -> Iterator[Planned]:
    """Yield the cells of each row before they are filled, sample by sample; a column of existing
    outputs has a single sample. `chains`: the opened chains by name. `first_row`: the position of
    the first row in the run.

    Raises:
        InputError: no variant has the name of the baseline.
    """
    number = itertools.count(_count_cells(spec, first_row))
    variants = variants_of(spec)
    baseline = baseline_of(spec, variants)
    names = [*row_columns(cases[0])] if cases else []  # the same of all rows
    unread = list_unread(spec, names, list_asked(spec, names))
    used = tuple(name for name in names if name not in unread)
    # An application that holds few conversations at once would mix up the others.
    chats = {t.label: asyncio.Semaphore(t.concurrency) for t in spec.targets if t.concurrency}

    for case in cases:
        values = read_values(case, row_columns(case), spec.label)
        user = user_of(spec, values.columns)
        blank = _BLANK.amend(
            row=case.id,
            input=_show_input(spec, baseline, values, user),
            reference=case.reference,
            context=case.context,
            images=case.images,
            columns=drop_none(values.columns),
            used=used,
            **pick(case.parameters, (GROUP, EQUAL_TO)),
        )

        for sample in range(spec.samples):
            for variant in variants:
                if sample and variant.column:
                    continue
                fill = partial(
                    blank.amend, position=next(number), variant=variant.name, sample=sample
                )
                if variant.column:
                    yield _plan_column(spec, case, values, variant, fill)
                elif variant.chain:
                    yield Planned(fill(), partial(ask_steps, chains[variant.chain]), values)
                elif variant.target is not None:
                    answer = partial(call_target, variant.target, spec.target_version)
                    yield Planned(fill(), answer, values, user, chats.get(variant.name))
                else:
                    cell = fill(model=variant.model or default_model)
                    yield _plan_prompt(spec, values, variant, cell, user)


def _plan_column(
    spec: CompareSpec,
    case: Case,
    values: RowValues,
    variant: Variant,
    fill: Callable[..., Output],
) -> Planned:
    """Return the cell of a column of existing outputs. `fill` returns the cell with more fields."""
    text = case.candidates[spec.outputs.index(variant.column)]
    failure = None
    if not text.strip():
        failure = Failure("failed", f"the column '{variant.column}' is empty in this row")
    cell = fill(text=text, trajectory=case.trajectory, failure=failure)
    # Of several columns nothing says whose calls of tools are recorded.
    if len(spec.outputs) > 1 and pick(values.row, RECORDED):
        values = replace(values, row=omit(values.row, RECORDED))

    return Planned(cell, None, values)


def _plan_prompt(
    spec: CompareSpec,
    values: RowValues,
    variant: Variant,
    cell: Output,
    user: SimulatedUser | tuple[str, ...],
) -> Planned:
    """Return the cell of a prompt that a model answers. `user`: the user of a conversation, or
    nothing."""
    prompt = variant.prompt
    assert prompt is not None
    cell = cell.amend(prompt=prompt.name)
    if user:
        messages = prompt.fill_opening(values.variables, spec.system)
    else:
        chats = {name: chat.messages for name, chat in _sent_chats(prompt, values).items()}
        messages = prompt.fill(values.variables, spec.system, cell.images, chats)

    texts = (message.text for message in messages if message.role == "user")
    if not (user or cell.images or any(map(str.strip, texts))):
        failure = Failure("failed", f"the prompt {prompt.name} is empty in this row")
        return Planned(cell.amend(failure=failure), None, values)

    request = Request(
        messages=messages,
        temperature=spec.temperature,
        max_tokens=spec.max_output_tokens,
        seed=spec.seed,
    )

    return Planned(cell, partial(ask_model, request), values, user)


def _sent_chats(prompt: NamedPrompt, values: RowValues) -> dict[str, SentChat]:
    """Return the chats of a row that a prompt sends as messages, by column."""
    chats: dict[str, SentChat] = {}
    for name in prompt.chat_columns(values.columns):
        if chat := read_sent_chat(values.columns[name], name, values.pictures):
            chats[name] = chat

    return chats


def _show_input(
    spec: CompareSpec,
    baseline: Variant | None,
    values: RowValues,
    user: SimulatedUser | tuple[str, ...],
) -> str:
    """Return the input of a row as the text that judges and readers see."""
    column = input_column(spec, values.columns)
    if column:
        return values.variables[column]

    parts: list[str] = []
    for prompt in (baseline.prompt if baseline else None, *spec.prompts):
        if prompt is not None and not prompt.is_blank:
            chats = {name: chat.text for name, chat in _sent_chats(prompt, values).items()}
            parts.append(prompt.show({**values.variables, **chats}))
            break

    if isinstance(user, SimulatedUser):
        if user.persona:
            parts.append(f"The user: {user.persona}")
        parts.append(f"The user's goal: {user.goal}")
    elif not parts:
        parts += user

    return "\n\n".join(parts) or write_text(values.variables)


def open_scorers(spec: CompareSpec, bench: Workbench) -> Scorers:
    """Open the metrics and judges of a comparison.

    Raises:
        InputError: there is no such metric or judge, or the Python object that is named was not
            passed.
    """
    together = [judge.text for judge in together_of(spec)]
    named = with_models(spec)
    judges = map_values(bench.whole_judge_of, named)

    return Scorers(
        metrics={name: bench.metric_of(name) for name in spec.metric},
        alone=omit(judges, together),
        together=pick(judges, together),
        decides=decides(spec),
        threshold=spec.threshold,
        each_turn=spec.each_turn,
        of_rows=tuple(name for name, judge in named.items() if judge.reads_row),
        of_checks=tuple(name for name, judge in named.items() if judge.reads_checks),
    )


async def run(spec: CompareSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Output]:
    """Yield each cell as soon as it is filled; cells that are judged side by side come together."""
    case_list = list(cases)
    scorers = open_scorers(spec, bench)
    chains = {n: open_chain_named(n, bench.objects) for n in chains_among(*spec.models)}
    for target in spec.targets:
        bench.target_of(target)  # errors of loading come before the first call
    for case, chain in itertools.product(case_list, chains.values()):
        chain.take_inputs(row_columns(case), others=True)  # errors come before the first call
    bench.listener(RecordsExpected(_count_cells(spec, len(case_list))))
    concurrency = bench.concurrency
    if scorers.together:
        concurrency //= max(1, len(spec.prompts) * max(1, len(spec.models)))

    at_once = 1
    are_quick = all(metric.is_quick for metric in scorers.metrics.values())
    if are_quick and not judges_of(spec) and all(one.column for one in variants_of(spec)):
        # Cells that exist already, and are scored in microseconds, need no task each.
        at_once = CELLS_AT_ONCE
        concurrency = 1

    def group_of(planned: Planned) -> tuple[str, int]:
        cell = planned.empty
        return (cell.row, cell.sample) if scorers.together else ("", cell.position // at_once)

    cells = plan_rows(spec, case_list, bench.default_model, chains, bench.first)
    groups = (list(group) for _, group in itertools.groupby(cells, group_of))
    results = stream(
        groups, partial(fill_cells, bench, scorers), max(1, concurrency), ordered=False
    )
    async with aclosing(results):
        async for outputs in results:
            for output in outputs:
                yield output


CELLS_AT_ONCE = 64
"""The number of cells that are scored before others may work on the event loop: 2 ms."""


def _count_cells(spec: CompareSpec, cases: int) -> int:
    generated = sum(spec.samples for variant in variants_of(spec) if not variant.column)
    return cases * (generated + len(spec.outputs))


def encode(output: Output) -> bytes:
    if output.images:
        output = output.amend(images=tuple(map(image_reference, output.images)))
    return write_json(output)


STUDY = Study(
    spec=CompareSpec,
    cases=read_compared_rows,
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
    at_threshold=at_threshold,
    independent=True,
    variants=lambda spec, _model: [variant.name for variant in variants_of(spec)],
    rows=matrix_rows,
    reads=reads,
)
