"""Grading an output by its label with code: exact match, a pattern, or a function of the user's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure

Metric: TypeAlias = Callable[[str, Any], float | bool]
"""From an output and its row's label (None without one) to a score in [0, 1], or a truth value."""

GROUP = "textevolve.metrics"
LABEL = "{label}"


def open_metric(text: str) -> Metric:
    """`exact`, `regex:PATTERN`, `MODULE:FUNCTION`, or the name of an entry point of the group
    `textevolve.metrics`.

    `exact` compares without the white space around. `regex` looks for the pattern anywhere in the
    output; `{label}` in it stands for the row's label.

    Raises:
        InputError: there is no such metric, or the pattern is not valid.
    """
    if text == "exact":
        return _match_exactly
    kind, colon, rest = text.partition(":")
    if kind == "regex" and colon:
        return _match_pattern(rest)
    if colon:
        return _import(text, kind, rest)
    for point in entry_points(group=GROUP, name=text):
        return _callable(text, point.load())
    raise InputError(
        f"no metric '{text}': give exact, regex:PATTERN, MODULE:FUNCTION or an entry point of the"
        f" group {GROUP}"
    )


def needs_label(metric: str) -> bool:
    """Whether a metric, by its text, can say nothing without a label."""
    return metric == "exact" or (metric.startswith("regex:") and LABEL in metric)


def grade(metric: Metric, output: str, label: Any) -> EvaluationResult | Failure:
    """The metric's score. A metric that raises, or gives no number in [0, 1], has failed."""
    try:
        given = metric(output, label)
        score = float(given)
    except Exception as error:  # noqa: BLE001  the user's code, on a text that may be anything
        return Failure("failed", f"the metric raised {type(error).__name__}: {error}")
    if not math.isfinite(score) or not 0 <= score <= 1:
        return Failure("failed", f"the metric gave {given!r}, which is no score from 0 to 1")
    return EvaluationResult(score=score, passed=score >= 0.5)


def _match_exactly(output: str, label: Any) -> bool:
    return output.strip() == str(label).strip()


def _match_pattern(pattern: str) -> Metric:
    try:
        re.compile(pattern.replace(LABEL, ""))
    except re.error as error:
        raise InputError(f"regex:{pattern}: not a valid pattern ({error})") from None

    def match(output: str, label: Any) -> bool:
        return re.search(pattern.replace(LABEL, re.escape(str(label))), output) is not None

    return match


def _import(text: str, module: str, name: str) -> Metric:
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"metric {text}: cannot be imported ({error})") from None
    return _callable(text, found)


def _callable(text: str, found: Any) -> Metric:
    if not callable(found):
        raise InputError(f"metric {text}: is no function but {type(found).__name__}")
    return cast(Metric, found)
