"""The study of nodes: each recorded step of an agent is judged in the state in which it ran.

A node is a case; its record has the results of all evaluators. `textevolve.node_eval` judges nodes,
and `node_report.py` reports on them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic import field_validator, model_validator

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.events import Event, StepFinished
from textevolve.json_texts import as_array, as_object, write_text
from textevolve.judges.judge import Judge, SeveralJudges, require_absolute
from textevolve.judges.plain import RulesJudge
from textevolve.mappings import drop_empty, pick
from textevolve.messages import RecordedCall, drop_thoughts
from textevolve.node_eval.evaluators import (
    NO_INPUT,
    NO_OUTPUT,
    ConsistencyEvaluator,
    LatencyEvaluator,
    NodeEvaluator,
    NodeOutcome,
    Targets,
    ThresholdEvaluator,
    TokenEvaluator,
    is_number,
)
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.judging import (
    Episode,
    JudgeEvaluator,
    Reading,
    RunEvaluator,
    evaluate_episodes,
    place_nodes,
    split_history,
)
from textevolve.node_eval.span_states import OTHERS, write_call
from textevolve.node_eval.traces import gather_episodes, read_episodes
from textevolve.report import wording
from textevolve.rows.trajectories import METRICS
from textevolve.runs.study import Asks, Study, StudySpec
from textevolve.spec import Frozen, Several, option
from textevolve.studies.node_report import (
    Record,
    UnusedLine,
    as_case,
    as_record,
    data,
    decode,
    find_node_row,
    flatten_node,
    parse_line,
    report,
    summarise_nodes,
    unused_lines,
    write_node,
)
from textevolve.texts.numbers import read_number
from textevolve.wiring import Workbench

# Evaluators of recorded nodes (steps of an agent), built from a specification: checks in code, and
# judges.
#
# A judge sees the field `text` of a node's state if there is one, otherwise the whole state,
# unless the specification names a field.


class NodeChecks(Frozen):
    """The options of checks in code on nodes (steps of an agent), and the choice of the judged
    nodes and fields."""

    threshold: Several = option(
        (),
        "The least value with which a number in the output or the attributes of a node passes, as"
        " KEY=NUMBER. Repeatable.",
        group="Judging",
    )
    latency: float | None = option(
        None, "The most seconds that a node may take; default: not checked.", group="Judging", gt=0
    )
    tokens: int | None = option(
        None, "The most tokens that a node may use; default: not checked.", group="Judging", gt=0
    )
    consistency: bool = option(
        False, "Compare the output with those of earlier nodes of the same name.", group="Judging"
    )
    only: Several = option(
        (), "Judge nodes of this type only, such as GENERATE. Repeatable.", group="Judging"
    )
    input_key: str | None = option(
        None,
        "The field of a node's input that judges see, or a path such as messages.-1.content;"
        " default: the whole input.",
        group="Judging",
        min_length=1,
    )
    output_key: str | None = option(
        None,
        "The field of a node's output that is judged, or a path; default: the whole output.",
        group="Judging",
        min_length=1,
    )

    @field_validator("only")
    @classmethod
    def _known(cls, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(read_type("only", name).name for name in names)


def read_type(option: str, text: str) -> Instruction:
    """Parse a type of nodes. `option`: the option's name for error messages.

    Raises:
        InputError: there is no such type of nodes.
    """
    try:
        return Instruction(text.strip().upper())
    except ValueError as error:
        raise InputError(
            f"{option}: {error}; there are: {', '.join(Instruction.__members__)}"
        ) from None


def read_threshold(text: str) -> tuple[str, float]:
    """Parse a name and its number from a text such as `confidence=0.5`."""
    name, equals, value = text.rpartition("=")
    try:
        return name, read_number(value if equals and name else "")
    except ValueError:
        raise InputError(f"threshold: '{text}' is not of the form NAME=NUMBER") from None


def targets_of(spec: NodeChecks) -> Targets:
    return tuple(Instruction[name] for name in spec.only) or None


def open_judge(judge: Judge, bench: Workbench, spec: NodesSpec) -> NodeEvaluator:
    """Return a judge as an evaluator of nodes, named by its text. Judges of trajectories judge
    complete runs, and all types of nodes."""
    fields = (spec.input_key, spec.output_key)
    evaluator = bench.whole_judge_of(judge)
    if judge.reads_trajectory:
        return RunEvaluator(judge.text, evaluator, *fields, needs_input=judge.asks)
    needs_input = not isinstance(judge, RulesJudge)
    return JudgeEvaluator(judge.text, evaluator, *fields, targets_of(spec), needs_input=needs_input)


def open_checks(spec: NodeChecks) -> list[NodeEvaluator]:
    """Return the evaluators that call no model.

    Raises:
        InputError: a text or a number cannot be used.
    """
    checks: list[NodeEvaluator] = []
    targets = targets_of(spec)
    if spec.consistency:
        key = spec.output_key
        checks.append(ConsistencyEvaluator("consistency", key, target_instructions=targets))
    for text in spec.threshold:
        key, least = read_threshold(text)
        checks.append(RecordedThreshold(key, least, targets))
    if spec.latency is not None:
        checks.append(LatencyEvaluator("latency", spec.latency, target_instructions=targets))
    if spec.tokens is not None:
        checks.append(TokenEvaluator("tokens", spec.tokens, target_instructions=targets))

    return checks


class RecordedThreshold(NodeEvaluator):
    """A threshold for recorded nodes, in which a value that is no number is missing. In a running
    agent it is a check that was not passed, so that the agent can act on it."""

    def __init__(self, key: str, least: float, targets: Targets) -> None:
        super().__init__(key, targets)
        self._threshold = ThresholdEvaluator(key, key, least, targets)

    def evaluate(self, history: History) -> NodeOutcome:
        result = self._threshold.evaluate(history)
        if is_number(result.metadata["value"]):
            return result
        return Failure("failed", result.feedback.partition(": failed")[0])


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
    judge: SeveralJudges = option(
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
            require_absolute(judge)
        names = [*(check.name for check in open_checks(self)), *map(str, self.judge)]
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

    return Asks(spec.judge, had_all_prompts=bool(spec.judge))


async def run(spec: NodesSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Record]:
    """Yield the judged nodes in order; then the unusable lines of the trace."""
    reading = Reading()

    def noted() -> Iterator[Case]:
        nonlocal reading
        for case in cases:
            if reading_fields := case.parameters.get("reading"):
                reading = Reading(**reading_fields)
            yield case

    judges = [open_judge(judge, bench, spec) for judge in spec.judge]
    evaluators = [*open_checks(spec), *judges]
    number = 0
    thoughts = 0
    parts = 0
    episodes = gather_episodes(parse_line(case.id, case.input) for case in noted())
    async with aclosing(evaluate_episodes(episodes, evaluators, bench.concurrency)) as judged_nodes:
        async for node in judged_nodes:
            number += 1
            output = node.item.output_state
            thoughts += drop_thoughts(output) != output
            parts += sum(map(_count_parts, (node.item.input_state, output)))
            yield as_record(node, number, _find_unasked(node.item, spec.judge))

    reading.thoughts = thoughts
    reading.parts = parts
    bench.listener(StepFinished(spec.kind, READ, reading))
    for record in unused_lines(reading, number):
        yield record


def _count_parts(state: object) -> int:
    """Return how many parts of the messages of a state are only named, such as images."""
    messages = as_array(as_object(state).get("messages"))
    return sum(int(as_object(message).get(OTHERS, 0)) for message in messages)


def _find_unasked(item: HistoryItem, judges: Sequence[Judge]) -> str:
    """Return the reason why one of the judges has not judged a node yet; empty if all have, or if
    the node failed or lacks an input or output, so that it will not be judged."""
    if item.error is not None:
        return ""
    for judge in judges:
        match item.evaluation_results.get(judge.text):
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


def list_chats(records: Iterable[Record]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each episode as a chat with its id, and each agent inside another one as a chat of its
    own, whose id has the names of the nodes around it."""
    episodes: dict[str, list[HistoryItem]] = {}
    for record in records:
        if not isinstance(record, UnusedLine):
            id = "/".join((record.episode, *record.item.path))
            episodes.setdefault(id, []).append(record.item)

    for id, items in episodes.items():
        yield id, _list_messages(items)


