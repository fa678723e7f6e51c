"""Evaluators over recorded nodes as they are named on the command line; judges are in `nodes.py`.

A state that has a `text` is judged by it, any other as a whole, unless fields are named.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import Failure
from textevolve.loops.rules import load_rules
from textevolve.node_eval.checks import (
    ConsistencyEvaluator,
    LatencyEvaluator,
    LengthEvaluator,
    RulesEvaluator,
    SchemaEvaluator,
    TokenEvaluator,
)
from textevolve.node_eval.evaluators import NodeEvaluator, Outcome, Targets, ThresholdEvaluator
from textevolve.node_eval.history import History
from textevolve.node_eval.instructions import Instruction
from textevolve.rows import read_text

NO_OUTPUT = "no output was recorded"
NO_INPUT = "no input was recorded"
TEXT = "text"

Make = Callable[[str | None, str | None], NodeEvaluator]
"""An evaluator of the fields of input and output that are named; None is the whole state."""


class TextFirst(NodeEvaluator):
    """The evaluator that `make` gives, on the fields that are named, or else on the text of states
    that have one. A node of which nothing was recorded is skipped."""

    def __init__(
        self,
        name: str,
        make: Make,
        input_key: str | None = None,
        output_key: str | None = None,
        target_instructions: Targets = None,
        *,
        needs_input: bool = False,
    ) -> None:
        super().__init__(name, target_instructions)
        self._make = cache(make)
        self._input_key, self._output_key = input_key, output_key
        self._needs_input = needs_input
        make(input_key, output_key)  # what it is made of is wrong now, if ever

    def evaluate(self, history: History) -> Outcome | Awaitable[Outcome]:
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


def choose_checks(
    *,
    rules: str | None = None,
    thresholds: Sequence[tuple[str, float]] = (),
    length: tuple[int | None, int | None] | None = None,
    schema: str | None = None,
    latency: float | None = None,
    tokens: int | None = None,
    consistency: bool = False,
    input_key: str | None = None,
    output_key: str | None = None,
    only: Sequence[Instruction] = (),
) -> list[NodeEvaluator]:
    """The evaluators that ask no model. `rules` and `schema` are files; `length` in characters;
    `latency` in seconds; `only`: the types of nodes that they judge, all where it is empty.

    Raises:
        InputError: a file or a number cannot be used.
    """
    targets = tuple(only) or None
    made: dict[str, Make] = {}
    if rules is not None:
        found = load_rules(rules)
        made["rules"] = lambda i, o: RulesEvaluator("rules", found, o, input_key=i)
    if length is not None:
        least, most = length
        made["length"] = lambda _, o: LengthEvaluator(
            "length", o, least=least or 0, most=most, unit="characters"
        )
    if schema is not None:
        content = _read_schema(schema)
        made["schema"] = lambda _, o: SchemaEvaluator("schema", content, o)
    if consistency:
        made["consistency"] = lambda _, o: ConsistencyEvaluator("consistency", o)
    checks: list[NodeEvaluator] = [
        TextFirst(name, make, input_key, output_key, targets) for name, make in made.items()
    ]
    checks += [ThresholdEvaluator(key, key, value, targets) for key, value in thresholds]
    if latency is not None:
        checks.append(LatencyEvaluator("latency", latency, target_instructions=targets))
    if tokens is not None:
        checks.append(TokenEvaluator("tokens", tokens, target_instructions=targets))
    return checks


def _read_schema(path: str) -> Mapping[str, Any]:
    try:
        content: object = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise InputError(f"schema {path}: not valid JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"schema {path}: must be a JSON object")
    return cast(dict[str, Any], content)
