"""The history of an agent's run: supersteps, each with the nodes that ran concurrently in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure, empty_default
from textevolve.node_eval.snapshots import WHOLE, take_snapshot
from textevolve.texts.prose import join_lines

# The instruction types, which say what a node does, in the eight families of ArbiterOS.
#
# A family is a tuple of its instructions, and has each of them as an attribute, too:
# `Cognitive.GENERATE` is `GENERATE`, and `target_instructions=Cognitive` selects all three.


class Instruction(Enum):
    """The type of a node: what it does. The value of each member is its name, so that stored
    histories have readable types."""

    GENERATE = "GENERATE"
    DECOMPOSE = "DECOMPOSE"
    REFLECT = "REFLECT"
    LOAD = "LOAD"
    STORE = "STORE"
    COMPRESS = "COMPRESS"
    FILTER = "FILTER"
    STRUCTURE = "STRUCTURE"
    RENDER = "RENDER"
    TOOL_CALL = "TOOL_CALL"
    TOOL_BUILD = "TOOL_BUILD"
    DELEGATE = "DELEGATE"
    RESPOND = "RESPOND"
    VERIFY = "VERIFY"
    CONSTRAIN = "CONSTRAIN"
    FALLBACK = "FALLBACK"
    INTERRUPT = "INTERRUPT"
    PREDICT_SUCCESS = "PREDICT_SUCCESS"
    EVALUATE_PROGRESS = "EVALUATE_PROGRESS"
    MONITOR_RESOURCES = "MONITOR_RESOURCES"
    UPDATE_KNOWLEDGE = "UPDATE_KNOWLEDGE"
    REFINE_SKILL = "REFINE_SKILL"
    LEARN_PREFERENCE = "LEARN_PREFERENCE"
    FORMULATE_EXPERIMENT = "FORMULATE_EXPERIMENT"
    COMMUNICATE = "COMMUNICATE"
    NEGOTIATE = "NEGOTIATE"
    PROPOSE_VOTE = "PROPOSE_VOTE"
    FORM_COALITION = "FORM_COALITION"
    INFER_INTENT = "INFER_INTENT"
    MODEL_USER_STATE = "MODEL_USER_STATE"
    ADAPT_RESPONSE = "ADAPT_RESPONSE"
    MANAGE_TRUST = "MANAGE_TRUST"


(
    GENERATE,
    DECOMPOSE,
    REFLECT,
    LOAD,
    STORE,
    COMPRESS,
    FILTER,
    STRUCTURE,
    RENDER,
    TOOL_CALL,
    TOOL_BUILD,
    DELEGATE,
    RESPOND,
    VERIFY,
    CONSTRAIN,
    FALLBACK,
    INTERRUPT,
    PREDICT_SUCCESS,
    EVALUATE_PROGRESS,
    MONITOR_RESOURCES,
    UPDATE_KNOWLEDGE,
    REFINE_SKILL,
    LEARN_PREFERENCE,
    FORMULATE_EXPERIMENT,
    COMMUNICATE,
    NEGOTIATE,
    PROPOSE_VOTE,
    FORM_COALITION,
    INFER_INTENT,
    MODEL_USER_STATE,
    ADAPT_RESPONSE,
    MANAGE_TRUST,
) = Instruction
"""The instructions under their own names, in the order of the members."""


class InstructionFamily(tuple[Instruction, ...]):
    """Instructions that belong together; each can be read by its name, too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Instruction:
        for instruction in self:
            if instruction.name == name:
                return instruction
        raise AttributeError(f"the family has no instruction '{name}'")


Cognitive = CognitiveCore = InstructionFamily((GENERATE, DECOMPOSE, REFLECT))
Memory = MemoryCore = InstructionFamily((LOAD, STORE, COMPRESS, FILTER, STRUCTURE, RENDER))
Execution = ExecutionCore = InstructionFamily((TOOL_CALL, TOOL_BUILD, DELEGATE, RESPOND))
Normative = NormativeCore = InstructionFamily((VERIFY, CONSTRAIN, FALLBACK, INTERRUPT))
Metacognitive = MetacognitiveCore = InstructionFamily(
    (PREDICT_SUCCESS, EVALUATE_PROGRESS, MONITOR_RESOURCES)
)
Adaptive = AdaptiveCore = InstructionFamily(
    (UPDATE_KNOWLEDGE, REFINE_SKILL, LEARN_PREFERENCE, FORMULATE_EXPERIMENT)
)
Social = SocialCore = InstructionFamily((COMMUNICATE, NEGOTIATE, PROPOSE_VOTE, FORM_COALITION))
Affective = AffectiveCore = InstructionFamily(
    (INFER_INTENT, MODEL_USER_STATE, ADAPT_RESPONSE, MANAGE_TRUST)
)
"""The families under their own names, and under those of ArbiterOS."""


def read_instruction(given: Any) -> Instruction | None:
    """Convert an instruction type, its name, or an equally named member of another library's enum
    to an `Instruction`; None stays None.

    Raises:
        InputError: there is no such instruction type.
    """
    if given is None or isinstance(given, Instruction):
        return given
    name = given if isinstance(given, str) else getattr(given, "name", None)

    try:
        return Instruction(name)
    except ValueError:
        known_name = ", ".join(instruction.name for instruction in Instruction)
        raise InputError(
            f"no instruction type {str(given)[:40]!r}; there are: {known_name}"
        ) from None


