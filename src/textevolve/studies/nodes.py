"""Nodes: each step of an agent that was recorded, judged as it stood when it had just run.

A node is a case, and a record with what was said of it; how it is judged is in
`textevolve.node_eval`, what is told of all of them in `node_report.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.debate.context import prompts_version as debate_prompts
from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.evaluators import check_absolute, reads_decisions
from textevolve.events import Event, StepFinished
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.node_eval.episode_evaluation import evaluate_episodes, place_nodes
from textevolve.node_eval.episodes import Episode, Reading, split_history
from textevolve.node_eval.evaluators import NodeEvaluator
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.state_fields import NO_INPUT, NO_OUTPUT
from textevolve.node_eval.traces import gather_episodes, read_episodes
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.spec import Several, option
from textevolve.studies import node_report
from textevolve.studies.node_checks import (
    NodeChecks,
    open_checks,
    open_judge,
    read_type,
)
from textevolve.studies.node_records import (
    Record,
    as_case,
    as_record,
    decode,
    encode,
    find_row,
    flatten,
    parse_line,
    unused_lines,
)
from textevolve.studies.node_report import NodesResult
from textevolve.studies.study import Asks, Study, StudySpec
from textevolve.wiring import Workbench

READ = "trace read"
"""The step that ends with what was met while the trace was read."""


class NodesSpec(NodeChecks, StudySpec):
    """Judge every step (node) of recorded runs of an agent.

    Checks ask no model; judges do. A node that failed or was interrupted is judged by nobody, and
    neither is one of which no output was recorded, but for thresholds.
    """

    kind: ClassVar[str] = "nodes"

    trace: str = option(
        "",
        "A trace: JSON lines of nodes, or OpenTelemetry spans as OTLP JSON; - is standard input.",
        argument=True,
        identity=False,
        reads=True,
    )
    judge: Several = option(
        (),
        "A judge, such as probe, debate:general+rounds=1 or rules:FILE.yaml, shown the input and"
        " the output; or one of whole runs, such as metric:tool-called:NAME or trajectory."
        " Repeatable.",
        short="-j",
        group="Judging",
    )
    instruction: Several = option(
        (),
        "What nodes of a name do, as NAME=TYPE, such as plan=DECOMPOSE. Repeatable.",
        group="Data",
        identity=False,
    )

    @model_validator(mode="after")
    def _usable(self) -> NodesSpec:
        for judge in self.judge:
            check_absolute(judge)
        names = [*(check.name for check in open_checks(self)), *self.judge]
        if double := {one for one in names if names.count(one) > 1}:
            raise InputError(f"two evaluators have the name '{min(double)}'; names must differ")
        types_of(self)
        return self


def types_of(spec: NodesSpec) -> dict[str, Instruction]:
    """What nodes do, by their names."""
    types: dict[str, Instruction] = {}
    for text in spec.instruction:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"instruction: '{text}' is not of the form NAME=TYPE")
        types[name] = read_type("instruction", kind)
    return types


def read_cases(spec: NodesSpec) -> Iterator[Case]:
    """A case for each node of a trace.

    Raises:
        InputError: there is no trace.
    """
    reading = Reading()
    return node_cases(read_trace(spec, reading), reading)


def read_trace(spec: NodesSpec, reading: Reading) -> Iterator[Episode]:
    if not spec.trace:
        raise InputError("name a trace")
    return read_episodes(spec.trace, reading, types_of(spec))


def node_cases(episodes: Iterable[Episode], reading: Reading | None = None) -> Iterator[Case]:
    """A case for each node; the last says what reading had to leave out.

    Raises:
        InputError: two episodes have one id, or there is no node.
    """
    waiting: Case | None = None
    for node in place_nodes(refuse_doubles(episodes)):
        if waiting is not None:
            yield waiting
        waiting = as_case(node)
    if waiting is None:
        raise InputError("there is no node to keep: the history is empty")
    if reading is not None and (reading.n_faults or reading.others):
        waiting = replace(waiting, parameters={"reading": asdict(reading)})
    yield waiting


def refuse_doubles(episodes: Iterable[Episode]) -> Iterator[Episode]:
    seen: set[str] = set()
    for episode in episodes:
        if episode.id in seen:
            raise InputError(f"two episodes have the id '{episode.id}'; ids must differ")
        seen.add(episode.id)
        yield episode


def ask(spec: NodesSpec) -> Asks:
    """
    Raises:
        InputError: a trace is named, and nothing to judge it by.
    """
    if spec.trace and not (spec.judge or open_checks(spec)):
        raise InputError("nothing to judge by: give --judge, --threshold or another")
    if not spec.judge:
        return Asks()
    decides = any(map(reads_decisions, spec.judge))
    return Asks(spec.judge, prompts=judge_prompts() | debate_prompts(decides=decides))


def open_evaluators(spec: NodesSpec, bench: Workbench) -> list[NodeEvaluator]:
    judges = [open_judge(name, bench.whole_judge_of(name), spec) for name in spec.judge]
    return [*open_checks(spec), *judges]


async def run(spec: NodesSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Record]:
    """The nodes in order, judged; then the lines of the trace that could not be used."""
    reading = Reading()

    def noted() -> Iterator[Case]:
        nonlocal reading
        for case in cases:
            if found := case.parameters.get("reading"):
                reading = Reading(**found)
            yield case

    evaluators = open_evaluators(spec, bench)
    number = 0
    episodes = gather_episodes(parse_line(case.id, case.input) for case in noted())
    async with aclosing(evaluate_episodes(episodes, evaluators, bench.concurrency)) as found:
        async for node in found:
            number += 1
            yield as_record(node, number, _find_unasked(node.item, spec.judge))
    bench.listener(StepFinished(spec.kind, READ, reading))
    for record in unused_lines(reading, number):
        yield record


def _find_unasked(item: HistoryItem, judges: Sequence[str]) -> str:
    """Why a judge is still to be asked about a node; empty where none is."""
    if item.error is not None:
        return ""
    for judge in judges:
        match item.evaluation_results.get(judge):
            case Failure("skipped", reason) if reason not in (NO_INPUT, NO_OUTPUT):
                return reason
            case _:
                pass
    return ""


def recorded(spec: NodesSpec, reading: Reading) -> Iterator[Record]:
    """The records of a trace as it stands, nothing judged, nothing kept."""
    number = 0
    for number, node in enumerate(place_nodes(refuse_doubles(read_trace(spec, reading))), 1):
        yield as_record(node, number)
    yield from unused_lines(reading, number)


def summarise(
    _spec: NodesSpec, records: Iterable[Record], most: int = node_report.MOST_NODES
) -> NodesResult:
    """What was said in all, and the first nodes, at `most` so many."""
    return node_report.summarise(records, most)


def note(event: Event) -> str | None:
    """What of a trace was left out because it is no step of an agent."""
    if isinstance(event, StepFinished) and event.step == READ and event.value.others:
        return f"{wording.count(event.value.others, 'span')} left out: no steps of an agent"
    return None


def report(
    _spec: NodesSpec,
    found: NodesResult,
    *,
    most: int = node_report.TREE_NODES,
    states: bool = False,
) -> Report:
    """With a tree of at `most` so many nodes; `states`: with their inputs and outputs."""
    return node_report.report(found, most=most, states=states)


def data(spec: NodesSpec, found: NodesResult) -> Mapping[str, Any]:
    return {"parameters": spec.model_dump(mode="json"), **node_report.data(found)}


STUDY = Study(
    aggregates=True,
    spec=NodesSpec,
    cases=read_cases,
    take=lambda _spec, histories, _objects: node_cases(
        episode for history, name in histories for episode in split_history(history, name)
    ),
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note,
    streams=True,
)
