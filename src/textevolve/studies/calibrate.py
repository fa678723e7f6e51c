"""Calibrate (prompt optimisation): a study that searches for a better prompt template on the user's
rows. A row has values for the template's placeholders.

`textevolve.loops.calibration` has the search. The gain on rows that the search never saw is
reported with an interval.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar

from pydantic import field_validator, model_validator

from textevolve.engine.local import follow_updates
from textevolve.errors import InputError
from textevolve.evaluation import GROUP, LABEL, ROW, Case
from textevolve.events import Event, StepFinished
from textevolve.json_texts import is_mapping, pack_value, unpack_value, write_text
from textevolve.judges.judge import Judge, parse_judge, require_absolute
from textevolve.ledger import log
from textevolve.llm.chains.chain import write_prompts
from textevolve.llm.chains.chat_template import write_text_template
from textevolve.llm.chains.langchain_prompts import find_langchain_prompt
from textevolve.llm.prompts import prompt_versions
from textevolve.llm.providers import context_of
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import (
    CalibrationContext,
    CalibrationPlan,
    CalibrationResult,
    Gain,
    Node,
    Placing,
    describe_outcome,
    describe_power,
)
from textevolve.loops.calibration.rewriting import characters_shown
from textevolve.loops.calibration.search import ROUND
from textevolve.loops.calibration.trial_runner import (
    Example,
    Material,
    count_groups,
    part_examples,
    take_examples,
)
from textevolve.mappings import drop_empty, omit, read_fields
from textevolve.metrics.label_metrics import needs_label, open_metric
from textevolve.metrics.plain import require_one_mark
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Branch,
    Column,
    Diff,
    Estimate,
    Report,
    Table,
    Texts,
    Tree,
)
from textevolve.rows import Placed, place_rows, read_rows
from textevolve.rows.columns import column_text
from textevolve.runs.chains import chains_among, reject_rehearsal
from textevolve.runs.estimate import open_editor, open_metric_of
from textevolve.runs.study import Asks, Row, Study, json_decoder, last_record, note_step, row_status
from textevolve.spans import loop_span
from textevolve.spec import option
from textevolve.studies.programs import OpenedProgram, keeps_rows, open_program
from textevolve.studies.rows import MappedSpec
from textevolve.user_code import OWN
from textevolve.wiring import Workbench

DEFAULT_JUDGE = "single"


class CalibrateSpec(CalibrationPlan, MappedSpec):
    """Search for a better prompt template, and take it only if its gain on held-out rows is real.

    Known elsewhere as automatic prompt optimisation with textual gradients and beam search
    (ProTeGi).
    """

    kind: ClassVar[str] = "calibrate"
    indivisible: ClassVar[bool] = True

    template: str = option(
        "",
        "A file with the prompt template, in which {names} are placeholders.",
        argument=True,
        text="file",
    )
    program: str | None = option(
        None,
        "A program to improve instead of a prompt: a chain's file, or MODULE:NAME or"
        " FILE.py:NAME of a chain, a function, a LangGraph graph or a DSPy module.",
        group="Program",
    )
    step: str | None = option(
        None, "The step of a chain to improve; default: all steps.", group="Advanced"
    )
    answer: str | None = option(
        None, "The name of the program's output that is scored.", group="Advanced"
    )
    data: str = option(
        "",
        "A file of rows with values for the placeholders, as JSONL, JSON, CSV or Parquet.",
        short="-d",
        group="Data",
        identity=False,
        reads=True,
    )
    label: str | None = option(
        None, "The column with the right answer, for a metric.", group="Data"
    )
    metric: str | None = option(
        None,
        "The metric that scores outputs: exact, contains, regex:PATTERN, MODULE:FUNCTION.",
        group="Judging",
    )
    judge: Judge | None = option(
        None,
        "The judge that scores outputs, such as probe+rules; default without a metric:"
        f" {DEFAULT_JUDGE}.",
        short="-j",
        group="Judging",
    )
    second_judge: Judge | None = option(
        None,
        "A second judge, which checks the result and has no influence on the search.",
        group="Advanced",
    )
    judge_model: str | None = option(
        None,
        "The model of judges that name none; default: the model of the study.",
        group="Advanced",
    )
    validation: float | None = option(
        None,
        "The share of the rows, from 0 to 1, that is held out for validation.",
        group="Advanced",
        gt=0,
        lt=1,
    )

    @property
    def most_calls(self) -> int | None:
        return self.budget

    @field_validator("template", mode="before", json_schema_input_type=str | dict[str, str])
    @classmethod
    def _write_templates(cls, template: Any) -> Any:
        saved = find_langchain_prompt(template, "the template")
        if saved is None and is_mapping(template):
            return write_prompts(template)
        if saved is None:
            return template
        if [message.role for message in saved.messages] != ["user"]:
            raise InputError(
                "the LangChain prompt has several messages, and calibrate improves one text: put"
                " its file into a step of a chain, and name the chain with --program"
            )

        return write_text_template(saved.messages[0].parts)

    @model_validator(mode="after")
    def _usable(self) -> CalibrateSpec:
        if self.program is not None and chains_among(self.model):
            raise InputError("--program and a chain as --model: give only one of the two")
        program = program_of(self)
        if not self.template.strip() and program is None:
            raise InputError("the template is blank: name a file with a prompt template")
        if self.step is not None and program is None:
            raise InputError("--step needs a chain: name the chain with --program")
        if self.answer is not None and program is None:
            raise InputError("--answer needs a program: name the program with --program")
        if self.judge is not None and self.metric is not None:
            raise InputError("--judge and --metric: give only one of the two")
        judge = judge_of(self)
        second_judge = second_judge_of(self)
        if second_judge is not None and second_judge == judge:
            raise InputError(
                "the second judge is the same as the first: name another judge, or another model"
            )

        for each in filter(None, (judge, second_judge)):
            require_absolute(each)
        if self.metric is not None and not self.metric.startswith(OWN):
            open_metric(self.metric)
            if needs_label(self.metric) and self.label is None:
                raise InputError(
                    f"metric {self.metric}: needs a label; name its column with --label"
                )

        return self


def program_of(spec: CalibrateSpec) -> str | None:
    """Return the name of the program whose templates are improved; None if a plain prompt is
    improved."""
    return spec.program or (None if spec.model == spec.plain_model else spec.model)


def judge_of(spec: CalibrateSpec) -> Judge | None:
    """Return the judge whose score the search optimises; None if a metric scores."""
    judge = spec.judge if spec.judge or spec.metric else parse_judge(DEFAULT_JUDGE)
    return judge and judge.with_model(spec.judge_model)


def second_judge_of(spec: CalibrateSpec) -> Judge | None:
    """Return the judge that only checks the result and that the search never uses; None if there is
    none."""
    return spec.second_judge and spec.second_judge.with_model(spec.judge_model)


def report(spec: CalibrateSpec, result: CalibrationResult) -> Report:
    several = len(result.templates) > 1
    subject = "a program" if several else "a prompt template"
    texts = list(result.templates.items()) if several else [("", result.template)]
    blocks: list[Block] = []
    if result.leader:
        # Even if they were not accepted.
        suffix = "" if result.accepted else ", which was not accepted"
        title = f"What template {result.leader} changes{{}}{suffix}"
        blocks += _changes(title, result.nodes[0], result.nodes[result.leader])
    if result.gain is not None:
        blocks.append(_validation(result, result.gain))
    blocks.append(Texts(f"The template{'s' * several} to use", texts))
    blocks.append(Tree("What was tried", [_grow(result, 0)]))
    groups = ""
    if any(result.groups):
        groups = f", in {result.groups[0]} and {result.groups[1]} independent groups"
    rows = f"{result.rows[0]} for training, {result.rows[1]} held out{groups}"
    if result.is_cross_fitted:
        rows = f"{result.rows[0]}, each for training and, once, held out (cross-fitting){groups}"
    facts = {
        **_list_demos(result.nodes[result.leader]),
        "Rows": rows,
        "Search": f"{wording.count(len(result.nodes), 'template')} in"
        f" {wording.count(result.rounds, 'round')}, {wording.count(result.tried, 'trial')}",
    }
    if spec.strategy == "protegi":
        without = "paraphrases" if spec.selection == "ucb" else "paraphrases and UCB bandits"
        facts["Method"] = f"ProTeGi without its {without}"

    return Report(f"Calibration of {subject}", describe_outcome(result), blocks, facts)


def _list_demos(node: Node) -> dict[str, str]:
    """Return a fact that names the rows that a template has as demonstrations, if any."""
    rows = ", ".join(wording.shorten(row, 30) for row in node.demos)
    return {"Demonstrations": f"rows {rows}"} if rows else {}


def _changes(title: str, before: Node, after: Node) -> list[Diff]:
    """Return the differences between the templates of two nodes; templates that did not change are
    left out. `title`: with a gap for the name of one of several templates."""
    old, new = before.templates, after.templates
    return [
        Diff(title.format(f" in {name}" * (len(old.names) > 1)), old[name], new[name])
        for name in old.names
        if name in new.names and old[name] != new[name]
    ]


def _validation(result: CalibrationResult, gain: Gain) -> Table:
    tested_name = f"template {result.tested or result.leader}"
    if result.is_cross_fitted:
        tested_name = "new templates"
    columns = (
        "by",
        Column("rows", "count"),
        Column(tested_name, "number", 3),
        Column("original", "number", 3),
        Column("difference", "number", 3),
        Column("p", "p_value"),
    )
    gains = {"what was optimised": gain, "second judge": result.second}
    tested = "On rows that the search has not seen."
    if result.is_cross_fitted:
        tested = "Each half of the rows under the best template of a search on the other half."
    note = (
        f"{tested} Interval: by sign flips. p: a one-sided exact"
        f" sign-flip test, which may be {gain.level:g} at most for the template to be accepted."
    )
    rows = [
        (
            by,
            gain.items,
            gain.first,
            gain.second,
            Estimate(gain.difference, gain.low, gain.high),
            gain.p,
        )
        for by, gain in gains.items()
        if gain is not None
    ]

    return Table("Validation", columns, rows, note=note)


def _grow(result: CalibrationResult, number: int) -> Branch:
    """Return a template as the root of a tree with all templates that were derived from it; each
    unfolds what it changed."""
    node = result.nodes[number]
    leads = node.number == result.leader and node.number != 0
    tone = "bad" if node.fault else ""
    latest = {placing.stage: placing for placing in node.placings}.values()
    scores = {_place(placing): placing.mean for placing in latest if placing.mean is not None}
    notes: list[str] = []
    if node.number in result.beam:
        notes.append("in the beam")
    if leads and result.accepted:
        notes.append("taken")
        tone = "good"
    elif leads:
        notes.append("leads")
    if node.operator:
        notes.append(node.operator)
    if node.fault:
        notes.append(f"dropped: {node.fault}")

    children = [Branch(instruction, tone="dim") for instruction in node.instructions]
    children += [_grow(result, child.number) for child in result.nodes if child.parent == number]
    name = "original" if node.parent is None else f"template {node.number}"
    changes = _changes("{}", result.nodes[node.parent or 0], node)

    return Branch(
        name, ", ".join(notes), tone, children, scores, facts=_list_demos(node), details=changes
    )


def _place(placing: Placing) -> str:
    """Name a selection, with the rows that have a score if some lack one."""
    where = "finals" if placing.stage == "finals" else f"round {placing.round}"
    of_all = f" ({placing.scored} of {placing.asked})" if placing.scored < placing.asked else ""
    return f"{where}{of_all}"


def flatten(result: CalibrationResult) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each template."""
    for node in result.nodes:
        yield {
            "template": node.number,
            **read_fields(node, "parent", "round", "text", "score"),
            "leads": node.number == result.leader,
            "fault": node.fault or None,
            "instructions": "\n".join(node.instructions),
        }


