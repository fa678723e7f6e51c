"""Read and write recorded runs of agents: as JSON lines, one node a line, read lazily and written
completely or not at all; and as OpenTelemetry's spans, which are detected.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.json_texts import (
    CONTAINERS,
    as_object,
    is_object,
    is_sequence,
    parse_printed,
    parse_text,
)
from textevolve.mappings import map_values, pick
from textevolve.node_eval.documents import VALUES, Documents, is_export, read_documents, read_traces
from textevolve.node_eval.history import ID_NAMES, History, HistoryItem, Instruction
from textevolve.node_eval.judging import Episode, EpisodeInstructions, Reading, split_history
from textevolve.node_eval.snapshots import WHOLE, take_snapshot
from textevolve.node_eval.span_states import (
    Span,
    as_fields,
    attributes_of,
    ids_of,
    input_of,
    output_of,
    read_error,
    tokens_of,
)
from textevolve.rows import parse_row, read_lines, read_rows
from textevolve.rows.columns import Columns
from textevolve.rows.exports import find_session_log
from textevolve.rows.tables import open_text
from textevolve.rows.trajectories import is_trajectory
from textevolve.system import replacing

# Convert OpenTelemetry's spans to the nodes of an agent: select the spans that are nodes, find
# their types, and sort them into supersteps.
#
# Operations follow OpenTelemetry's conventions for generative AI, kinds of spans OpenInference.
# OpenTelemetry's packages are not imported; `documents.py` decodes the spans, and `span_states.py`
# reads their attributes.

OPERATIONS: Mapping[str, Instruction] = {
    "chat": Instruction.GENERATE,
    "text_completion": Instruction.GENERATE,
    "generate_content": Instruction.GENERATE,
    "fetch_response": Instruction.GENERATE,
    "plan": Instruction.DECOMPOSE,
    "execute_tool": Instruction.TOOL_CALL,
    "embeddings": Instruction.LOAD,
    "retrieval": Instruction.LOAD,
    "search_memory": Instruction.LOAD,
    "create_memory": Instruction.STORE,
    "update_memory": Instruction.STORE,
    "upsert_memory": Instruction.STORE,
    "delete_memory": Instruction.STORE,
    "invoke_agent": Instruction.DELEGATE,
    "invoke_workflow": Instruction.DELEGATE,
}
"""The instruction types by `gen_ai.operation.name`. A node with another operation has no type."""

KINDS: Mapping[str, Instruction] = {
    "LLM": Instruction.GENERATE,
    "TOOL": Instruction.TOOL_CALL,
    "RETRIEVER": Instruction.LOAD,
    "EMBEDDING": Instruction.LOAD,
    "RERANKER": Instruction.FILTER,
    "AGENT": Instruction.DELEGATE,
    "GUARDRAIL": Instruction.CONSTRAIN,
    "EVALUATOR": Instruction.VERIFY,
}
"""The instruction types by OpenInference's `openinference.span.kind`."""


def read_spans(
    documents: Documents,
    source: str,
    reading: Reading,
    instructions: EpisodeInstructions,
) -> Iterator[Episode]:
    """Yield an episode for each trace, in the order in which the traces began.

    Raises:
        InputError: they hold no spans, or none that is a step of an agent.
    """
    yield from build_episodes(read_traces(documents, source, reading), reading, instructions)

    if reading.others and not reading.nodes:
        raise InputError(
            f"{source}: none of its {reading.others} spans is a step of an agent: none has"
            " gen_ai.operation.name or openinference.span.kind; name spans with --instruction"
            " NAME=TYPE"
        )


def build_episodes(
    traces: Iterable[tuple[str, Mapping[str, Span]]],
    reading: Reading,
    instructions: EpisodeInstructions,
) -> Iterator[Episode]:
    """Yield an episode for each trace that has a step of an agent; count the spans that are steps,
    and the others."""
    for trace, spans in traces:
        nodes = {id: span for id, span in spans.items() if is_node(span, instructions)}
        reading.nodes += len(nodes)
        reading.others += len(spans) - len(nodes)
        if nodes:
            yield Episode(trace, History(_build(spans, nodes, instructions)))