FEEDBACK_SHOWN = 100
"""The maximum number of characters of a text on one line."""
ID_NAMES = ("span_id", "parent_id", "session_id", "user_id")
"""The names of the ids that a recorded span may have; `parent_id` is the id of the enclosing
node."""


@dataclass(slots=True)
class HistoryItem:
    """One node (a step of an agent) that ran. Only its evaluators change it: they add their results
    when they finish.

    `timestamp`: the Unix time of its start. `instruction`: its type; None if unknown.
    `input_state`, `output_state`: snapshots; the output is None if the node failed. `error`: the
    reason of the failure, or what an `interrupted` node waits for. `evaluation_results`: by the
    evaluator's name.

    `node`: its name. `path`: the names of the graphs in which it ran, the outermost first; empty
    without a graph. `seconds`: its duration; `tokens`: the tokens that it used; None if unknown.
    `run_id`: the run of the agent; empty if unknown. `thread_id`: the conversation to which the run
    belongs; None without one. `order`: its number in the order in which nodes ended, from 1; 0 if
    unknown. `attributes`: recorded data that are neither input nor output. `ids`: the ids of its
    span, by `ID_NAMES`; empty for a live node.
    """

    timestamp: float
    instruction: Instruction | None = None
    input_state: Any = None
    output_state: Any = None
    evaluation_results: dict[str, EvaluationResult | Failure] = empty_default(dict)
    _: KW_ONLY
    node: str = ""
    path: tuple[str, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None
    interrupted: bool = False
    run_id: str = ""
    thread_id: str | None = None
    order: int = field(default=0, compare=False)
    attributes: dict[str, Any] = empty_default(dict)
    ids: dict[str, str] = empty_default(dict)


@dataclass(slots=True)
class History:
    """The nodes of one run, or of several, in supersteps. `entries`: the supersteps, each a list of
    nodes; the node that ended last is `entries[-1][-1]`. A superstep belongs to one run, and is
    placed by the end of its last node."""

    entries: list[list[HistoryItem]] = empty_default(list)

    @property
    def items(self) -> Iterator[HistoryItem]:
        """Yield every node in order, across all supersteps."""
        return (item for step in self.entries for item in step)

    @property
    def runs(self) -> dict[str, History]:
        """Return the history of each run by the run's id, in the order in which the runs appear
        here."""
        histories: dict[str, History] = {}
        for step in list(self.entries):
            for run_id in dict.fromkeys(item.run_id for item in step):
                part = [item for item in step if item.run_id == run_id]
                histories.setdefault(run_id, History()).entries.append(part)

        return histories

    def __str__(self) -> str:
        """Return the history as a tree of supersteps, their nodes, and the nodes' results; several
        runs are separate trees."""
        runs = self.runs
        is_several = len(runs) > 1
        number = sum(map(len, self.entries))
        lines = [f"{_count(len(self.entries), 'superstep')}, {_count(number, 'node')}"]
        lines[0] = f"{_count(len(runs), 'run')}, {lines[0]}" if is_several else lines[0]

        for run in runs.values():
            if is_several:
                item = run.entries[0][0]
                thread = "" if item.thread_id is None else f"  thread {short_line(item.thread_id)}"
                lines.append(f"run {short_line(item.run_id) or '(no id)'}{thread}")

            for place, step in enumerate(run.entries, 1):
                lines.append(f"superstep {place}")
                for item in step:
                    lines.append(f"    {_describe_node(item)}")
                    results = item.evaluation_results.items()
                    lines += [f"        {_describe_result(*each)}" for each in results]

        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe_node(item: HistoryItem) -> str:
    parts = [short_line("/".join((*item.path, item.node)) or "(no name)")]
    if item.instruction is not None:
        parts.append(item.instruction.name)
    if item.seconds is not None:
        parts.append(f"{item.seconds:.3g} s")
    if item.tokens is not None:
        parts.append(_count(item.tokens, "token"))
    if item.error is not None:
        parts.append(f"{'interrupted' if item.interrupted else 'failed'}: {short_line(item.error)}")

    return "  ".join(parts)


def _describe_result(name: str, result: EvaluationResult | Failure) -> str:
    if isinstance(result, Failure):
        outcome = "not scored" if result.kind == "failed" else "skipped"
        return f"{short_line(name)}  {outcome}: {short_line(result.reason)}"
    answer = f": {short_line(result.feedback)}" if result.feedback else ""
    verdict = "passed" if result.passed else "not passed"
    return f"{short_line(name)}  {result.score:.2f} {verdict}{answer}"


def short_line(text: str, most: int = FEEDBACK_SHOWN) -> str:
    """Return a text on one line for a terminal or a log: without control characters, cut at
    `most`."""
    line = join_lines("".join(c if c.isprintable() else " " for c in text[:1000]))
    return line if len(line) <= most else line[: most - 1] + "…"


_FIELDS = tuple(field.name for field in fields(HistoryItem))


def copy_item(item: HistoryItem) -> HistoryItem:
    """Copy a node field by field, which takes a third of the time of `dataclasses.replace`."""
    copied = object.__new__(HistoryItem)
    for name in _FIELDS:
        setattr(copied, name, getattr(item, name))
    copied.input_state = take_snapshot(item.input_state, WHOLE)
    copied.output_state = take_snapshot(item.output_state, WHOLE)
    copied.attributes = take_snapshot(item.attributes, WHOLE)
    copied.evaluation_results = dict(item.evaluation_results)

    return copied
