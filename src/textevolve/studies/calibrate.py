"""Calibrate (prompt optimisation): a better prompt template, found on rows of values for it.

The search is in `textevolve.loops.calibration`; the gain on held-out rows is told with an interval.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from textevolve.engine.local import follow
from textevolve.errors import InputError
from textevolve.estimates.calibration import Judging, estimate_calibration
from textevolve.estimates.debate import PriceOf, UsageRange
from textevolve.evaluation import Case
from textevolve.events import Event, StepFinished, StepStarted
from textevolve.judge_specs import split_rules
from textevolve.llm.providers import context_of
from textevolve.loops.attempt import prompts_version
from textevolve.loops.calibration.examples import (
    Example,
    Material,
    require_names,
    split_examples,
    take_material,
)
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import CalibrationContext
from textevolve.loops.calibration.program import plain_prompt
from textevolve.loops.calibration.rewriting import characters_shown
from textevolve.loops.calibration.search import ROUND
from textevolve.loops.calibration.tree import CalibrationResult, Gain, describe_outcome
from textevolve.loops.calibration.trial_runner import STAGE, TRIAL
from textevolve.loops.calibration.validation import weigh_chances
from textevolve.report import wording
from textevolve.rows import Placed, read_rows
from textevolve.statistics.comparisons import difference_interval
from textevolve.studies.calibrate_report import flatten, report
from textevolve.studies.calibrate_spec import CalibrateSpec, judges_asked, program_of
from textevolve.studies.chained import refuse_estimate
from textevolve.studies.programs import (
    OpenedProgram,
    keeps_rows,
    open_program,
    write_templates,
)
from textevolve.studies.study import Asks, LoopSteps, Row, Study, json_codec
from textevolve.wiring import Workbench

STAGES = {
    "outputs": "outputs are generated and scored",
    "judge": "cases are judged",
    "instructions": "lists of instructions are written",
    "successors": "new templates are written",
    "reflections": "new templates are written",
}


def ask(spec: CalibrateSpec) -> Asks:
    prompts = {f"loops.{name}": version for name, version in prompts_version().items()}
    judges = tuple(judge for judge in judges_asked(spec) if judge is not None)
    models = () if spec.editor is None else (spec.editor,)
    programs = tuple(filter(None, [program_of(spec)]))
    return Asks(judges, models, True, prompts, chains=programs)


def _find_program(
    spec: CalibrateSpec, objects: Mapping[str, object], bench: Workbench | None = None
) -> OpenedProgram | None:
    name, hidden = program_of(spec), () if spec.label is None else (spec.label,)
    if name is None:
        return None
    more: dict[str, Any] = {"step": spec.step, "answer": spec.answer, "hidden": hidden}
    return open_program(name, spec.template, objects, bench=bench, **more)


def read_cases(spec: CalibrateSpec, objects: Mapping[str, object] = {}) -> Iterator[Case]:
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    # A value is filled in as it stands.
    return cases_of(spec, read_rows(spec.data, "row", lambda _: True, spec.map), objects)


def cases_of(
    spec: CalibrateSpec, rows: Iterable[Placed], objects: Mapping[str, object] = {}
) -> Iterator[Case]:
    """Rows as cases: the values as JSON, the label, and the names of all columns but that one.
    `objects`: what the program put in.

    Raises:
        InputError: the rows do not fit the template.
    """
    program = _find_program(spec, objects)
    material = take_material(
        program.templates.text if program else spec.template,
        rows,
        label=spec.label,
        validation=spec.validation,
        program=program and program.given,
        group=spec.group,
        keep_rows=keeps_rows(program, spec.metric, objects),
    )
    for example in sorted(material.examples, key=lambda example: example.id):
        values = json.dumps(example.values, ensure_ascii=False)
        parameters = {"label": example.label, "columns": list(material.columns)}
        parameters |= {} if example.group is None else {"group": example.group}
        parameters |= {} if example.row is None else {"row": example.row}
        yield Case(values, (), example.id, parameters)


def material_of(
    spec: CalibrateSpec,
    cases: Iterable[Case],
    program: OpenedProgram | None = None,
) -> Material:
    """What `cases_of` made cases of."""
    examples: list[Example] = []
    columns: tuple[str, ...] = ()
    for case in cases:
        given = case.parameters
        more = given.get("group"), given.get("row")
        examples.append(Example(case.id, json.loads(case.input), given["label"], *more))
        columns = tuple(case.parameters["columns"])
    template = (program.templates.text if program else spec.template).replace("\r\n", "\n")
    labels, given = () if spec.label is None else (spec.label,), program and program.given
    names = require_names(template, (*columns, *labels), given)
    training, validation = split_examples(examples, spec.validation)
    slots = given.slots if given is not None and given.whole else ()
    return Material(template, names, columns, tuple(training), tuple(validation), slots)


async def run(
    spec: CalibrateSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[CalibrationResult]:
    """The search after each round, and at its end."""
    program = _find_program(spec, bench.objects, bench)
    material = material_of(spec, cases, program)
    first, second = judges_asked(spec)
    if bench.mode == "live" and (chances := weigh_chances(spec, material)).poor:
        logging.getLogger("textevolve").warning(chances.sentence)

    def work(show: Any) -> Any:
        def hear(event: Event) -> None:
            if isinstance(event, StepFinished) and event.step == ROUND:
                show(event.value)
            bench.listener(event)

        context = CalibrationContext(
            generator=bench.model,
            editor=bench.model if spec.editor is None else bench.model_of(spec.editor),
            compare=lambda ours, theirs: compare_scores(ours, theirs, spec.seed),
            evaluator=bench.whole_judge_of(first) if first else None,
            metric=None if spec.metric is None else bench.metric_of(spec.metric),
            second_judge=bench.whole_judge_of(second) if second else None,
            concurrency=bench.concurrency,
            time_limit=bench.seconds_left,
            listener=hear,
            program=program,
            shown=characters_shown(context_of(spec.editor or bench.default_model, bench.settings)),
        )
        return search_template(material, spec, context)

    async for found in follow(work):
        yield found


def compare_scores(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Gain:
    """The mean difference of what has both scores, with its paired interval; no test."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not math.isnan(a + b)]
    none, rows = math.nan, len(first)
    scored = [sum(not math.isnan(score) for score in side) for side in (first, second)]
    if not pairs:
        return Gain(none, none, none, none, none, none, 0, rows, *scored)
    ours, theirs = zip(*pairs, strict=True)
    ends = difference_interval(ours, theirs, seed=seed)
    means = sum(ours) / len(ours), sum(theirs) / len(theirs)
    gap = means[0] - means[1]
    return Gain(*means, gap, ends.low, ends.high, none, len(pairs), rows, *scored)