PLUMBING_KINDS = ("PROMPT", "PARSER")
"""The kinds of spans in which a framework prepares a request, or reads an answer."""
PLUMBING = re.compile(
    r"Runnable\w*(<.*)?|Channel(Write|Read)\b.*|Branch<.*|_write|__start__|__end__|Prompt"
    r"|should_continue|tools_condition|\w*PromptTemplate|\w+OutputParser",
    re.DOTALL,
)
"""The names of the functions by which LangChain and LangGraph connect the steps of an agent."""


def is_node(span: Span, instructions: EpisodeInstructions) -> bool:
    """Tell whether a span is a step of the agent: it has an operation or a kind, or the user has
    named its type. What a framework runs between steps is none."""
    if not instructions.keys().isdisjoint((span.name, span.kind)):
        return True
    return bool(span.operation) or bool(span.kind and not _is_plumbing(span))


def _is_plumbing(span: Span) -> bool:
    if span.kind in PLUMBING_KINDS:
        return True
    if span.kind not in ("CHAIN", "UNKNOWN"):
        return False
    # LangGraph names the node in each function that it runs inside of the node, as in a router.
    metadata = as_fields(span.attributes.get("metadata"))
    step = span.attributes.get("langgraph.node") or metadata.get("langgraph_node")

    return bool(PLUMBING.fullmatch(span.name)) or (step is not None and step != span.name)


def _build(
    spans: Mapping[str, Span], nodes: Mapping[str, Span], instructions: EpisodeInstructions
) -> list[list[HistoryItem]]:
    """Sort nodes into supersteps in the order in which they ended: nodes inside a node come before
    it."""
    around = {id: _ancestors(span, spans, nodes) for id, span in nodes.items()}
    children: dict[str, list[Span]] = {}
    for id, span in nodes.items():
        children.setdefault(around[id][-1].span_id if around[id] else "", []).append(span)
    shared: dict[str, str] = {}
    for span in spans.values():
        shared = {**ids_of(span), **shared}
    # From the last superstep to the first; a stack, for nothing says how deeply spans are nested.
    groups: list[list[Span]] = []
    waiting = _parallel_groups(children.get("", []))
    while waiting:
        groups.append(waiting.pop())
        for span in groups[-1]:
            waiting += _parallel_groups(children.get(span.span_id, []))

    inner: dict[str, list[HistoryItem]] = {}
    order = itertools.count(1)

    def convert(span: Span) -> HistoryItem:
        within = inner.get(span.span_id, [])
        item = as_node(span, around[span.span_id], within, shared, instructions)
        item.order = next(order)
        inner.setdefault(item.ids.get("parent_id", ""), []).append(item)
        return item

    return [list(map(convert, group)) for group in reversed(groups)]


def _take_states(item: HistoryItem, inner: Sequence[HistoryItem]) -> None:
    """If an agent's node, or one without a type, lacks its input or output, give it the input of
    its first step or the output of its last one. Tool calls do not count as steps, and a failed
    node gets no output."""
    if item.instruction not in (None, Instruction.DELEGATE):
        return
    steps = [
        inner_step for inner_step in inner if inner_step.instruction is not Instruction.TOOL_CALL
    ]
    if item.input_state is None:
        began = sorted(steps, key=lambda step: step.timestamp)
        item.input_state = next((step.input_state for step in began if step.input_state), None)
    if item.output_state is None and item.error is None:
        reversed_steps = reversed(steps)
        item.output_state = next(
            (step.output_state for step in reversed_steps if step.output_state), None
        )


def _ancestors(span: Span, spans: Mapping[str, Span], nodes: Mapping[str, Span]) -> list[Span]:
    """Return the nodes around a span, the outermost first; none if the parents form a circle."""
    around: list[Span] = []
    seen = {span.span_id}
    while outer := spans.get(span.parent_span_id):
        if outer.span_id in seen:
            return []
        seen.add(outer.span_id)
        if outer.span_id in nodes:
            around.append(outer)
        span = outer

    return around[::-1]


