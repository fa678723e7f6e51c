"""Convert OpenTelemetry's spans to the nodes of an agent: select the spans that are nodes, find
their types, and sort them into supersteps.

Operations follow OpenTelemetry's conventions for generative AI, kinds of spans OpenInference.
OpenTelemetry's packages are not imported; `documents.py` decodes the spans, and `span_states.py`
reads their attributes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from textevolve.errors import InputError
from textevolve.mappings import pick
from textevolve.node_eval.documents import Documents, read_traces
from textevolve.node_eval.history import ID_NAMES, History, HistoryItem, Instruction
from textevolve.node_eval.judging import Episode, EpisodeInstructions, Reading
from textevolve.node_eval.snapshots import WHOLE, take_snapshot
from textevolve.node_eval.span_states import (
    Span,
    as_fields,
    attributes_of,
    ids_of,
    input_of,
    node_name_of,
    output_of,
    read_error,
    tokens_of,
    tools_of,
)

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
    for trace, spans in read_traces(documents, source, reading):
        nodes = {id: span for id, span in spans.items() if is_node(span, instructions)}
        reading.nodes += len(nodes)
        reading.others += len(spans) - len(nodes)
        if nodes:
            yield Episode(trace, History(_build(spans, nodes, instructions)))

    if reading.others and not reading.nodes:
        raise InputError(
            f"{source}: none of its {reading.others} spans is a step of an agent: none has"
            " gen_ai.operation.name or openinference.span.kind; name spans with --instruction"
            " NAME=TYPE"
        )


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
    name = node_name_of(span)
    ids = {**shared, **ids_of(span), "span_id": span.span_id}
    ids |= {"parent_id": around[-1].span_id} if around else {}
    known_responses = (
        instructions.get(key) for key in (name, span.name, span.operation, span.kind)
    )
    default = OPERATIONS.get(span.operation) or KINDS.get(span.kind)
    instruction = next(filter(None, known_responses), default)
    state = input_of(span)
    if state and instruction is Instruction.GENERATE and "tools" not in state:
        # Some record the tools on offer with the agent alone.
        offers = (tools_of(outer.attributes) for outer in reversed(around))
        state |= {"tools": tools} if (tools := next(filter(None, offers), None)) else {}

    item = HistoryItem(
        timestamp=span.start / 1e9,
        instruction=instruction,
        input_state=take_snapshot(state, WHOLE),
        output_state=take_snapshot(output_of(span), WHOLE),
        node=name,
        path=tuple(map(node_name_of, around)),
        seconds=span.seconds,
        tokens=tokens_of(span),
        error=read_error(span),
        attributes=take_snapshot(attributes_of(span), WHOLE),
        thread_id=ids.pop("thread_id", None),
        ids=pick(ids, ID_NAMES),
    )
    _take_states(item, inner)

    return item
