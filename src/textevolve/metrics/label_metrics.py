"""The table of all metrics by their names, and how a metric is opened and scores an output.

    exact[:ignore-case]     the output equals the label
    contains[:ignore-case]  the output contains the label
    regex:PATTERN           a pattern matches in the output
    numeric[:TOLERANCE][:decimal-comma|-point]  the output's last number equals the label's
    json-schema:FILE        the output is JSON that follows a schema
    edit-distance, rouge-l, rouge-n, bleu, gleu, chrf
                            how similar the output's text is to the label's
    tool-called, tool-sequence, tool-args, max-steps, no-error
                            what the record of an agent's steps in the row shows
    MODULE:FUNCTION or FILE.py:FUNCTION

The functions that compute them are in `plain.py`, `trajectory_metrics.py` and `overlap.py`; the
last one needs the extra `metrics`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from textevolve.errors import InputError, SettingsError, describe_error
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.json_texts import is_array, is_object, parse_printed, write_text
from textevolve.mappings import map_values
from textevolve.metrics.plain import (
    LABEL,
    PACKAGE,
    LabelMetric,
    call_metric,
    check_metric,
    open_contains,
    open_exact,
    open_numeric,
    open_pattern,
    open_schema,
    read_schema,
    read_score,
)
from textevolve.rows import read_text
from textevolve.rows.columns import list_answers
from textevolve.rows.tables import parse_json
from textevolve.spec import suggest
from textevolve.texts.patterns import search_apart
from textevolve.texts.schema_check import find_data_faults
from textevolve.trajectory import ToolUse, Trajectory, read_trajectory
from textevolve.user_code import FirstResults, digest_code, load_function

# Metrics of an agent's trajectory (its steps): which tools it called, in which order, with which
# arguments.
#
# They read the columns `tool_calls`, `steps` and `errors` of a row and never the output. The
# expected calls come from the metric's option or from the column `expected_tools`. A row without a
# record of calls has no score; an empty list of calls is a record.

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
_COUNT = re.compile(r"([^=*?{]+)(?:=([0-9]{1,9})?(?:(\.\.)([0-9]{1,9})?)?(?<!=))?")
ARGUMENTS = re.compile(r"([^=:~*?{]+)([=:~])(.+)", re.DOTALL)
"""The pattern of the option of `tool-args`: the tool's name, then = with arguments in JSON, ~ with
some of the arguments, or a colon with the file of a schema."""


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
            f"metric tool-called:{option}: write tool-called:NAME, a whole name, or with a count"
            " tool-called:NAME=2, =2.. (two or more), =..2 or =1..3"
        )

    name, low, dots, high = match.groups()
    least = int(low or "=" not in option)
    most = math.inf
    if high:
        most = int(high)
    elif low and not dots:  # a number alone is the exact count
        most = least

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
    if (mode not in MODES and colon) or re.search(r"[*?{]", option):
        raise InputError(
            f"metric tool-sequence:{option}: the mode is one of {', '.join(MODES)}, and tools have"
            " their whole names"
        )
    if mode not in MODES:
        mode = EXACT
        listed = option
    names = [name.strip() for name in listed.split(",")] if listed else None

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        called = [call.name for call in list_calls(trajectory)]
        expected = names or [call.name for call in list_calls(trajectory, "expected_tools")]
        faults = [f"called: {', '.join(called) or 'none'}", f"expected: {', '.join(expected)}"]
        if mode == ANY_ORDER and expected:
            return (Counter(called) & Counter(expected)).total() / len(expected), faults

        is_right = called == expected
        if mode == IN_ORDER and expected:
            # `in` consumes the iterator, so each name is searched after the one before.
            remaining = iter(called)
            is_right = all(name in remaining for name in expected)

        return float(is_right), faults

    return check


def open_arguments(option: str) -> TrajectoryCheck:
    """Return the metric that checks the arguments of tool calls. `NAME:FILE`: every call of the
    tool follows the JSON schema in the file. `NAME=JSON`: at least one call has these arguments.
    `NAME~JSON`: it may have others, too. Empty: for each expected call of the row, one call has its
    arguments."""
    match = ARGUMENTS.fullmatch(option)

    if option and match is None:
        raise InputError(
            f"metric tool-args:{option}: write tool-args:NAME:SCHEMA.json with a whole name, or the"
            " arguments as JSON in tool-args:NAME={...}"
        )

    name, sign, value = match.groups() if match else ("", "", "")
    schema = read_schema(value) if sign == ":" else {}
    if sign in ("=", "~"):
        arguments = parse_json(value, f"metric tool-args:{option:.60}", "value")
        schema = {"const": arguments} if sign == "=" else _require(arguments)

    def check(trajectory: Trajectory) -> tuple[float, Sequence[str]]:
        calls = list_calls(trajectory)
        expected = () if sign else list_calls(trajectory, "expected_tools")
        expected_calls = [
            (u.name, {"const": u.arguments}) for u in expected if u.arguments is not None
        ]
        faults_of_calls = [
            _find_faults(calls, *pair) for pair in ([(name, schema)] if sign else expected_calls)
        ]
        if not faults_of_calls:
            raise InputError("expected_tools has no arguments to compare with")
        if sign == ":":
            faults = faults_of_calls[0]
        else:
            # An expected call is found if one of the calls of its name fits.
            faults = ["" if "" in few else few[-1] for few in faults_of_calls]

        return faults.count("") / len(faults), faults

    return check


def _require(value: Any) -> dict[str, Any]:
    """Return the schema of values that have what a value has: an object may have further fields,
    at any depth."""
    if is_object(value):
        fields = map_values(_require, value)
        return {"type": "object", "required": list(fields), "properties": fields}
    if is_array(value):
        return {
            "type": "array",
            "prefixItems": list(map(_require, value)),
            "minItems": len(value),
            "maxItems": len(value),
        }
    return {"const": value}


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
        steps = len(list_calls(trajectory)) if trajectory.steps is None else trajectory.steps
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


@dataclass(frozen=True, slots=True)
class AnswerMetric:
    """A metric for labels that may be a list of accepted answers, of which the best one counts. An
    output that is a list itself is compared with the whole list, too.

    Attributes:
        metric: The metric for one answer.
        blocks: Whether it may be slow, and must not run on the event loop.
    """

    metric: LabelMetric
    blocks: bool = False

    def __call__(self, output: str, label: Any) -> Any:
        answers = list(list_answers(label))
        if len(answers) > 1 and not isinstance(parse_printed(output), str):
            answers.append(write_text(label))

        results: list[Any] = []
        faults: list[InputError] = []
        for answer in answers:
            try:
                results.append(self.metric(output, answer))
            except InputError as fault:
                # Such as an answer in words beside the same number in digits.
                faults.append(fault)
        if not results:
            raise faults[0]

        return max(results, key=lambda result: getattr(result, "score", result))


PASSES = 0.5
"""The default threshold: the lowest score with which an output passes."""
NO_ROW: Mapping[str, Any] = {}
GRADED_AT_ONCE = 10_000
"""The length in characters up to which an output is scored on the event loop; a longer one is
scored in a thread."""


@dataclass(frozen=True, slots=True)
class ShippedMetric:
    """A built-in metric.

    Attributes:
        form: Its syntax, for help texts.
        open: A function that creates the metric from the text after the colon, which may be empty.
        labelled: Whether the metric needs a label.
        trajectory: Whether it reads the record of an agent's steps instead of the output.
    """

    form: str
    open: Callable[[str], LabelMetric]
    labelled: bool = True
    trajectory: bool = False


def _trajectory_metric(form: str, opener: Callable[[str], TrajectoryCheck]) -> ShippedMetric:
    return ShippedMetric(form, lambda text: TrajectoryMetric(opener(text)), False, True)


def _overlap_metric(function: str) -> Callable[[str], LabelMetric]:
    """Return an opener for a function of `overlap.py`, which is imported with its first use."""
    return lambda _argument: getattr(import_module("textevolve.metrics.overlap"), function)


SHIPPED: Mapping[str, ShippedMetric] = {
    "exact": ShippedMetric("exact[:ignore-case]", open_exact),
    "contains": ShippedMetric("contains[:ignore-case]", open_contains),
    "regex": ShippedMetric("regex:PATTERN", open_pattern, labelled=False),
    "numeric": ShippedMetric("numeric[:TOLERANCE][:decimal-comma|-point]", open_numeric),
    "json-schema": ShippedMetric("json-schema:FILE", open_schema, labelled=False),
    "edit-distance": ShippedMetric("edit-distance", _overlap_metric("edit_distance")),
    "rouge-l": ShippedMetric("rouge-l", _overlap_metric("rouge_l")),
    "rouge-n": ShippedMetric("rouge-n", _overlap_metric("rouge_1")),
    "bleu": ShippedMetric("bleu", _overlap_metric("bleu")),
    "gleu": ShippedMetric("gleu", _overlap_metric("gleu")),
    "chrf": ShippedMetric("chrf", _overlap_metric("chrf")),
    "tool-called": _trajectory_metric("tool-called:NAME[=COUNT]", open_called),
    "tool-sequence": _trajectory_metric("tool-sequence[:MODE][:NAME,NAME]", open_sequence),
    "tool-args": _trajectory_metric(
        "tool-args[:NAME:SCHEMA.json|:NAME=JSON|:NAME~JSON]", open_arguments
    ),
    "max-steps": _trajectory_metric("max-steps:NUMBER", open_max_steps),
    "no-error": _trajectory_metric("no-error", lambda _option: find_errors),
}
FORMS = f"{', '.join(one.form for one in SHIPPED.values())}, FILE.py:FUNCTION or MODULE:FUNCTION"
"""The syntax of all metrics, for help texts and errors."""


def open_metric(text: str) -> LabelMetric:
    """Return the metric that a text such as `regex:PATTERN` or `FILE.py:FUNCTION` names.

    Raises:
        InputError: there is no such metric, or its option cannot be used; says what there is.
        SettingsError: the packages that it needs are not installed.
    """
    name, colon, argument = text.partition(":")

    if name in SHIPPED:
        form = SHIPPED[name].form
        if (colon and not argument) or (argument and form == name):
            raise InputError(f"metric {text}: write {form}")
        try:
            metric = SHIPPED[name].open(argument)
        except ModuleNotFoundError as error:
            raise SettingsError(
                f'metric {name} needs {error.name}: pip install "textevolve[metrics]"'
            ) from None
        if not needs_label(text):
            return metric
        return AnswerMetric(metric, getattr(metric, "blocks", False))

    if colon:
        return check_metric(load_function(text, Path()), text)
    near = suggest(text, tuple(SHIPPED)).partition("; there are")[0]
    raise InputError(f"no metric '{text}'. Write {FORMS}{near}")


def is_shipped(metric: str) -> bool:
    """Return whether a metric is built in, and no function of the user. `metric` is its name with
    options."""
    return metric.partition(":")[0] in SHIPPED


def needs_label(metric: str) -> bool:
    """Return whether a built-in metric needs a label; always False for a user's function. `metric`
    is its name with options."""
    name, _, argument = metric.partition(":")
    if name == "regex":
        return LABEL in argument
    return name in SHIPPED and SHIPPED[name].labelled


def reads_trajectory(metric: str) -> bool:
    """Return whether a metric reads the record of an agent's steps; `metric` is its name with
    options."""
    name = metric.partition(":")[0]
    return name in SHIPPED and SHIPPED[name].trajectory


def describe_metric(metric: str) -> str:
    """Return what the file or function that a metric names holds, as a part of the metric's
    identity: the text of a schema, the digest of code. Empty if the metric names neither.

    Raises:
        InputError: the file cannot be read.
    """
    name, _, argument = metric.partition(":")
    if name == "json-schema":
        return read_text(argument)
    if name == "tool-args" and (match := ARGUMENTS.fullmatch(argument)) and match[2] == ":":
        return read_text(match[3])

    return "" if name in SHIPPED else digest_code(metric)


async def grade_output(
    metric: LabelMetric,
    output: str,
    label: Any,
    passes: float = PASSES,
    row: Mapping[str, Any] = NO_ROW,
) -> EvaluationResult | Failure:
    """Score an output with a metric, like `grade`, but in a thread if the metric is the user's, may
    be slow (`blocks`), or the output is longer than `GRADED_AT_ONCE`, so that the event loop is not
    blocked, and the user's code may run one of its own."""
    if getattr(metric, "blocks", False):
        return await search_apart(grade, metric, output, label, passes, row)
    if len(output) > GRADED_AT_ONCE or not _is_ours(metric):
        return await asyncio.to_thread(grade, metric, output, label, passes, row)

    return grade(metric, output, label, passes, row)


