"""Compare prompts, models and outputs on your own rows: a matrix of rows and variants, each scored.

The specification is in `compare_spec`, a cell is filled in `compare_cells`; what all cells come to
is found in `compare_figures` and shown in `compare_report`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from textevolve.engine.local import stream
from textevolve.evaluation import Case, Failure
from textevolve.events import RecordsExpected
from textevolve.images import image_reference
from textevolve.llm.chains.chain import Chain
from textevolve.llm.model import Request
from textevolve.studies.chained import chains_among, open_chain_named
from textevolve.studies.compare_cells import (
    Output,
    Planned,
    Scorers,
    fill_cells,
    input_column,
    read_cases,
    take_rows,
)
from textevolve.studies.compare_report import (
    data,
    find_row,
    flatten,
    matrix_rows,
    report,
    summarise,
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
from textevolve.studies.study import Asks, Study, json_codec
from textevolve.wiring import Workbench


def ask(spec: CompareSpec) -> Asks:
    judges, chains = tuple(with_models(spec).values()), chains_among(*spec.models)
    models = tuple(model for model in spec.models if model not in chains)
    return Asks(judges, models, writes=bool(spec.prompts) and not models, chains=chains)


def plan_rows(
    spec: CompareSpec,
    cases: Sequence[Case],
    default_model: str,
    chains: Mapping[str, Chain],
    first: int = 0,
) -> Iterator[list[Planned]]:
    """The cells of each row, sample by sample. `chains`: by their names. `first`: the place of the
    first row.

    Raises:
        InputError: no variant is called like the baseline.
    """
    number = itertools.count(_count_cells(spec, first))
    variants = [
        one if one.chain else replace(one, model=one.model or default_model)
        for one in variants_of(spec)
    ]
    baseline = baseline_of(spec, variants)
    for case in cases:
        values: Mapping[str, str] = json.loads(case.input)
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
    if variant.prompt is None:
        text = case.candidates[spec.outputs.index(variant.column)]
        why = Failure("failed", f"the column '{variant.column}' is empty in this row")
        failure = None if text.strip() else why
        named = replace(empty, variant=variant.name, text=text, failure=failure)
        return Planned(named, values=values)
    request = Request(
        messages=variant.prompt.fill(values, spec.system, case.images),
        temperature=spec.temperature,
        max_tokens=spec.max_output_tokens,
        seed=spec.seed,
        sample=empty.sample,
    )
    named = replace(empty, variant=variant.name, prompt=variant.prompt.name, model=variant.model)
    return Planned(named, request, values=values)


def _show_input(spec: CompareSpec, baseline: Variant | None, values: Mapping[str, str]) -> str:
    """What judges and people see as the input of a row."""
    column = input_column(spec, values)
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


_encode, decode = json_codec(Output)


def encode(output: Output) -> bytes:
    return _encode(replace(output, images=tuple(map(image_reference, output.images))))


STUDY = Study(
    spec=CompareSpec,
    cases=read_cases,
    take=take_rows,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    independent=lambda _spec: True,
    variants=lambda spec, _model: [variant.name for variant in variants_of(spec)],
    rows=matrix_rows,
)