def _parallel_groups(spans: Sequence[Span]) -> list[list[Span]]:
    """Return groups of spans that all overlap in time, in order; each ends with the last span to
    end."""
    groups: list[list[Span]] = []
    first_end = -math.inf

    for span in sorted(spans, key=lambda span: (span.start, span.last)):
        if groups and span.start < first_end:
            groups[-1].append(span)
            first_end = min(first_end, span.last)
        else:
            groups.append([span])
            first_end = span.last

    return [sorted(group, key=lambda span: span.last) for group in groups]


def as_node(
    span: Span,
    around: Sequence[Span],
    inner: Sequence[HistoryItem],
    shared: Mapping[str, str],
    instructions: EpisodeInstructions,
) -> HistoryItem:
    """Convert a span to a node. `around`: the spans of the nodes around it; `inner`: the nodes
    directly inside it, in the order in which they ended; `shared`: ids that other spans of its
    trace have. `instructions` is searched for the node's name, the span's name, its operation and
    its kind; then the conventions apply."""
    name = span.node_name
    ids = {**shared, **ids_of(span), "span_id": span.span_id}
    if around:
        ids["parent_id"] = around[-1].span_id
    known_responses = (
        instructions.get(key) for key in (name, span.name, span.operation, span.kind)
    )
    default = OPERATIONS.get(span.operation) or KINDS.get(span.kind)
    instruction = next(filter(None, known_responses), default)
    state = input_of(span)
    if state and instruction is Instruction.GENERATE and "tools" not in state:
        # Some record the tools on offer with the agent alone.
        offers = (outer.tools for outer in reversed(around))
        if tools := next(filter(None, offers), None):
            state["tools"] = tools

    item = HistoryItem(
        timestamp=span.start / 1e9,
        instruction=instruction,
        input_state=take_snapshot(state, WHOLE),
        output_state=take_snapshot(output_of(span), WHOLE),
        node=name,
        path=tuple(outer.node_name for outer in around),
        seconds=span.seconds,
        tokens=tokens_of(span),
        error=read_error(span),
        attributes=take_snapshot(attributes_of(span), WHOLE),
        thread_id=ids.pop("thread_id", None),
        ids=pick(ids, ID_NAMES),
    )
    _take_states(item, inner)

    return item


# Convert a node to a line of JSON, and back.

MOST_BITS = 14_000
"""The size of the largest integers that are written, since Python's JSON only accepts integers of
up to 4,300 digits."""

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ResultLine(BaseModel):
    """The result of an evaluator in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    score: Score
    passed: bool
    feedback: str = ""
    metadata: dict[str, Any] = {}


class FailureLine(BaseModel):
    """The failure of an evaluator in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    failure: Literal["failed", "skipped"]
    reason: str


class NodeLine(BaseModel):
    """One node as a line of a file has it.

    `episode`: the recorded run. `step`: the number of its superstep, from 0; None if unknown.
    `order`: its number in the order in which nodes ended, from 1; 0 if unknown. Other fields are as
    in `HistoryItem`.
    """

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    episode: str = "1"
    run_id: str = ""
    thread_id: str | None = None
    span_id: str | None = None
    parent_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    order: Annotated[int, Field(ge=0)] = 0
    node: str = ""
    path: tuple[str, ...] = ()
    instruction: Instruction | None = None
    timestamp: Annotated[float, Field(allow_inf_nan=False)] | datetime.datetime = 0.0
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    interrupted: bool = False
    attributes: dict[str, Any] = {}
    results: dict[str, ResultLine | FailureLine] = {}


def parse_node(where: str, row: Mapping[str, Any]) -> NodeLine:
    """Parse a row as a node; `where` names its place in errors.

    Raises:
        InputError: it is no node; names the place and the field.
    """
    if "node" not in row and "instruction" not in row:
        raise InputError(f"{where}: not a node: it has neither 'node' nor 'instruction'")
    try:
        return NodeLine.model_validate(row)
    except ValidationError as error:
        first_error = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first_error["loc"][:2]))
        raise InputError(f"{where}: {field}: {first_error['msg']}") from None