@dataclass(frozen=True, slots=True)
class Grader:
    """A metric as a run uses it: its first results decide whether the run continues."""

    metric: LabelMetric
    first_results: FirstResults = field(default_factory=lambda: FirstResults("the metric"))

    @property
    def is_quick(self) -> bool:
        """Return whether the metric scores an output in microseconds, so that the event loop need
        not call it in a thread: those of this package that search for no pattern of the user."""
        return _is_ours(self.metric) and not getattr(self.metric, "blocks", False)

    async def __call__(
        self, output: str, label: Any, row: Mapping[str, Any]
    ) -> EvaluationResult | Failure:
        """Score an output like `grade_output`.

        Raises:
            FatalModelError: none of the first outputs got a score.
        """
        graded = await grade_output(self.metric, output, label, row=row)
        self.first_results.note(graded)
        return graded


def _is_ours(metric: LabelMetric) -> bool:
    return str(getattr(metric, "__module__", "")).partition(".")[0] == PACKAGE


def grade(
    metric: LabelMetric,
    output: str,
    label: Any,
    passes: float = PASSES,
    row: Mapping[str, Any] = NO_ROW,
) -> EvaluationResult | Failure:
    """Score an output with a metric; a Failure if the metric raises or returns no number in [0, 1].
    `passes`: the lowest score that passes. `row`: the values of the row by column, for a metric
    that takes them."""
    try:
        return read_score(call_metric(metric, output, label, row), passes)
    except InputError as error:
        return Failure("failed", str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code, on any text
        return Failure("failed", f"the metric raised {describe_error(error)}")
