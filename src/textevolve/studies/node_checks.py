"""Evaluators over recorded nodes as a specification names them: checks and judges.

A state that has a `text` is judged by it, any other as a whole, unless fields are named.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, cast

from pydantic import field_validator

from textevolve.errors import InputError
from textevolve.evaluation import Evaluator, Failure
from textevolve.node_eval.checks import (
    ConsistencyEvaluator,
    LatencyEvaluator,
    RulesEvaluator,
    TokenEvaluator,
)
from textevolve.node_eval.evaluators import NodeEvaluator, NodeOutcome, Targets, ThresholdEvaluator
from textevolve.node_eval.history import History
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.judging import JudgeEvaluator
from textevolve.spec import Frozen, Several, option, suggest
from textevolve.texts.numbers import read_number

NO_OUTPUT = "no output was recorded"
NO_INPUT = "no input was recorded"
TEXT = "text"


class NodeChecks(Frozen):
    """By what nodes are judged without a model, and which of them and of their fields are."""

    threshold: Several = option(
        (),
        "A number in the output, or among the attributes, that must be reached, as KEY=NUMBER."
        " Repeatable.",
        group="Judging",
    )
    latency: float | None = option(None, "How many seconds a node may take.", group="Judging", gt=0)
    tokens: int | None = option(None, "How many tokens a node may use.", group="Judging", gt=0)
    consistency: bool = option(
        False, "Compare the output with those of earlier nodes of the same name.", group="Judging"
    )
    only: Several = option(
        (), "Judge nodes of this type only, such as GENERATE. Repeatable.", group="Judging"
    )
    input_key: str | None = option(
        None,
        "The field of the input that is judged, or a path such as messages.-1.content.",
        group="Judging",
        min_length=1,
    )
    output_key: str | None = option(
        None, "The field of the output that is judged.", group="Judging", min_length=1
    )

    @field_validator("only")
    @classmethod
    def _known(cls, given: Sequence[str]) -> tuple[str, ...]:
        return tuple(read_type("only", one).name for one in given)


def read_type(option: str, text: str) -> Instruction:
    """
    Raises:
        InputError: there is no such type of nodes; `option` is where it was given.
    """
    try:
        return Instruction[text.strip().upper()]
    except KeyError:
        names = [one.name for one in Instruction]
        raise InputError(
            f"{option}: no instruction type '{text}'{suggest(text.strip().upper(), names)}"
        ) from None


def read_pair(option: str, text: str) -> tuple[str, float]:
    """A name and its number, of a text such as `confidence=0.5`."""
    name, equals, value = text.rpartition("=")
    try:
        return name, read_number(value if equals and name else "")
    except ValueError:
        raise InputError(f"{option}: '{text}' is not of the form NAME=NUMBER") from None


Make = Callable[[str | None, str | None], NodeEvaluator]
"""An evaluator of the fields of input and output that are named; None is the whole state."""


class TextFirst(NodeEvaluator):
    """The evaluator that `make` gives, on the fields that are named, or else on the text of states
    that have one. A node of which nothing was recorded is skipped. `blocks`: a pattern of its rules
    may take seconds."""

    blocks = True

    def __init__(
        self, name: str, make: Make, spec: NodeChecks, *, needs_input: bool = False
    ) -> None:
        super().__init__(name, targets_of(spec))
        self._make = cache(make)
        self._input_key, self._output_key = spec.input_key, spec.output_key
        self._needs_input = needs_input
        make(spec.input_key, spec.output_key)  # what it is made of is wrong now, if ever

    def evaluate(self, history: History) -> NodeOutcome | Awaitable[NodeOutcome]:
        item = history.entries[-1][-1]
        if item.output_state is None:
            return Failure("skipped", NO_OUTPUT)
        if self._needs_input and item.input_state is None:
            return Failure("skipped", NO_INPUT)
        keys = (
            _choose_key(item.input_state, self._input_key),
            _choose_key(item.output_state, self._output_key),
        )
        return self._make(*keys).evaluate(history)


def _choose_key(state: Any, key: str | None) -> str | None:
    if key is None and isinstance(state, Mapping):
        own = cast(Mapping[str, Any], state)
        return TEXT if isinstance(own.get(TEXT), str) else None
    return key


def targets_of(spec: NodeChecks) -> Targets:
    return tuple(Instruction[name] for name in spec.only) or None


def open_rules(rules: Evaluator, spec: NodeChecks) -> NodeEvaluator:
    """Rules for texts as an evaluator of nodes."""
    return TextFirst("rules", lambda i, o: RulesEvaluator("rules", rules, o, input_key=i), spec)


def open_judge(name: str, judge: Evaluator, spec: NodeChecks) -> NodeEvaluator:
    """A judge as an evaluator of nodes, under its spec as its name."""
    return TextFirst(name, partial(JudgeEvaluator, name, judge), spec, needs_input=True)


def open_checks(spec: NodeChecks) -> list[NodeEvaluator]:
    """The evaluators that need nothing but the specification.

    Raises:
        InputError: a text or a number cannot be used.
    """
    checks: list[NodeEvaluator] = []
    if spec.consistency:
        compare = partial(ConsistencyEvaluator, "consistency")
        checks.append(TextFirst("consistency", lambda _, o: compare(o), spec))
    targets = targets_of(spec)
    for text in spec.threshold:
        key, least_number = read_pair("threshold", text)
        checks.append(ThresholdEvaluator(key, key, least_number, targets))
    if spec.latency is not None:
        checks.append(LatencyEvaluator("latency", spec.latency, target_instructions=targets))
    if spec.tokens is not None:
        checks.append(TokenEvaluator("tokens", spec.tokens, target_instructions=targets))
    return checks
