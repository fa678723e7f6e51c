"""Grading an output by its label with code: exact match, a pattern, or a function of the user's."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.loops.rule_kinds import find_callable
from textevolve.texts.patterns import is_found, may_be_slow

LabelMetric: TypeAlias = Callable[[str, Any], float | bool]
"""From an output and its row's label (None without one) to a score in [0, 1], or a truth value."""

GROUP = "textevolve.metrics"
LABEL = "{label}"


def open_metric(text: str) -> LabelMetric:
    """`exact`, `regex:PATTERN`, `MODULE:FUNCTION`, `FILE.py:FUNCTION`, or the name of an entry
    point of the group `textevolve.metrics`.

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
        return cast(LabelMetric, find_callable(text, Path()))
    for point in entry_points(group=GROUP, name=text):
        return cast(LabelMetric, point.load())
    raise InputError(
        f"no metric '{text}': give exact, regex:PATTERN, MODULE:FUNCTION, FILE.py:FUNCTION or an"
        f" entry point of the group {GROUP}"
    )


def needs_label(metric: str) -> bool:
    """Whether a metric, by its text, can say nothing without a label."""
    return metric == "exact" or (metric.startswith("regex:") and LABEL in metric)


async def grade_output(metric: LabelMetric, output: str, label: Any) -> EvaluationResult | Failure:
    """As `grade`; a pattern that may be slow holds nothing else up."""
    if isinstance(metric, PatternMetric) and metric.blocks:
        return await asyncio.to_thread(grade, metric, output, label)
    return grade(metric, output, label)


def grade(metric: LabelMetric, output: str, label: Any) -> EvaluationResult | Failure:
    """The metric's score. A metric that raises, or gives no number in [0, 1], has failed."""
    try:
        given = metric(output, label)
        score = math.nan if isinstance(given, str) else float(given)
    except Exception as error:  # noqa: BLE001  the user's code, on a text that may be anything
        return Failure("failed", f"the metric raised {type(error).__name__}: {error}")
    if not math.isfinite(score) or not 0 <= score <= 1:
        return Failure("failed", f"the metric gave {given!r}, which is no score from 0 to 1")
    return EvaluationResult(score=score, passed=score >= 0.5)


def _match_exactly(output: str, label: Any) -> bool:
    return output.strip() == str(label).strip()


@dataclass(frozen=True, slots=True)
class PatternMetric:
    """Whether a pattern is found, with the row's label in place of `{label}`. `blocks`: it may take
    seconds on some text, and is then searched for in a process of its own."""

    pattern: str

    @property
    def blocks(self) -> bool:
        return may_be_slow(re.compile(self.pattern.replace(LABEL, "")))

    def __call__(self, output: str, label: Any) -> bool:
        return is_found(re.compile(self.pattern.replace(LABEL, re.escape(str(label)))), output)


def _match_pattern(pattern: str) -> LabelMetric:
    try:
        re.compile(pattern.replace(LABEL, ""))
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"regex:{pattern}: not a valid pattern ({error})") from None
    return PatternMetric(pattern)
