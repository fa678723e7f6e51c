"""Metrics of an agent's trajectory (its steps): which tools it called, in which order, with which
arguments.

They read the columns `tool_calls`, `steps` and `errors` of a row and never the output. The expected
calls come from the metric's option or from the column `expected_tools`. A row without a record of
calls has no score; an empty list of calls is a record.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult
from textevolve.metrics.plain import read_schema
from textevolve.rows.content import parse_json
from textevolve.texts.schema_check import find_data_faults
from textevolve.trajectory import ToolUse, Trajectory, read_trajectory

TrajectoryCheck: TypeAlias = Callable[[Trajectory], tuple[float, Sequence[str]]]
"""A function that scores a trajectory: it returns a score from 0 to 1, and the list of faults that
explain a lower score than 1."""

MODES = EXACT, IN_ORDER, ANY_ORDER = "exact", "in-order", "any-order"
MISSING = {
    "tool_calls": "no tool calls are recorded: the row has no column tool_calls, and no target"
    " reported calls",
    "expected_tools": "no expected tools: name them in the metric's option, or in the column"
    + " expected_tools (--map expected_tools=COLUMN)",
}
MOST_FEEDBACK = 1000
_COUNT = re.compile(r"([^=]+)(?:=([0-9]{1,9})?(?:(\.\.)([0-9]{1,9})?)?(?<!=))?")
ARGUMENTS = re.compile(r"([^=:]+)([=:])(.+)", re.DOTALL)
"""The pattern of the option of `tool-args`: the tool's name, then = with arguments in JSON, or a
colon with the file of a schema."""


@dataclass(frozen=True, slots=True)
class TrajectoryMetric:
    """A metric that scores the trajectory of a row. It passes only with a score of 1.

    Attributes:
        check: The function that returns the score and the list of faults.
        blocks: Always True: a pattern in a schema may take seconds, so the metric must not run on
            the event loop.
    """

    check: TrajectoryCheck
    blocks: ClassVar[bool] = True

    def __call__(self, output: str, label: Any, row: Mapping[str, Any]) -> EvaluationResult:
        score, faults = self.check(read_trajectory(row, "the row") or Trajectory())
        feedback = "" if score == 1 else "\n".join(filter(None, faults))[:MOST_FEEDBACK]
        return EvaluationResult(score, score == 1, feedback)


def open_called(option: str) -> TrajectoryCheck:
    """Return the metric that counts the calls of one tool: `NAME`, or `NAME=COUNT` with COUNT such
    as 2, 2.., ..2 or 1..3."""
    if (match := _COUNT.fullmatch(option)) is None:
        raise InputError(
            f"metric tool-called:{option}: write tool-called:NAME, or with a count"
            " tool-called:NAME=2, =2.. (two or more), =..2 or =1..3"
        )
    name, low, dots, high = match.groups()
    least = int(low or "=" not in option)
    most = int(high) if high else least if low and not dots else math.inf

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        calls = sum(call.name == name for call in list_calls(trajectory))
        return float(least <= calls <= most), [f"calls of {name}: {calls}"]

    return check


def open_sequence(option: str) -> TrajectoryCheck:
    """Return the metric that compares the names of all tool calls with the expected names:
    `[MODE][:NAME,NAME,...]`, by default those in the row's `expected_tools`. Mode `exact` (the
    default): the same names in the same order; `in-order`: other calls may come between;
    `any-order`: the score is the share of the expected calls that were made."""
    mode, colon, listed = option.partition(":")
    if mode not in MODES and colon:
        raise InputError(f"metric tool-sequence:{option}: the mode is one of {', '.join(MODES)}")
    if mode not in MODES:
        mode, listed = EXACT, option
    names = [name.strip() for name in listed.split(",")] if listed else None

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        called = [call.name for call in list_calls(trajectory)]
        expected = names or [call.name for call in list_calls(trajectory, "expected_tools")]
        faults = [f"called: {', '.join(called) or 'none'}", f"expected: {', '.join(expected)}"]
        if mode == ANY_ORDER and expected:
            return (Counter(called) & Counter(expected)).total() / len(expected), faults
        remaining = iter(called)
        is_among = (
            mode == IN_ORDER and bool(expected) and all(name in remaining for name in expected)
        )
        return float(called == expected or is_among), faults

    return check


def open_arguments(option: str) -> TrajectoryCheck:
    """Return the metric that checks the arguments of tool calls. `NAME:FILE`: every call of the
    tool follows the JSON schema in the file. `NAME=JSON`: at least one call has these arguments.
    Empty: for each expected call of the row, one call has its arguments."""
    match = ARGUMENTS.fullmatch(option)
    if option and match is None:
        raise InputError(
            f"metric tool-args:{option}: write tool-args:NAME:SCHEMA.json, or the arguments as JSON"
            " in tool-args:NAME={...}"
        )
    name, sign, value = match.groups() if match else ("", "", "")
    schema = read_schema(value) if sign == ":" else {}
    if sign == "=":
        schema = {"const": parse_json(value, f"metric tool-args:{option:.60}", "value")}

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        calls = list_calls(trajectory)
        expected = () if sign else list_calls(trajectory, "expected_tools")
        expected_calls = [
            (u.name, {"const": u.arguments}) for u in expected if u.arguments is not None
        ]
        own = [
            _find_faults(calls, *pair) for pair in ([(name, schema)] if sign else expected_calls)
        ]
        if not own:
            raise InputError("expected_tools has no arguments to compare with")
        faults = own[0] if sign == ":" else ["" if "" in few else few[-1] for few in own]
        return faults.count("") / len(faults), faults

    return check


def _find_faults(calls: Sequence[ToolUse], name: str, schema: Mapping[str, Any]) -> list[str]:
    """Return for each call of a tool a text with its violations of the schema, empty if there are
    none; a single text if the tool was not called."""
    call_arguments = [call.arguments for call in calls if call.name == name]
    if None in call_arguments:
        raise InputError(f"the arguments of {name} were not recorded")
    broken = ["not valid JSON"]
    faults = [
        broken if isinstance(arguments, str) else find_data_faults(arguments, schema)
        for arguments in call_arguments
    ]
    return ["; ".join(few) and f"arguments of {name}: {'; '.join(few)}" for few in faults] or [
        f"{name} was not called"
    ]


def open_max_steps(option: str) -> TrajectoryCheck:
    """Return the metric that checks an agent's number of steps, or of tool calls if no steps are
    recorded, against a budget. Above the budget, the score is the budget divided by the number."""
    if not re.fullmatch("[0-9]{1,9}", option):
        raise InputError(f"metric max-steps:{option}: write max-steps:NUMBER, such as max-steps:5")
    most = int(option)

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        known = trajectory.steps
        steps = len(list_calls(trajectory)) if known is None else known
        return most / max(most, steps) if steps else 1.0, [f"{steps} steps"]

    return check


def find_errors(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
    """Return score 1 if no tool call and no other step ended with an error, otherwise 0, with the
    list of errors."""
    calls = list_calls(trajectory) if trajectory.steps is None else trajectory.tool_calls or ()
    errors = [f"{call.name}: {call.error}" for call in calls if call.error is not None]
    errors += trajectory.errors
    return float(not errors), errors


def list_calls(trajectory: Trajectory, column: str = "tool_calls") -> Sequence[ToolUse]:
    """Return the recorded tool calls of a row, or its expected ones with the column
    `expected_tools`.

    Raises:
        InputError: there is no such list in the row, which is not the same as an empty one.
    """
    if (calls := getattr(trajectory, column)) is None:
        raise InputError(MISSING[column])
    return calls