def ask(spec: CalibrateSpec) -> Asks:
    judges = tuple(filter(None, [judge_of(spec), second_judge_of(spec)]))
    models = () if spec.editor is None else (spec.editor,)
    programs = tuple(filter(None, [program_of(spec)]))
    metrics = () if spec.metric is None else (spec.metric,)
    return Asks(
        judges,
        models,
        True,
        prompt_versions("loops"),
        chains=programs,
        decides=spec.metric or judges[0].text,
        metrics=metrics,
    )


def _find_program(
    spec: CalibrateSpec, objects: Mapping[str, object], bench: Workbench | None = None
) -> OpenedProgram | None:
    name = program_of(spec)
    if name is None:
        return None
    return open_program(
        name,
        spec.template,
        objects,
        bench=bench,
        step=spec.step,
        answer=spec.answer,
        hidden=() if spec.label is None else (spec.label,),
    )


def read_cases(spec: CalibrateSpec, objects: Mapping[str, object] = {}) -> Iterator[Case]:
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    # A value is filled in as it stands.
    return cases_of(spec, read_rows(spec.data, "row", lambda _: True, spec.map), objects)


def cases_of(
    spec: CalibrateSpec, rows: Iterable[Placed], objects: Mapping[str, object] = {}
) -> Iterator[Case]:
    """Yield rows as cases: the values as JSON, the label, and the names of all columns but the
    label; equal rows are one case. `objects`: the caller's Python objects by name.

    Raises:
        InputError: the rows do not fit the template, or are too few to hold some out.
    """
    program = _find_program(spec, objects)
    template = program.templates.text if program else spec.template
    names = program and program.names
    examples, columns = take_examples(
        template,
        rows,
        label=spec.label,
        program=names,
        keep_rows=keeps_rows(program, spec.metric, objects),
    )
    labels = (
        Case("", (), example.id, reference=column_text(example.label))
        for example in examples
        if example.label is not None
    )
    for _ in require_one_mark(filter(None, (spec.metric,)), labels):
        pass  # each label is checked
    # Too few are rejected before a run is stored.
    part_examples(template, examples, columns, spec.label, spec.validation, names)

    for example in sorted(examples, key=lambda example: example.id):
        values = write_text(example.values)
        parameters = {LABEL: pack_value(example.label), "columns": list(columns)}
        parameters |= {} if example.row is None else {ROW: pack_value(example.row)}
        parameters |= drop_empty({GROUP: example.group})
        yield Case(values, (), example.id, parameters)


