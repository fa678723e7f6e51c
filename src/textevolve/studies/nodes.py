"""The study of nodes: each recorded step of an agent is judged in the state in which it ran.

A node is a case; its record has the results of all evaluators. `textevolve.node_eval` judges nodes,
and `node_report.py` reports on them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import ClassVar

from pydantic import model_validator

from textevolve.debate.context import prompts_version as debate_prompts
from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.evaluators import check_absolute, reads_decisions
from textevolve.events import Event, StepFinished
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.node_eval.episode_evaluation import evaluate_episodes, place_nodes
from textevolve.node_eval.episodes import Episode, Reading, split_history
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.state_fields import NO_INPUT, NO_OUTPUT
from textevolve.node_eval.traces import gather_episodes, read_episodes
from textevolve.report import wording
from textevolve.spec import Several, option
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
from textevolve.studies.node_report import data, report, summarise
from textevolve.studies.study import Asks, Study, StudySpec
from textevolve.wiring import Workbench

READ = "trace read"
"""The name of the step that announces which parts of a trace could not be read or were left out."""


class NodesSpec(NodeChecks, StudySpec):
    """Judge every step (node) of recorded runs of an agent.

    Checks call no model; judges do. Nodes that failed or were interrupted are not judged; nodes
    without a recorded output are judged only by thresholds.
    """

    kind: ClassVar[str] = "nodes"
    of_spans: ClassVar[bool] = True

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
        "The type of the nodes of one name, such as plan=DECOMPOSE. Repeatable.",
        group="Data",
        identity=False,
    )

    @model_validator(mode="after")
    def _usable(self) -> NodesSpec:
        for judge in self.judge:
            check_absolute(judge)
        names = [*(check.name for check in open_checks(self)), *self.judge]
        if double := {name for name in names if names.count(name) > 1}:
            raise InputError(
                f"two evaluators have the name '{min(double)}'; give them different names"
            )
        types_of(self)
        return self


def types_of(spec: NodesSpec) -> dict[str, Instruction]:
    """Return the types of nodes by their names."""
    types: dict[str, Instruction] = {}
    for text in spec.instruction:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"instruction: '{text}' is not of the form NAME=TYPE")
        types[name] = read_type("instruction", kind)
    return types


def read_cases(spec: NodesSpec) -> Iterator[Case]:
    """Yield a case for each node of a trace.

    Raises:
        InputError: there is no trace.
    """
    reading = Reading()
    return node_cases(read_trace(spec, reading), reading)


def read_trace(spec: NodesSpec, reading: Reading) -> Iterator[Episode]:
    if not spec.trace:
        raise InputError("no trace: name the file of a trace")
    return read_episodes(spec.trace, reading, types_of(spec))


def node_cases(episodes: Iterable[Episode], reading: Reading | None = None) -> Iterator[Case]:
    """Yield a case for each node. The parameters of the last case hold the errors met in reading
    the trace.

    Raises:
        InputError: two episodes have the same id, or there is no node.
    """
    waiting: Case | None = None
    for node in place_nodes(require_unique_ids(episodes)):
        if waiting is not None:
            yield waiting
        waiting = as_case(node)
    if waiting is None:
        raise InputError("there is no node to judge: the history is empty")
    if reading is not None and (reading.n_faults or reading.others):
        waiting = replace(waiting, parameters={"reading": asdict(reading)})
    yield waiting


def require_unique_ids(episodes: Iterable[Episode]) -> Iterator[Episode]:
    seen: set[str] = set()
    for episode in episodes:
        if episode.id in seen:
            raise InputError(f"two episodes have the id '{episode.id}'; ids must differ")
        seen.add(episode.id)
        yield episode


def ask(spec: NodesSpec) -> Asks:
    """Return the judges of a specification.

    Raises:
        InputError: there is a trace, but neither a judge nor a check.
    """
    if spec.trace and not (spec.judge or open_checks(spec)):
        raise InputError("no checks: give --judge, --threshold or another check")
    if not spec.judge:
        return Asks()
    decides = any(map(reads_decisions, spec.judge))
    return Asks(spec.judge, prompts=judge_prompts() | debate_prompts(decides=decides))


async def run(spec: NodesSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Record]:
    """Yield the judged nodes in order; then the unusable lines of the trace."""
    reading = Reading()

    def noted() -> Iterator[Case]:
        nonlocal reading
        for case in cases:
            if reading_fields := case.parameters.get("reading"):
                reading = Reading(**reading_fields)
            yield case

    judges = [open_judge(name, bench.whole_judge_of(name), spec) for name in spec.judge]
    evaluators = [*open_checks(spec), *judges]
    number = 0
    episodes = gather_episodes(parse_line(case.id, case.input) for case in noted())
    async with aclosing(evaluate_episodes(episodes, evaluators, bench.concurrency)) as judged_nodes:
        async for node in judged_nodes:
            number += 1
            yield as_record(node, number, _find_unasked(node.item, spec.judge))
    bench.listener(StepFinished(spec.kind, READ, reading))
    for record in unused_lines(reading, number):
        yield record


def _find_unasked(item: HistoryItem, judges: Sequence[str]) -> str:
    """Return the reason why one of the judges has not judged a node yet; empty if all have, or if
    the node failed or lacks an input or output, so that it will not be judged."""
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
    """Yield the records of a trace as it was recorded, without judging or storing them."""
    number = 0
    for number, node in enumerate(place_nodes(require_unique_ids(read_trace(spec, reading))), 1):
        yield as_record(node, number)
    yield from unused_lines(reading, number)


def note(event: Event) -> str | None:
    """Describe how many spans of a trace were left out because they are not steps of an agent."""
    if isinstance(event, StepFinished) and event.step == READ and event.value.others:
        return f"{wording.count(event.value.others, 'span')} left out: no steps of an agent"
    return None


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
