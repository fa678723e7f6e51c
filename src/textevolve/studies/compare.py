"""Compare prompts, models and outputs on your own rows: a matrix of rows and variants, each scored.

The specification is in `compare_spec`, a cell is filled in `compare_cells`; what all cells come to
is found in `compare_figures` and shown in `compare_report`.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any

from textevolve.engine.local import stream
from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure, Usage
from textevolve.events import RecordsExpected
from textevolve.images import image_reference
from textevolve.judge_specs import parse_evaluator, split_rules
from textevolve.llm.chains.chain import Chain
from textevolve.llm.model import Request
from textevolve.rows import Placed, Renaming, read_rows
from textevolve.rows.images import ImageReading, read_images
from textevolve.studies.chained import chains_among, open_chain_named
from textevolve.studies.columns import Columns
from textevolve.studies.compare_cells import Output, Planned, Scorers, fill_cells
from textevolve.studies.compare_figures import summarise
from textevolve.studies.compare_report import data, find_row, flatten, matrix_rows, report
from textevolve.studies.compare_spec import (
    CompareSpec,
    Variant,
    baseline_of,
    decides,
    judges_of,
    together_of,
    variants_of,
    with_models,
)
from textevolve.studies.datasets import folder_of, image_reading
from textevolve.studies.study import Asks, Study, json_codec
from textevolve.user_code import OWN
from textevolve.wiring import Workbench

INPUTS = ("input", "prompt", "question", "instruction")
"""Columns of which the first that there is stands for the input, where no prompt is compared."""


def ask(spec: CompareSpec) -> Asks:
    judges, chains = tuple(with_models(spec).values()), chains_among(*spec.models)
    models = tuple(model for model in spec.models if model not in chains)
    return Asks(judges, models, writes=bool(spec.prompts) and not models, chains=chains)


def name_variants(spec: CompareSpec, _model: str) -> list[str]:
    """What `Row.variant` may be; of outputs of an earlier run it is not known before."""
    return [variant.name for variant in variants_of(spec)]


def read_cases(spec: CompareSpec) -> Iterator[Case]:
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    reading = image_reading(spec)

    def opened(file: str) -> None:
        nonlocal reading
        reading = replace(reading, folder=folder_of(file))

    rows = read_rows(spec.data, "row", lambda _: True, spec.map, opened=opened)
    yield from row_cases(spec, (_with_images(spec, *placed, reading) for placed in rows))


def _with_images(
    spec: CompareSpec, where: str, row: Mapping[str, Any], reading: ImageReading
) -> Placed:
    """The row with data URLs in its columns of images."""
    read = {
        name: read_images(row[name], f"{where}: '{name}'", reading)
        for name in spec.images
        if name in row
    }
    return where, {**row, **read}


def take_rows(spec: CompareSpec, rows: Iterable[Mapping[str, Any]]) -> Iterator[Case]:
    """A case for each row from Python, its columns renamed as those of a file are."""
    renaming = Renaming(spec.map)
    reading = image_reading(spec)
    renamed = [
        _with_images(spec, f"row {n}", renaming(row), reading) for n, row in enumerate(rows, 1)
    ]
    renaming.refuse_unused()
    return row_cases(spec, renamed)


def row_cases(spec: CompareSpec, rows: Iterable[Placed]) -> Iterator[Case]:
    """A case for each row: its columns as JSON, the outputs that it has, and its label.

    Raises:
        InputError: the rows do not fit the specification; says where, and which columns there are.
    """
    placed = list(rows)
    if not placed:
        raise InputError(f"{spec.data or 'data'}: has no rows")
    columns = list(dict.fromkeys(str(n) for _, row in placed for n in row if str(n).strip()))
    _check_needs(spec, columns)
    own, taken = _check_columns(spec, columns), _take_columns(spec, columns)
    if spec.samples > 1 and spec.temperature == 0 and spec.prompts:
        told = "samples at temperature 0 hardly differ: set --temperature, such as 0.7"
        logging.getLogger("textevolve").warning(told)
    seen = dict[str, int]()
    for number, (where, row) in enumerate(placed, 1):
        label = None if spec.label is None else row.get(spec.label)
        if spec.label is not None and label is None:
            raise InputError(f"{where}: the label '{spec.label}' is missing")
        images = tuple(url for name in spec.images for url in row.get(name, ()))
        shown = {**row, **_name_images(spec, row)}
        values = json.dumps({name: _text(shown.get(name)) for name in own}, ensure_ascii=False)
        given = tuple(_text(row.get(column)) for column in spec.outputs)
        id = str(row.get("id", number))
        taken.note_unread(row, taken.taken)
        taken.note_id(id)
        seen[id] = seen.get(id, 0) + 1
        id = id if seen[id] == 1 else f"{id} ({seen[id]})"  # so that none takes another's place
        reference = None if label is None else _text(label)
        context = None if spec.context is None else _text(row.get(spec.context)) or None
        yield Case(values, given, id, reference=reference, context=context, images=images)
    taken.tell(reference=True)


def _name_images(spec: CompareSpec, row: Mapping[str, Any]) -> dict[str, str]:
    """What stands in the place of a column of images, where a prompt names it."""
    named, number = dict[str, str](), 0
    for name in spec.images:
        first, number = number + 1, number + len(row.get(name, ()))
        named[name] = " ".join(f"(image {n})" for n in range(first, number + 1))
    return named


def _take_columns(spec: CompareSpec, columns: Sequence[str]) -> Columns:
    """What each column is read as; those of a prompt are what its placeholders name."""
    found, shown = Columns(), _input_column(spec, columns)
    roles = [("id", "id")]
    roles += [(n, "prompt") for prompt in spec.prompts for n in prompt.placeholders(columns)]
    roles += [(shown, "input"), (spec.context or "", "context"), (spec.label or "", "label")]
    roles += [(column, "output") for column in spec.outputs]
    roles += [(column, "images") for column in spec.images]
    for name, role in roles:
        if name in columns:
            found.take(name, role)
    return found


def _input_column(spec: CompareSpec, columns: Collection[str]) -> str:
    """The column that judges and people see as the input; "" where a prompt is filled in for it."""
    if spec.input is not None or spec.prompts:
        return spec.input or ""
    return next((name for name in INPUTS if name in columns), "")


def _check_needs(spec: CompareSpec, columns: Sequence[str]) -> None:
    """
    Raises:
        InputError: a judge could score no output without a column that is not named.
    """
    for judge in judges_of(spec):
        _, asked = split_rules(judge)
        needs = () if asked is None else parse_evaluator(asked).needs
        given = {"context": ("--context", spec.context), "reference": ("--label", spec.label)}
        for need, (flag, column) in given.items():
            if need in needs and column is None:
                raise InputError(
                    f"judge {judge} needs a {need}: name its column with {flag}; columns:"
                    f" {', '.join(columns)}"
                )


def _check_columns(spec: CompareSpec, columns: Sequence[str]) -> list[str]:
    """The columns that prompts may show: all but the label and outputs.

    Raises:
        InputError: a column is named that there is not, or a prompt shows none.
    """
    named = {"--label": (spec.label,), "--input": (spec.input,), "--context": (spec.context,)}
    named |= {"--outputs": spec.outputs, "--images": spec.images}
    for flag, wanted in named.items():
        for column in wanted:
            if column is not None and column not in columns:
                there = ", ".join(columns)
                raise InputError(f"{flag}: no row has the column '{column}'; columns: {there}")
    own = [name for name in columns if name not in (spec.label, *spec.outputs)]
    for name in chains_among(*spec.models):
        if not name.startswith(OWN):
            open_chain_named(name, {}).take_inputs(dict.fromkeys(own, ""), others=True)
    for prompt in spec.prompts:
        if not prompt.placeholders(own) and not spec.images:
            raise InputError(
                f"prompt {prompt.name}: has no placeholder that the rows have a value for; columns:"
                f" {', '.join(own)}"
            )
    shown = spec.prompts or chains_among(*spec.models) or _input_column(spec, own)
    if not shown and judges_of(spec):
        raise InputError(
            "judges need an input to judge by: name its column with --input; columns:"
            f" {', '.join(columns)}"
        )
    return own


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_KEPT = ("variant", "prompt", "model", "sample", "cut", "seconds")


def take_again(output: Output) -> Case:
    """An output of an earlier run as a case of this one."""
    kept = {name: getattr(output, name) for name in _KEPT}
    failed = output.failure.reason if output.failure and not output.text else None
    parameters = {**kept, "usage": asdict(output.usage), "failed": failed}
    return Case(
        *(output.input, (output.text,), output.row, parameters, output.reference, output.context),
        images=output.images,
    )


def _restore(case: Case, position: int) -> Output:
    told = case.parameters
    kept = {name: told[name] for name in _KEPT}
    failure = None if told["failed"] is None else Failure("failed", told["failed"])
    return Output(
        position,
        case.id,
        **kept,
        input=case.input,
        reference=case.reference,
        context=case.context,
        images=case.images,
        text=case.candidates[0],
        failure=failure,
        usage=Usage(**told["usage"]),
    )


def plan_rows(
    spec: CompareSpec, cases: Sequence[Case], default_model: str, chains: Mapping[str, Chain]
) -> Iterator[list[Planned]]:
    """The cells of each row, sample by sample. `chains`: by their names.

    Raises:
        InputError: no variant is called like the baseline.
    """
    number = itertools.count()
    if spec.outputs_of is not None:
        kept = dict.fromkeys(str(case.parameters["variant"]) for case in cases)
        baseline_of(spec, [Variant(name) for name in kept])
        for _, same in itertools.groupby(cases, key=lambda case: case.id):
            yield [Planned(_restore(case, next(number))) for case in same]
        return
    variants = [
        one if one.chain else replace(one, model=one.model or default_model)
        for one in variants_of(spec)
    ]
    baseline = baseline_of(spec, variants)
    for case in cases:
        values: Mapping[str, str] = json.loads(case.input)
        asked = _show_input(spec, baseline, values)
        blank = Output(
            *(0, case.id, ""),
            input=asked,
            reference=case.reference,
            context=case.context,
            images=case.images,
        )

        def placed(sample: int, blank: Output = blank) -> Output:
            return replace(blank, position=next(number), sample=sample)

        yield [
            _plan_chain(chains[variant.chain], values, variant, placed(sample))
            if variant.chain
            else _plan(spec, case, values, variant, placed(sample))
            for sample in range(spec.samples)
            for variant in variants
            if sample == 0 or not variant.column
        ]


def _plan(
    spec: CompareSpec, case: Case, values: Mapping[str, str], variant: Variant, empty: Output
) -> Planned:
    if variant.prompt is None:
        text = case.candidates[spec.outputs.index(variant.column)]
        why = Failure("failed", f"the column '{variant.column}' is empty in this row")
        failure = None if text.strip() else why
        return Planned(replace(empty, variant=variant.name, text=text, failure=failure))
    request = Request(
        messages=variant.prompt.fill(values, spec.system, case.images),
        temperature=spec.temperature,
        max_tokens=spec.max_output_tokens,
        seed=spec.seed,
        sample=empty.sample,
    )
    named = replace(empty, variant=variant.name, prompt=variant.prompt.name, model=variant.model)
    return Planned(named, request)


def _plan_chain(
    chain: Chain, values: Mapping[str, str], variant: Variant, empty: Output
) -> Planned:
    return Planned(replace(empty, variant=variant.name), chain=chain, values=values)


def _show_input(spec: CompareSpec, baseline: Variant | None, values: Mapping[str, str]) -> str:
    """What judges and people see as the input of a row."""
    column = _input_column(spec, values)
    if column:
        return values[column]
    prompt = baseline.prompt if baseline is not None else None
    prompt = prompt or next(iter(spec.prompts), None)
    return prompt.show(values) if prompt else json.dumps(values, ensure_ascii=False)


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
    )


async def run(spec: CompareSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Output]:
    """Each cell as soon as it is filled; what is judged side by side comes together."""
    read, scorers = list(cases), open_scorers(spec, bench)
    chains = {n: open_chain_named(n, bench.objects) for n in chains_among(*spec.models)}
    for case, chain in itertools.product(read if chains else (), chains.values()):
        chain.take_inputs(json.loads(case.input), others=True)  # said before anything is asked
    bench.listener(RecordsExpected(_count_cells(spec, len(read))))
    together, per_row = bool(scorers.together), len(spec.prompts) * max(1, len(spec.models))
    rows = plan_rows(spec, read, bench.default_model, chains)
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
    if spec.outputs_of is not None:
        return cases
    generated = sum(spec.samples for variant in variants_of(spec) if not variant.column)
    return cases * (generated + len(spec.outputs))


def _groups(row: Sequence[Planned], *, together: bool) -> Iterator[list[Planned]]:
    """What is filled at once: a cell, or all outputs of a row that are judged side by side."""
    if not together:
        yield from ([planned] for planned in row)
        return
    for _, same in itertools.groupby(row, key=lambda planned: planned.empty.sample):
        yield list(same)


_encode, decode = json_codec(Output)


def encode(output: Output) -> bytes:
    return _encode(replace(output, images=tuple(map(image_reference, output.images))))


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
    data=data,
    flat=flatten,
    earlier=lambda spec: spec.outputs_of,
    again=take_again,
    variants=name_variants,
    aggregates=False,
    rows=matrix_rows,
)