def take(spec: CalibrateSpec, rows: Any, objects: Mapping[str, object]) -> Iterator[Case]:
    """Return as cases the rows of the file that the specification names, or, without a file, those
    that a Python program passes (`rows`). `objects`: the caller's Python objects by name."""
    if spec.data:
        return read_cases(spec, objects)
    return cases_of(spec, place_rows(rows), objects)


def reads(_spec: CalibrateSpec) -> Callable[[Case], Case]:
    """Return a function that keeps the values of a row and its label, without the names of columns
    that the template does not show."""

    def keep(case: Case) -> Case:
        parameters = omit(case.parameters, ["columns"])
        return replace(case, parameters=parameters)

    return keep


def material_of(
    spec: CalibrateSpec,
    cases: Iterable[Case],
    program: OpenedProgram | None = None,
) -> Material:
    """Return the inputs of the search, restored from its cases: the template, and the rows divided
    into training and validation."""
    examples: list[Example] = []
    columns: tuple[str, ...] = ()

    for case in cases:
        parameters = case.parameters
        row = unpack_value(parameters.get(ROW))
        label = unpack_value(parameters[LABEL])
        group = parameters.get(GROUP, "")
        examples.append(Example(case.id, json.loads(case.input), label, row, group))
        columns = tuple(parameters["columns"])

    template = program.templates.text if program else spec.template
    fixed_values = program and program.names

    return part_examples(template, examples, columns, spec.label, spec.validation, fixed_values)