def as_item(line: NodeLine) -> HistoryItem:
    """Convert a line to a node; values of keys that name secrets are masked."""
    began = line.timestamp
    return HistoryItem(
        timestamp=began.timestamp() if isinstance(began, datetime.datetime) else began,
        instruction=line.instruction,
        input_state=take_snapshot(line.input, WHOLE),
        output_state=take_snapshot(line.output, WHOLE),
        evaluation_results=map_values(_as_outcome, line.results),
        node=line.node,
        path=line.path,
        seconds=line.seconds,
        tokens=line.tokens,
        error=line.error,
        interrupted=line.interrupted,
        run_id=line.run_id,
        thread_id=line.thread_id,
        order=line.order,
        attributes=take_snapshot(line.attributes, WHOLE),
        ids={name: value for name in ID_NAMES if (value := getattr(line, name))},
    )


def _as_outcome(line: ResultLine | FailureLine) -> EvaluationResult | Failure:
    if isinstance(line, FailureLine):
        return Failure(line.failure, line.reason)
    metadata = take_snapshot(line.metadata, WHOLE)
    return EvaluationResult(line.score, line.passed, line.feedback, metadata)


def describe_node(episode: str, step: int, item: HistoryItem) -> dict[str, Any]:
    """Return a node as the data of its line."""
    return {
        "episode": episode,
        **describe_run(item),
        "step": step,
        "order": item.order,
        "node": item.node,
        "path": list(item.path),
        "instruction": item.instruction.name if item.instruction else None,
        "timestamp": item.timestamp,
        "seconds": item.seconds,
        "tokens": item.tokens,
        "input": item.input_state,
        "output": item.output_state,
        "error": item.error,
        "interrupted": item.interrupted,
        **({"attributes": item.attributes} if item.attributes else {}),
        "results": map_values(describe_result, item.evaluation_results),
    }


def describe_run(item: HistoryItem) -> dict[str, Any]:
    """Return the ids of a node, its run and its conversation, by the names of a line's fields.
    Without a known run or conversation both are left out."""
    known_name = item.run_id or item.thread_id
    run = {"run_id": item.run_id, "thread_id": item.thread_id} if known_name else {}
    return {**run, **item.ids}


def describe_result(result: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"failure": result.kind, "reason": result.reason}
    return asdict(result)


def encode_line(data: Mapping[str, Any]) -> bytes:
    """Encode data as one line of JSON. Values that JSON cannot hold are described in words:
    infinities, huge integers, objects, cycles."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_write_numbers(take_snapshot(data, WHOLE)), ensure_ascii=False)

    return (text + "\n").encode("utf-8", "backslashreplace")


def _write_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"(an integer of {value.bit_length():,} bits)"
    if is_object(value):
        return map_values(_write_numbers, value)
    if is_sequence(value):
        return list(map(_write_numbers, value))

    return value


HEADER = {"format": "textevolve-nodes", "version": 1}
"""The first line of a file in TextEvolve's own format."""

DOCUMENT = re.compile(
    r'"resource(Spans|Logs|Metrics|_spans|_logs|_metrics)"|"schema_version"\s*:\s*"ATIF-'
)
"""The beginning of a document of OTLP or ATIF, which may have many lines."""
TABLES = (".csv", ".tsv", ".parquet")
"""The endings of files that are tables of spans."""
NOT_UTF8 = re.compile("[\0\udc80-\udcff]")
"""The characters that Python reads for bytes that are not UTF-8, and the one that no text has."""


