"""Metrics of an agent's steps: which tools it called, in which order, with which arguments.

They read the columns `tool_calls`, `steps` and `errors` of a row, never the output, and take the
expected calls from their option or from the column `expected_tools`. A row without a record of
calls has no score; an empty list of calls is a record.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult
from textevolve.metrics.plain import read_schema
from textevolve.rows.content import parse_json
from textevolve.texts.schema_check import find_data_faults
from textevolve.trajectory import ToolUse, Trajectory, read_trajectory

TrajectoryCheck: TypeAlias = Callable[[Trajectory], tuple[float, Sequence[str]]]
"""Returns a score from 0 to 1, and what is wrong where it is below 1."""

EXACT, ANY_ORDER = "exact", "any-order"
MODES = (EXACT, "in-order", ANY_ORDER)
MOST_FEEDBACK = 1000
_COUNT = re.compile(r"([^=]+)(?:=([0-9]{1,9})?(?:(\.\.)([0-9]{1,9})?)?(?<!=))?")
ARGUMENTS = re.compile(r"([^=~:]+)([=~:])(.+)", re.DOTALL)
"""Of `tool-args`: the tool, then = or ~ with JSON, or a colon with the file of a schema."""


@dataclass(frozen=True, slots=True)
class TrajectoryMetric:
    """Scores the trajectory of a row; it passes with the whole score alone. `blocks`: a schema may
    have a pattern that takes seconds."""

    check: TrajectoryCheck
    blocks: ClassVar[bool] = True

    def __call__(self, output: str, label: Any, row: Mapping[str, Any]) -> EvaluationResult:
        score, faults = self.check(read_trajectory(row, "the row") or Trajectory())
        feedback = "" if score == 1 else "\n".join(filter(None, faults))[:MOST_FEEDBACK]
        return EvaluationResult(score, score == 1, feedback)


def open_called(option: str) -> TrajectoryCheck:
    """Count the calls of one tool: `NAME`, or `NAME=COUNT` with 2, 2.., ..2 or 1..3."""
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
    """Compare the names of all calls with the expected ones: `[MODE][:NAME,NAME,...]`."""
    mode, colon, listed = option.partition(":")
    if mode not in MODES and colon:
        raise InputError(f"metric tool-sequence:{option}: the mode is one of {', '.join(MODES)}")
    if mode not in MODES:
        mode, listed = EXACT, option
    names = [name.strip() for name in listed.split(",")] if listed else None

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        called = [call.name for call in list_calls(trajectory)]
        expected = names or [call.name for call in _list_expected(trajectory)]
        faults = [f"called: {', '.join(called) or 'none'}", f"expected: {', '.join(expected)}"]
        if mode == EXACT or not expected:
            return float(called == expected), faults
        common = (Counter(called) & Counter(expected)).total()
        common = common if mode == ANY_ORDER else _common_length(called, expected)
        return common / len(expected), faults

    return check


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Count the names of the longest common subsequence, in bits of one integer (Hyyrö, 2004)."""
    places: dict[str, int] = {}
    for place, name in enumerate(first):
        places[name] = places.get(name, 0) | 1 << place
    whole = row = (1 << len(first)) - 1
    for name in second:
        matches = row & places.get(name, 0)
        row = ((row + matches) | (row - matches)) & whole
    return len(first) - row.bit_count()


def open_arguments(option: str) -> TrajectoryCheck:
    """Check arguments: of each call of a tool by the schema of a file (`NAME:FILE`); of at least
    one call by a value (`NAME=JSON`), or by a part of them (`NAME~JSON`). Without a tool, each
    expected call of the row needs a call with its arguments, or after `~` with more."""
    match = ARGUMENTS.fullmatch(option)
    if match is None and option not in ("", "~"):
        raise InputError(
            f"metric tool-args:{option}: write tool-args:NAME:SCHEMA.json, or the arguments as JSON"
            " in tool-args:NAME={...}"
        )
    name, sign, value = match.groups() if match else ("", option, "")
    partial, wanted = sign == "~", list[tuple[str, Mapping[str, Any]]]()
    if sign == ":":
        wanted = [(name, read_schema(value))]
    elif value:
        arguments = parse_json(value, f"metric tool-args:{option:.60}", "value")
        wanted = [(name, _value_schema(arguments, partial))]

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        calls = list_calls(trajectory)
        expected = () if wanted else _list_expected(trajectory)
        known = [use for use in expected if use.arguments is not None]
        pairs = wanted or [(use.name, _value_schema(use.arguments, partial)) for use in known]
        if not pairs:
            raise InputError("expected_tools has no arguments to compare with")
        own = [_find_faults(calls, *pair) for pair in pairs]
        faults = own[0] if sign == ":" else ["" if "" in few else few[-1] for few in own]
        return faults.count("") / len(faults), faults

    return check


def _find_faults(calls: Sequence[ToolUse], name: str, schema: Mapping[str, Any]) -> list[str]:
    """List for each call of a tool what breaks the schema; empty if nothing does."""
    own = [call.arguments for call in calls if call.name == name]
    if None in own:
        raise InputError(f"the arguments of {name} were not recorded")
    broken = ["not valid JSON"]
    faults = [broken if isinstance(one, str) else find_data_faults(one, schema) for one in own]
    told = [" ".join([f"arguments of {name}:", *few]) if few else "" for few in faults]
    return told or [f"{name} was not called"]


def _value_schema(value: Any, partial: bool) -> Mapping[str, Any]:
    """Return the schema of a value: 1 equals 1.0, and true is no number."""
    if not partial or not isinstance(value, dict):
        return {"const": value}
    fields = cast("dict[str, Any]", value)
    inner = {name: _value_schema(one, partial) for name, one in fields.items()}
    return {"type": "object", "required": list(fields), "properties": inner}


def open_max_steps(option: str) -> TrajectoryCheck:
    """Hold the number of steps, or else of calls, against a budget; above it the score is the
    budget by the steps."""
    if not re.fullmatch("[0-9]{1,9}", option):
        raise InputError(f"metric max-steps:{option}: write max-steps:NUMBER, such as max-steps:5")
    most = int(option)

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        known = trajectory.steps
        steps = len(list_calls(trajectory)) if known is None else known
        return most / max(most, steps) if steps else 1.0, [f"{steps} steps"]

    return check


def find_errors(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
    """Look for calls of tools, and other steps, that ended with an error."""
    calls = list_calls(trajectory) if trajectory.steps is None else trajectory.tool_calls or ()
    errors = [f"{call.name}: {call.error}" for call in calls if call.error is not None]
    errors += trajectory.errors
    return float(not errors), errors


def list_calls(trajectory: Trajectory) -> Sequence[ToolUse]:
    """
    Raises:
        InputError: no calls are recorded, which is not the same as an empty list.
    """
    missing = "no tool calls are recorded: neither a column tool_calls nor a target states them"
    return _require(trajectory.tool_calls, missing)


def _list_expected(trajectory: Trajectory) -> Sequence[ToolUse]:
    missing = "no expected tools: name them in the metric's option or in the column expected_tools"
    return _require(trajectory.expected_tools, f"{missing} (--map expected_tools=COLUMN)")


def _require(calls: Sequence[ToolUse] | None, missing: str) -> Sequence[ToolUse]:
    if calls is None:
        raise InputError(missing)
    return calls