def _list_messages(items: Sequence[HistoryItem]) -> list[dict[str, Any]]:
    """Return the nodes of an agent as messages: the request of the first one, and what each said or
    returned, with what is known of it beside its message."""
    request = items[0].input_state
    messages: list[dict[str, Any]] = as_array(as_object(request).get("messages"))
    if not messages:
        messages.append({"role": "user", "content": _write_state(request)})
    waiting: list[dict[str, Any]] = []

    for item in items:
        said = as_array(as_object(item.output_state).get("messages"))
        content = _write_state(item.output_state)
        if item.instruction is Instruction.TOOL_CALL and not said:
            call = next((call for call in waiting if call["name"] == item.node), None)
            if call is None:
                call = {"id": str(len(messages)), "name": item.node, "arguments": item.input_state}
                messages.append({"role": "assistant", "tool_calls": [call]})
            else:
                waiting.remove(call)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            continue

        message = dict(said[-1]) if said else {"role": "assistant", "content": content}
        calls = as_array(message.get("tool_calls"))
        # The text of a node has its calls at the end.
        written = "\n".join(write_call(RecordedCall(**call)) for call in calls)
        message["content"] = message["content"].removesuffix(written).rstrip("\n")
        waiting += calls
        messages.append(message | _describe_node(item))

    return messages