def find_row(found: CalibrationResult) -> Row:
    status = {"budget": "skipped", "failed": "failed"}.get(found.stopped, "scored")
    score = found.nodes[found.leader].score
    return Row("search", score=score, status=cast(Any, status), reason=found.reason)


def summarise(_spec: CalibrateSpec, records: Iterable[CalibrationResult]) -> CalibrationResult:
    """The last that was shown of the search."""
    *_, last = records
    return last


def data(spec: CalibrateSpec, found: CalibrationResult) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "accepted": found.accepted,
        "template": found.template,
        "templates": found.templates,
        "sentence": describe_outcome(found),
        **asdict(found),
        "nodes": [{"text": node.text, **asdict(node)} for node in found.nodes],
    }


def estimate(
    spec: CalibrateSpec, cases: Sequence[Case], model: str, price_of: PriceOf
) -> UsageRange:
    """A bound, by a formula: no rehearsal finds the search that goes on for longest.

    Raises:
        InputError: a chain stands for the model: nobody knows how many calls it makes.
    """
    refuse_estimate(program_of(spec))
    first, second = (judge and split_rules(judge)[1] for judge in judges_asked(spec))
    judging = Judging(first, second, asked=spec.metric is None)
    return estimate_calibration(material_of(spec, cases), spec, judging, model, price_of)


def note(event: Event) -> str | None:
    """A stage that starts, or a round that has ended, in one line."""
    if isinstance(event, StepStarted) and event.step == STAGE:
        stage = str(event.details["stage"])
        return f"{event.details['pieces']} {STAGES.get(stage, stage)}"
    if isinstance(event, StepFinished) and event.step == ROUND and not event.case:  # of no debate
        return _note_round(event.value)
    return None


def _note_round(found: CalibrationResult) -> str:
    """What a round made, and which templates it kept."""
    made = [node for node in found.nodes if node.round == found.rounds and node.parent is not None]
    dropped = sum(bool(node.fault) for node in made)
    kept = ", ".join(
        f"{n} ({wording.number(found.nodes[n].score, 3)})" if n else "the original"
        for n in found.beam
    )
    said = f", {dropped} of them dropped" if dropped else ""
    count = wording.count(len(made), "new template")
    return f"round {found.rounds}: {count}{said}; in the beam: {kept}"


encode, _decode = json_codec(CalibrationResult)


def decode(record: bytes) -> CalibrationResult:
    """Also of a run from when every program was a single template."""
    found = json.loads(record)
    for node in found["nodes"]:
        if "text" in node:
            node["templates"] = asdict(plain_prompt(node.pop("text")))
    return _decode(json.dumps(found).encode())


def _write_texts(spec: CalibrateSpec, found: CalibrationResult) -> Mapping[str, str]:
    return write_templates(program_of(spec), found)


STUDY = Study(
    spec=CalibrateSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
    whole=True,
    note=note,
    steps=LoopSteps(
        {STAGE: "generate", "outputs": "evaluate", "judge": "evaluate"}, piece=TRIAL, round=ROUND
    ),
    estimate=estimate,
    text_endings=(".txt", ".yaml", ".yml"),
    texts=_write_texts,
)
