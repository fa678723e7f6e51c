"""The table of all metrics by their names, and how a metric is opened and scores an output.

    exact[:ignore-case]     the output equals the label
    contains[:ignore-case]  the output contains the label
    regex:PATTERN           a pattern matches in the output
    numeric[:TOLERANCE]     the output's last number equals the label's
    json-schema:FILE        the output is JSON that follows a schema
    edit-distance, rouge-l, bleu, chrf
                            how similar the output's text is to the label's
    tool-called, tool-sequence, tool-args, max-steps, no-error
                            what the record of an agent's steps in the row shows
    MODULE:FUNCTION or FILE.py:FUNCTION

The functions that compute them are in `plain.py`, `trajectory_metrics.py` and `overlap.py`; the
last one needs the extra `metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, SettingsError, describe_error
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.metrics.plain import (
    LABEL,
    open_contains,
    open_exact,
    open_numeric,
    open_pattern,
    open_schema,
)
from textevolve.metrics.shapes import LabelMetric, call_metric, check_metric, read_score
from textevolve.metrics.trajectory_metrics import (
    ARGUMENTS,
    TrajectoryCheck,
    TrajectoryMetric,
    find_errors,
    open_arguments,
    open_called,
    open_max_steps,
    open_sequence,
)
from textevolve.rows import read_text
from textevolve.spec import suggest
from textevolve.texts.patterns import search_apart
from textevolve.user_code import load_function

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
    "numeric": ShippedMetric("numeric[:TOLERANCE]", open_numeric),
    "json-schema": ShippedMetric("json-schema:FILE", open_schema, labelled=False),
    "edit-distance": ShippedMetric("edit-distance", _overlap_metric("edit_distance")),
    "rouge-l": ShippedMetric("rouge-l", _overlap_metric("rouge_l")),
    "bleu": ShippedMetric("bleu", _overlap_metric("bleu")),
    "chrf": ShippedMetric("chrf", _overlap_metric("chrf")),
    "tool-called": _trajectory_metric("tool-called:NAME[=COUNT]", open_called),
    "tool-sequence": _trajectory_metric("tool-sequence[:MODE][:NAME,NAME]", open_sequence),
    "tool-args": _trajectory_metric("tool-args[:NAME:SCHEMA.json|:NAME=JSON]", open_arguments),
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
            return SHIPPED[name].open(argument)
        except ModuleNotFoundError as error:
            raise SettingsError(
                f'metric {name} needs {error.name}: pip install "textevolve[metrics]"'
            ) from None
    if colon:
        return check_metric(load_function(text, Path()), text)
    near = suggest(text, tuple(SHIPPED)).partition("; there are")[0] or "."
    raise InputError(f"no metric '{text}'{near} Write {FORMS}")


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
    """Return the text of the file that a metric names, as a part of the metric's identity: a metric
    with a changed file is another metric. Empty if the metric names no file.

    Raises:
        InputError: the file cannot be read.
    """
    name, _, argument = metric.partition(":")
    if name == "json-schema":
        return read_text(argument)
    if name == "tool-args" and (match := ARGUMENTS.fullmatch(argument)) and match[2] == ":":
        return read_text(match[3])
    file = metric.rpartition(":")[0]
    return read_text(file) if name not in SHIPPED and file.endswith(".py") else ""


async def grade_output(
    metric: LabelMetric,
    output: str,
    label: Any,
    passes: float = PASSES,
    row: Mapping[str, Any] = NO_ROW,
) -> EvaluationResult | Failure:
    """Score an output with a metric, like `grade`, but in a thread if the metric may be slow
    (`blocks`) or the output is longer than `GRADED_AT_ONCE`, so the event loop is not blocked."""
    if getattr(metric, "blocks", False):
        return await search_apart(grade, metric, output, label, passes, row)
    if len(output) > GRADED_AT_ONCE:
        return await asyncio.to_thread(grade, metric, output, label, passes, row)
    return grade(metric, output, label, passes, row)


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