async def run(
    spec: CalibrateSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[CalibrationResult]:
    """Yield the state of the search after each round, and the final state."""
    reject_rehearsal(bench, program_of(spec))
    program = _find_program(spec, bench.objects, bench)
    material = material_of(spec, cases, program)
    judge = judge_of(spec)
    second_judge = second_judge_of(spec)
    if bench.is_live and (few := describe_power(count_groups(material.validation))):
        log.warning(few)
    editor = bench.model if spec.editor is None else bench.model_of(spec.editor)

    async def work(show: Any) -> CalibrationResult:
        def hear(event: Event) -> None:
            if isinstance(event, StepFinished) and event.step == ROUND:
                show(event.value)
            bench.listener(event)

        context = CalibrationContext(
            generator=bench.model,
            editor=open_editor(bench, editor, "template", material.template),
            evaluator=bench.whole_judge_of(judge) if judge else None,
            metric=None if spec.metric is None else open_metric_of(bench, spec.metric),
            second_judge=bench.whole_judge_of(second_judge) if second_judge else None,
            concurrency=bench.concurrency,
            time_limit=bench.seconds_left,
            listener=hear,
            program=program,
            shown=characters_shown(context_of(spec.editor or bench.default_model, bench.settings)),
        )
        with loop_span("calibrate", input=material.template) as here:
            outcome = await search_template(material, spec, context)
            here.note(**_describe_decision(outcome), output=outcome.template)
            return outcome

    async for result in follow_updates(work):
        yield result


def _describe_decision(result: CalibrationResult) -> dict[str, object]:
    """Describe for traces the decision between the best template and the original; `score` is the
    best template's, and `baseline` the original's, on the held-out rows alone."""
    facts: dict[str, object] = {"status": result.stopped, "reason": result.reason or None}
    facts |= {"accepted": result.accepted, "passed": result.accepted}
    if (gain := result.gain) is None:
        return facts
    facts |= {"score": gain.first, "baseline": gain.second, "gain": gain.difference}
    return facts | {"low": gain.low, "high": gain.high, "p": gain.p, "rows": gain.items}


def find_row(result: CalibrationResult) -> Row:
    return Row(
        "search",
        score=result.score,
        status=row_status(result.stopped),
        reason=result.reason,
        trials=(result.missing, result.tried),
        missing=result.describe_missing(),
    )


def data(spec: CalibrateSpec, result: CalibrationResult) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "accepted": result.accepted,
        "template": result.template,
        "templates": result.templates,
        "sentence": describe_outcome(result),
        **_drop_groups(asdict(result)),
        "gain": result.gain and _drop_groups(asdict(result.gain)),
        "second": result.second and _drop_groups(asdict(result.second)),
        "nodes": [{"text": node.text, **asdict(node)} for node in result.nodes],
    }


def _drop_groups(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures without their numbers of groups where each row is a group."""
    return {
        name: value
        for name, value in figures.items()
        if name != "groups" or value not in (0, (0, 0))
    }


def note(event: Event) -> str | None:
    """Describe a step of the search that starts, or a round that has ended, in one line; None for
    other events."""
    if isinstance(event, StepFinished) and event.step == ROUND and not event.case:  # of no debate
        return _note_round(event.value)
    return note_step(event)


def _note_round(result: CalibrationResult) -> str:
    """Describe the best template so far at the end of a round, in one line."""
    best = wording.number(result.nodes[result.leader].score, 3)
    name = f"template {result.leader}" if result.leader else "the original"
    return f"round {result.rounds}: of {len(result.nodes)} templates {name} leads ({best})"


STUDY = Study(
    spec=CalibrateSpec,
    cases=read_cases,
    take=take,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(CalibrationResult),
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
    note=note,
    reads=reads,
    texts={
        ".txt": lambda _spec, result: result.template,  # as it was measured
        **dict.fromkeys((".yaml", ".yml"), lambda _spec, result: write_prompts(result.templates)),
    },
)
