"""Metrics that need no other package: equal text, contained text, a pattern, a number, a JSON
schema.

Each `open_...` function returns a metric; its argument is the option after the metric's name, empty
if there is none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult
from textevolve.metrics.shapes import PlainMetric
from textevolve.rows import read_text
from textevolve.texts.numbers import read_number
from textevolve.texts.patterns import is_found
from textevolve.texts.schema_check import check_schema, find_faults

LABEL = "{label}"
IGNORE_CASE = "ignore-case"
ROUNDING = 1e-9
"""The largest relative difference of two numbers that count as equal."""

_NUMBER = re.compile(
    r"(?:(?<![\w.)\]])[-+\u2212])?(?<![A-Za-z0-9_.])"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+|(?=\.[0-9]))(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
)


def open_exact(argument: str) -> PlainMetric:
    """Return the metric that compares the output with the label, without white space
    around them."""
    fold = _reads_case("exact", argument)
    return lambda output, label: fold(output).strip() == fold(str(label)).strip()


def open_contains(argument: str) -> PlainMetric:
    """Return the metric that checks whether the output contains the label, without white space
    around it."""
    fold = _reads_case("contains", argument)
    return lambda output, label: fold(_wanted(label)) in fold(output)


def _reads_case(name: str, argument: str) -> Callable[[str], str]:
    if argument not in ("", IGNORE_CASE):
        raise InputError(f"metric {name}:{argument}: the only option is {name}:{IGNORE_CASE}")
    return str.casefold if argument else str


def _wanted(label: Any) -> str:
    expected = str(label).strip()
    if not expected:
        raise InputError("the label is empty, and every output contains an empty text")
    return expected


@dataclass(frozen=True, slots=True)
class PatternMetric:
    """A metric that checks whether a pattern matches anywhere in the output. `pattern`: a regular
    expression, in which `{label}` is replaced by the row's label. `blocks`: always True, since the
    search may take seconds on some texts, so it must not run on the event loop."""

    pattern: str
    blocks: ClassVar[bool] = True

    def __call__(self, output: str, label: Any) -> bool:
        return is_found(re.compile(self.pattern.replace(LABEL, re.escape(str(label)))), output)


def open_pattern(pattern: str) -> PlainMetric:
    if not pattern:
        raise InputError("metric regex: write regex:PATTERN")
    try:
        re.compile(pattern.replace(LABEL, ""))
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"regex:{pattern}: not a valid pattern ({error})") from None
    return PatternMetric(pattern)


def open_numeric(tolerance: str) -> PlainMetric:
    """Return the metric that compares the last number of the output with the last number of the
    label. `tolerance`: the largest difference that passes, as a number (`0.5`) or as a share of the
    label (`1%`); empty: the numbers must be equal."""
    absolute, share = _read_tolerance(tolerance)

    def compare(output: str, label: Any) -> EvaluationResult:
        expected, number = last_number(str(label)), last_number(output)
        if expected is None:
            raise InputError(f"the label has no number: {str(label)[:60]!r}")
        if number is None:
            return EvaluationResult(0.0, False, f"There is no number; {expected:g} was wanted.")
        far = abs(number - expected)
        room = max(absolute, share * abs(expected)) + ROUNDING * max(abs(number), abs(expected))
        right = far <= room
        feedback = "" if right else f"The last number is {number:g}; {expected:g} was wanted."
        return EvaluationResult(float(right), right, feedback)

    return compare


def last_number(text: str) -> float | None:
    """Return the last number in a text, such as 42, -3.5, .5, 1,234.5 or 6e-3; None if there is
    none. Digits within a word (x2) do not count, and a comma groups thousands."""
    for match in reversed(list(_NUMBER.finditer(text))):
        number = float(match[0].replace(",", "").replace("\u2212", "-"))
        if math.isfinite(number):
            return number
    return None


def _read_tolerance(text: str) -> tuple[float, float]:
    """Read a tolerance; return it as a number and as a share of the label. One of the two is 0."""
    if not text:
        return 0.0, 0.0
    try:
        number = read_number(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if number < 0:
        raise InputError(
            f"metric numeric:{text}: the tolerance must be a number of 0 or more, such as 0.5, or"
            " a share of the label, such as 1%"
        )
    return (0.0, number / 100) if text.endswith("%") else (number, 0.0)


@dataclass(frozen=True, slots=True)
class SchemaMetric:
    """A metric that checks whether the whole output is JSON that follows a schema; the feedback
    lists the violations. `blocks`: whether the schema has patterns; their search may take seconds
    on some texts, so it must not run on the event loop."""

    schema: Mapping[str, Any]

    @property
    def blocks(self) -> bool:
        return '"pattern"' in json.dumps(self.schema)

    def __call__(self, output: str, label: Any) -> EvaluationResult:
        faults = find_faults(output, self.schema)
        return EvaluationResult(float(not faults), not faults, "\n".join(faults))


def open_schema(file: str) -> PlainMetric:
    if not file:
        raise InputError("metric json-schema: write json-schema:FILE")
    return SchemaMetric(read_schema(file))


def read_schema(file: str) -> dict[str, Any]:
    """Read a JSON schema and check that it can be used.

    Raises:
        InputError: the file cannot be read, or holds no schema.
    """
    try:
        schema: object = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(schema, dict):
        raise InputError(f"{file}: a JSON schema is an object, not {type(schema).__name__}")
    check_schema(cast("dict[str, Any]", schema), file)
    return cast("dict[str, Any]", schema)