def _write_state(state: Any) -> str:
    """Return the text of a state, or else the whole state; empty if none was recorded."""
    text = as_object(state).get("text")
    return "" if state is None else write_text(state if text is None else text)


def _describe_node(item: HistoryItem) -> dict[str, Any]:
    """Return what is known of a node beside its message, as fields of a step of ATIF."""
    metrics = pick(item.attributes, METRICS)
    rewards = {
        name: result.score
        for name, result in item.evaluation_results.items()
        if isinstance(result, EvaluationResult)
    }
    time = datetime.fromtimestamp(item.timestamp, UTC).isoformat() if item.timestamp else None
    fields = {
        "model_name": item.node,
        "timestamp": time,
        "metrics": metrics,
        "extra": {"rewards": rewards} if rewards else {},
    }
    return drop_empty(fields)


def note(event: Event) -> str | None:
    """Describe how many spans of a trace were left out because they are not steps of an agent, and
    how many outputs were judged without their thoughts."""
    if not (isinstance(event, StepFinished) and event.step == READ):
        return None
    reading: Reading = event.value
    notes: list[str] = []
    if reading.others:
        notes.append(f"{wording.count(reading.others, 'span')} left out: no steps of an agent")
    if reading.thoughts:
        outputs = wording.count(reading.thoughts, "output")
        notes.append(f"the thoughts in {outputs} are no part of what is judged")
    if reading.parts:
        parts = wording.count(reading.parts, "part")
        notes.append(f"judges see only the kind of {parts} that are no text, such as images")

    return "; ".join(notes) or None


STUDY = Study(
    aggregates=True,
    spec=NodesSpec,
    cases=read_cases,
    take=lambda _spec, histories, _objects: node_cases(
        episode for history, name in histories for episode in split_history(history, name)
    ),
    asks=ask,
    run=run,
    row=find_node_row,
    encode=write_node,
    decode=decode,
    summarise=summarise_nodes,
    report=report,
    data=data,
    flat=flatten_node,
    note=note,
    streams=True,
    chats=list_chats,
)
