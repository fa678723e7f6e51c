"""The chain study: it runs a chain (a sequence of model calls and functions) once, or on each row
of a file, and stores its outputs and the trace of its steps.

`textevolve.llm.chains.chain` runs the chain itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pydantic_core import to_jsonable_python

from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Failure, Result, Usage, empty_default, error_of, failure_of
from textevolve.llm.chains.chain import check_templates
from textevolve.llm.chains.chat_template import unwrap_messages, value_text
from textevolve.llm.chains.scope import StepTrace, TraceRecorder
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Report, Section, Texts, Tree
from textevolve.rows import Placed, place_rows, read_rows
from textevolve.rows.columns import Columns
from textevolve.runs.chains import ask_chain, open_chain_named
from textevolve.runs.study import Asks, Row, Study, json_decoder, record_reason, row_of
from textevolve.spans import span
from textevolve.spec import NonEmpty, option
from textevolve.studies.row_values import DRAW, Draws, is_random, keep_values
from textevolve.studies.rows import MappedSpec, RowNames, keep_columns
from textevolve.user_code import OWN
from textevolve.wiring import Workbench


class ChainSpec(MappedSpec):
    """Run a chain on given values, or on each row of a file, and store its outputs and traces."""

    kind: ClassVar[str] = "chain"
    scored: ClassVar[bool] = False

    chain: NonEmpty = option(
        description="A chain: FILE.yaml, MODULE:NAME or FILE.py:NAME.", argument=True
    )
    input: Mapping[str, str] = option(
        {},
        "The value of an input of the chain, as NAME=VALUE. Repeatable.",
        short="-i",
        group="Data",
        identity=False,
    )
    data: str = option(
        "",
        "A file of rows as JSONL, JSON, CSV or Parquet, with a column for each input.",
        short="-d",
        group="Data",
        identity=False,
        reads=True,
    )


@dataclass(frozen=True, slots=True)
class ChainRun:
    """The result of a chain on one row.

    Attributes:
        inputs: The values of the row that the chain received.
        outputs: The outputs as JSON-ready values; empty if there is a `failure`.
        trace: The trace of all steps that were started.
    """

    position: int
    id: str
    inputs: Mapping[str, Any]
    trace: StepTrace
    outputs: Mapping[str, Any] = empty_default(dict)
    failure: Failure | None = None


@dataclass(frozen=True)
class ChainRuns(Result):
    """All runs of a chain, in the order of the rows."""

    chain: str
    runs: tuple[ChainRun, ...]

    @property
    def usage(self) -> Usage:
        return sum((run.trace.usage for run in self.runs), Usage())

    @property
    def failed(self) -> int:
        return sum(run.failure is not None for run in self.runs)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The outputs of a single run.

        Raises:
            AnswerError: the run failed; has the reason. BudgetError: a limit was reached first.
        """
        (run,) = self.runs
        if run.failure is not None:
            raise error_of(run.failure)

        return run.outputs


def ask(spec: ChainSpec) -> Asks:
    return Asks(chains=(spec.chain,))


def read_cases(spec: ChainSpec, objects: Mapping[str, object] = {}) -> Iterator[Case]:
    if spec.data and spec.input:
        raise InputError("give either --input or --data")
    if spec.data:
        rows = read_rows(spec.data, "row", lambda _: True, spec.map)
        return chain_cases(spec, rows, objects)
    return chain_cases(spec, [("input", spec.input)], objects)


def chain_cases(
    spec: ChainSpec, rows: Iterable[Placed], objects: Mapping[str, object]
) -> Iterator[Case]:
    """Yield a case for each row, with its columns as JSON. `objects`: the caller's Python objects
    by name; the chain may be one of them.

    Raises:
        InputError: there is no row, an input is missing, or a value cannot be written as JSON.
    """
    chain = open_chain_named(spec.chain, objects)
    names = RowNames()
    number = 0
    read_rows_only = Columns().watch(rows, ("id", *chain.inputs))
    draws = Draws()
    checked: set[tuple[str, ...]] = set()

    for number, (where, row) in enumerate(read_rows_only, 1):
        inputs = {str(name): value for name, value in row.items() if value is not None}
        try:
            if tuple(inputs) not in checked:
                check_templates(chain, tuple(inputs))
                checked.add(tuple(inputs))
            chain.take_inputs(inputs, others=True)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

        try:
            values = json.dumps(to_jsonable_python(inputs), ensure_ascii=False)
        except ValueError as error:
            raise InputError(f"{where}: a value cannot be stored: {error}") from None

        draw = 0
        if is_random(chain):
            question = tuple(value_text(inputs[name]) for name in chain.inputs if name in inputs)
            draw = draws.number([question])
        yield Case(
            values,
            (),
            names.name(row, number),
            keep_values(row, None, whole=False, draw=draw),
        )

    if not number:
        raise InputError("the data has no rows")


