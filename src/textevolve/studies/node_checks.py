"""Evaluators of recorded nodes (steps of an agent), built from a specification: checks in code, and
judges.

A judge sees the field `text` of a node's state if there is one, otherwise the whole state, unless
the specification names a field.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import field_validator

from textevolve.errors import InputError
from textevolve.evaluation import Evaluator
from textevolve.evaluators import parse_evaluator
from textevolve.node_eval.checks import (
    ConsistencyEvaluator,
    LatencyEvaluator,
    TokenEvaluator,
)
from textevolve.node_eval.evaluators import NodeEvaluator, Targets, ThresholdEvaluator
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.judging import JudgeEvaluator, RunEvaluator
from textevolve.spec import Frozen, Several, option
from textevolve.texts.numbers import read_number


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


def open_judge(name: str, judge: Evaluator, spec: NodeChecks) -> NodeEvaluator:
    """Return a judge as an evaluator of nodes, named by its text. Judges of trajectories judge
    complete runs, and all types of nodes."""
    fields, needs_input = (spec.input_key, spec.output_key), not name.startswith("rules:")
    if (judge_spec := parse_evaluator(name)).reads_trajectory:
        return RunEvaluator(name, judge, *fields, needs_input=judge_spec.kind.asks)
    return JudgeEvaluator(name, judge, *fields, targets_of(spec), needs_input=needs_input)


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
        checks.append(ThresholdEvaluator(key, key, least, targets))
    if spec.latency is not None:
        checks.append(LatencyEvaluator("latency", spec.latency, target_instructions=targets))
    if spec.tokens is not None:
        checks.append(TokenEvaluator("tokens", spec.tokens, target_instructions=targets))
    return checks