def read_episodes(
    path: str | Path,
    reading: Reading | None = None,
    instructions: EpisodeInstructions | None = None,
) -> Iterator[Episode]:
    """Yield the runs in a trace one by one: our own JSON lines, OpenTelemetry spans as OTLP JSON,
    or an export of Phoenix, MLflow or LangSmith.

    A line or span that cannot be used is reported to `reading`, and the rest is read. `-` is
    standard input. `instructions`: the types of nodes by their names, which override those of the
    file.

    Raises:
        InputError: the file cannot be read, or nothing in it can be used.
    """
    source = str(path)
    trace_reading = reading if reading is not None else Reading()

    if Path(source).suffix.lower() in TABLES:
        yield from read_spans(
            [(source, _read_table(source))], source, trace_reading, instructions or {}
        )
    else:
        lines = read_lines(source)
        first_line = next(lines, None)
        if first_line is None:
            raise InputError(f"{source}: no nodes: it is empty")
        lines = itertools.chain([first_line], lines)
        log = find_session_log(as_object(parse_text(first_line[1], "{")))
        if log is not None:
            raise InputError(
                f"{source}: a session of {log.program}, which is judged as a whole: textevolve"
                f" evaluate {source} --judge trajectory"
            )

        if _begins_spans(first_line[1]):
            documents = read_documents(lines, source, trace_reading)
            yield from read_spans(documents, source, trace_reading, instructions or {})
        else:
            # The lines of an episode must come one after another.
            unread = Columns()
            read_nodes = (_read_line(where, line, trace_reading, unread) for where, line in lines)
            yield from gather_episodes(filter(None, read_nodes), instructions)
            unread.leave_out_unread()

    if not trace_reading.nodes:
        reason = (
            trace_reading.faults[0]
            if trace_reading.faults
            else f"{source}: it has a header and nothing else"
        )
        raise InputError(f"no node can be used: {reason}")


def _read_table(path: str) -> list[dict[str, Any]]:
    """Read the rows of a data frame. pandas writes its index next to the column of the same
    name."""
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet":
        return [dict(row) for _, row in read_rows(path, "span", lambda _name: True)]
    csv.field_size_limit(sys.maxsize)
    with open_text(path) as file:
        reader = csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",")
        return [{name: _read_cell(name, cell) for name, cell in row.items()} for row in reader]


def _read_cell(name: str, cell: Any) -> Any:
    """Parse a cell in which pandas writes a container, as JSON or as a Python literal. The whole
    input or output of a span may be a text that looks like one."""
    if isinstance(cell, str) and cell.startswith(CONTAINERS) and not name.endswith(VALUES):
        return parse_printed(cell)
    return cell


def _begins_spans(line: str) -> bool:
    """Return whether a file has spans or an export, by its first line. A document may have many
    lines."""
    start = line.strip()
    if start == "{" or start.startswith("[") or DOCUMENT.search(line):
        return True
    record = parse_text(line, "{")
    return is_object(record) and (is_export(record) or is_trajectory(record))


def _read_line(where: str, line: str, reading: Reading, unread: Columns) -> NodeLine | None:
    try:
        if NOT_UTF8.search(line):
            raise InputError(
                f"{where}: not UTF-8 text; convert it first, and let a collector write"
                " format: json without compression"
            )
        row = parse_row(line, where, "node")
        if "format" in row and "node" not in row:
            if {name: row.get(name) for name in HEADER} != HEADER:
                raise InputError(f"{where}: is of another format; this TextEvolve reads {HEADER}")
            return None

        node = parse_node(where, row)
        unread.note_unread(row, NodeLine.model_fields)
        reading.nodes += 1
        return node
    except InputError as error:
        reading.report(str(error))
        return None


def gather_episodes(
    lines: Iterable[NodeLine], instructions: EpisodeInstructions | None = None
) -> Iterator[Episode]:
    """Combine lines into episodes, sorted by superstep. A node without a superstep gets a new one,
    after that of the line before it."""
    for episode, group in itertools.groupby(lines, lambda line: line.episode):
        steps: dict[tuple[int, int], list[HistoryItem]] = {}
        last = 0
        for number, line in enumerate(group, 1):
            place = (last, number) if line.step is None else (line.step, 0)
            last = place[0]
            item = as_item(line)
            item.instruction = (instructions or {}).get(line.node, line.instruction)
            item.order = line.order or number
            steps.setdefault(place, []).append(item)

        yield Episode(episode, History([steps[place] for place in sorted(steps)]))


def write_history(history: History, path: str | Path, episode: str = "") -> None:
    """Write a history as JSON lines, each run as an episode, named by the run's id or by `episode`
    (`episode/id` if there are several runs). An existing file is replaced once everything is
    written.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        with replacing(Path(path)) as file:
            file.write(encode_line(HEADER))
            for each in split_history(history, episode):
                for step, item in each.nodes:
                    file.write(encode_line(describe_node(each.id, step, item)))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