def take(spec: ChainSpec, rows: Any, objects: Mapping[str, object]) -> Iterator[Case]:
    """Return the rows of a Python program as cases, or the rows of the file that the specification
    names. The chain may be one of the program's `objects`."""
    if spec.data:
        return read_cases(spec, objects)
    return chain_cases(spec, place_rows(rows), objects)


def reads(spec: ChainSpec) -> Callable[[Case], Case]:
    """Return a function that keeps the columns of a row that are inputs of the chain. A chain of
    the caller's program may read more, and keeps them all."""
    if spec.chain.startswith(OWN):
        return keep_columns
    names = tuple(open_chain_named(spec.chain, {}).inputs)
    return partial(keep_columns, choose=lambda _: names)


def run(spec: ChainSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[ChainRun]:
    """Run the chain on each row, and yield the result of each."""
    chain = open_chain_named(spec.chain, bench.objects)
    listed_cases = list(cases)

    async def work(placed: tuple[int, Case]) -> ChainRun:
        position, case = placed
        values = json.loads(case.input)
        inputs = {name: values[name] for name in chain.inputs}
        spent = TraceRecorder(chain.name, "chain")

        try:
            bench.require_time()
            with span("case", f"case {case.id}", input=inputs) as here:
                outputs = await ask_chain(
                    bench, chain, values, spent, case.id, sample=case.parameters.get(DRAW, 0)
                )
                here.note(output=outputs)
        except FatalModelError:
            raise
        except (ModelError, BudgetError) as error:
            return ChainRun(position, case.id, inputs, spent.trace, failure=failure_of(error))

        json_outputs = to_jsonable_python(unwrap_messages(outputs), serialize_unknown=True)

        return ChainRun(position, case.id, inputs, spent.trace, json_outputs)

    numbered = enumerate(listed_cases, bench.first)

    return stream(numbered, work, bench.concurrency, ordered=bench.ordered)


def find_row(chain_run: ChainRun) -> Row:
    return row_of(chain_run.id, chain_run.position, chain_run.failure, chain_run.id)


def report(_spec: ChainSpec, result: ChainRuns) -> Report:
    rows = len(result.runs)
    failed = f", {result.failed} without" if result.failed else ""
    sentence = f"{wording.count(rows - result.failed, 'row')} with outputs{failed}."
    name = result.runs[0].trace.name if result.runs else result.chain
    return Report(f"Chain {name}", sentence, _blocks(result))


def _blocks(result: ChainRuns) -> Iterator[Block]:
    if len(result.runs) == 1:
        yield from _show(result.runs[0])
        return
    for chain_run in result.runs:
        yield Section(f"Row {chain_run.id}", list(_show(chain_run)), folded=True)


def _show(chain_run: ChainRun) -> Iterator[Block]:
    if chain_run.failure is not None:
        yield Texts("Without outputs", [(chain_run.failure.kind, chain_run.failure.reason)])
    else:
        yield Texts(
            "Outputs", [(name, value_text(value)) for name, value in chain_run.outputs.items()]
        )

    yield Tree("Steps", [branch_of(chain_run.trace)])


def branch_of(trace: StepTrace) -> Branch:
    """Return a step's trace as a tree."""
    calls = wording.count(trace.usage.calls, "call") if trace.usage.calls else ""
    notes = [trace.kind, trace.note, wording.duration(trace.seconds), calls]
    notes += [f"failed: {wording.shorten(trace.error, 120)}"] if trace.error else []
    description = ", ".join(filter(None, notes))
    tone = "bad" if trace.error else ""
    return Branch(trace.name, description, tone, list(map(branch_of, trace.steps)))


def data(_spec: ChainSpec, result: ChainRuns) -> Mapping[str, Any]:
    return {
        "chain": result.chain,
        "failed": result.failed,
        "usage": to_jsonable_python(result.usage),
        "runs": to_jsonable_python(result.runs),
    }


def flatten(chain_run: ChainRun) -> Iterator[Mapping[str, Any]]:
    """Yield the table row of a run."""
    yield {
        "id": chain_run.id,
        **{f"input.{name}": value_text(value) for name, value in chain_run.inputs.items()},
        **{f"output.{name}": value_text(value) for name, value in chain_run.outputs.items()},
        "failure": record_reason(chain_run.failure),
        **read_fields(chain_run.trace.usage, "calls", "prompt_tokens", "completion_tokens", "cost"),
        "seconds": chain_run.trace.seconds,
    }


STUDY = Study(
    spec=ChainSpec,
    cases=read_cases,
    take=take,
    asks=ask,
    run=run,
    independent=True,
    row=find_row,
    decode=json_decoder(ChainRun),
    summarise=lambda spec, records: ChainRuns(spec.chain, tuple(records)),
    report=report,
    data=data,
    flat=flatten,
    reads=reads,
)
