"""Metrics that need no other package: equal text, contained text, a pattern, a number, a JSON
schema.

Each `open_...` function returns a metric; its argument is the option after the metric's name, empty
if there is none.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, ClassVar, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Failure,
    as_number,
    check_result,
    reaches,
    read_parts,
)
from textevolve.json_texts import is_object, is_sequence
from textevolve.rows import read_text
from textevolve.texts.numbers import read_number
from textevolve.texts.patterns import is_found
from textevolve.texts.prose import CASE_FOLDS, compose
from textevolve.texts.quantities import DecimalMark, DecimalMarks, Quantity, read_last_quantity
from textevolve.texts.schema_check import check_schema, find_faults
from textevolve.user_code import count_required, is_async

# The signatures that a metric may have, and the values that it may return, so functions written
# for this package, for DSPy or for GEPA can be used unchanged.
#
#     metric(output)                      metric(output, label)         metric(output, label, row)
#     metric(example, pred, trace=None)   metric(gold, pred, trace, pred_name, pred_trace)
#
# A metric returns a score from 0 to 1 or a truth value, alone or with a text of feedback: (score,
# text), an `EvaluationResult`, or an object with the fields `score` and `feedback`.

LabelMetric: TypeAlias = Callable[..., Any]
"""A metric as a user may write it: any function of an output, its row's label (None without one)
and the values of the row by column. A function with fewer parameters is called with the first ones
only."""

PlainMetric: TypeAlias = Callable[[str, Any], float | bool | EvaluationResult]
"""A built-in metric, which compares an output with a label."""

GOLD = ("example", "gold")
PREDICTED = ("pred", "prediction", "predicted")
"""The names of the first two parameters of metrics that are written for DSPy or GEPA."""
MOST_ARGUMENTS = 3
"""The most required arguments of a metric with our own signature: output, label and row."""


class ExampleFields(dict[str, Any]):
    """A mapping of values by name that are also attributes, like the examples of DSPy."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "none"
            raise AttributeError(f"no field '{name}'; there are: {there}") from None

    def inputs(self) -> ExampleFields:
        return self

    labels = toDict = inputs


class OnlyField(ExampleFields):
    """A prediction for DSPy's metrics that consists of one text: every field name returns this
    text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.text

    __getitem__ = __missing__ = __getattr__

    def get(self, key: str, default: Any = None, /) -> Any:
        return self.text

    def __str__(self) -> str:
        return self.text


def takes_row(metric: object) -> bool:
    """Return whether a metric's signature takes the values of the row."""
    shape = _shape_of(cast(Any, metric))
    return shape is None or shape < 0 or shape >= MOST_ARGUMENTS


def check_metric(metric: Any, name: str) -> LabelMetric:
    """Check that an object is a plain function, or a callable object, with a supported signature.

    Raises:
        InputError: the object is not callable, is async, or has another signature.
    """
    if not callable(metric):
        raise InputError(f"metric {name}: it is not a function but {type(metric).__name__}")
    if is_async(metric):
        raise InputError(f"metric {name}: it is async; a metric is a plain function")
    shape = _shape_of(metric)

    if shape is not None and (shape == 0 or shape > MOST_ARGUMENTS):
        raise InputError(
            f"metric {name}: it needs {shape} arguments; a metric is given the output, the label"
            " and the row's values, or an example and a prediction as DSPy's are"
        )

    return metric


def call_metric(metric: LabelMetric, output: str, label: Any, row: Mapping[str, Any]) -> Any:
    """Call the metric for an output and return its value; errors pass through."""
    # Functions and our own objects keep their shape, and reading it takes longer than most metrics.
    kind = type(metric)
    if isinstance(metric, FunctionType):
        shape = _known_shape_of(metric)
    elif kind.__module__.partition(".")[0] == PACKAGE:
        shape = _known_shape_of(MethodType(kind.__call__, kind))
    else:
        shape = _shape_of(metric)
    if shape is None:
        return metric(output, label, row)
    if shape < 0:
        gold = ExampleFields({"label": label, **row})
        return metric(gold, predict_fields(output), *[None] * (-shape - 2))
    return metric(*(output, label, row)[:shape])


def predict_fields(output: str) -> ExampleFields:
    """Return an output in the form of a DSPy prediction: the fields of a JSON object, or
    one text."""
    try:
        parsed: object = json.loads(output)
    except (ValueError, RecursionError):
        return OnlyField(output)

    return ExampleFields(parsed) if is_object(parsed) else OnlyField(output)


def read_score(value: Any, passes: float) -> EvaluationResult:
    """Convert a metric's return value into a result. `passes`: the lowest score that passes, except
    that an `EvaluationResult` keeps its own verdict.

    Raises:
        InputError: a metric may not return such a value; the message names its type.
    """
    if isinstance(value, bool):  # at once, since most metrics tell right from wrong
        return EvaluationResult(float(value), reaches(value, passes))
    if isinstance(value, EvaluationResult):
        result = value
    else:
        number, text = _parts_of(value)
        score = _number(number, value)
        result = EvaluationResult(score, reaches(score, passes), text)

    if isinstance(checked := check_result(result), Failure):
        raise InputError(f"the metric gave {result.score!r}, which is no score from 0 to 1")

    return checked


def _parts_of(value: Any) -> tuple[Any, str]:
    """Return the score and the feedback text in a metric's return value."""
    score: Any = value
    text: Any = None
    if is_sequence(value) and len(value) == 2:
        score, text = value
    elif as_number(value) is None and not isinstance(value, str):
        number, text = read_parts(value)
        score = value if number is None else number

    if text is not None and not isinstance(text, str):
        raise InputError(
            f"the metric gave {type(text).__name__} as the reason of its score; the reason must"
            " be a text"
        )

    return score, text or ""


def _number(number: Any, value: Any) -> float:
    if number is None:
        raise InputError(
            "the metric gave None, which is no score from 0 to 1: is a return missing?"
        )

    if inspect.iscoroutine(value):
        value.close()
        raise InputError("the metric is async; a metric is a plain function")
    score = as_number(number)
    if score is None:
        raise InputError(f"the metric gave {number!r:.80}, which is no score from 0 to 1")

    return score


def _shape_of(metric: Callable[..., Any]) -> int | None:
    """Return the number of arguments to call a metric with, of output, label and row; None: the
    metric takes any number and gets all three. A negative number means DSPy's signature with that
    many arguments."""
    try:
        parameters = list(inspect.signature(metric).parameters.values())
    except (TypeError, ValueError):  # of code that is not Python's
        return 2

    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [place.name for place in places]
    needed = count_required(metric) or 0
    if len(names) > 1 and names[0] in GOLD and names[1] in PREDICTED:
        return -max(needed, 2)
    if any(place.kind is place.VAR_POSITIONAL for place in parameters):
        return None
    if needed < MOST_ARGUMENTS <= len(names) and names[MOST_ARGUMENTS - 1] == "row":
        return MOST_ARGUMENTS

    return needed or min(len(names), 2)


PACKAGE = __name__.partition(".")[0]
_known_shape_of = lru_cache(maxsize=64)(_shape_of)

LABEL = "{label}"
IGNORE_CASE = "ignore-case"
NO_NUMBER = "There is no number"
"""How the feedback on an answer begins in which `numeric` finds no number. Reports count such
answers apart from other wrong ones."""
ROUNDING = 1e-9
"""The largest relative difference of two numbers that count as equal."""


def open_exact(argument: str) -> PlainMetric:
    """Return the metric that compares the output with the label, without white space
    around them."""
    folds = _read_folds("exact", argument)

    def compare(output: str, label: Any) -> bool:
        return any(fold(output).strip() == fold(str(label)).strip() for fold in folds)

    return compare


def open_contains(argument: str) -> PlainMetric:
    """Return the metric that checks whether the output contains the label, without white space
    around it."""
    folds = _read_folds("contains", argument)

    def compare(output: str, label: Any) -> bool:
        text = _contained_text(label)
        return any(fold(text) in fold(output) for fold in folds)

    return compare


def _read_folds(name: str, argument: str) -> Sequence[Callable[[str], str]]:
    """Return the forms in one of which two texts must be equal: the composed form of Unicode, which
    unites texts that look the same, or small letters."""
    if argument not in ("", IGNORE_CASE):
        raise InputError(f"metric {name}:{argument}: the only option is {name}:{IGNORE_CASE}")
    return CASE_FOLDS if argument else (compose,)


def _contained_text(label: Any) -> str:
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
        label = re.escape(compose(str(label)))
        return is_found(re.compile(compose(self.pattern).replace(LABEL, label)), output)


def open_pattern(pattern: str) -> PlainMetric:
    if not pattern:
        raise InputError("metric regex: write regex:PATTERN")
    try:
        re.compile(pattern.replace(LABEL, ""))
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"regex:{pattern}: not a valid pattern ({error})") from None

    return PatternMetric(pattern)


NUMERIC = "numeric"
DECIMAL = "decimal-"
"""The beginning of the options of `numeric` that say the decimal mark of its numbers."""


def open_numeric(argument: str) -> PlainMetric:
    """Return the metric that compares the last number of the output with the last number of the
    label. `argument`: the largest difference that passes, as a number (`0.5`) or as a share of the
    label (`1%`), without which the numbers must be equal; and `decimal-comma` or `decimal-point`
    after a colon, without which each number is read by what it looks like."""
    tolerance, mark = _split_numeric(argument)
    absolute, share = _read_tolerance(tolerance)

    def compare(output: str, label: Any) -> EvaluationResult:
        expected = read_last_quantity(str(label), mark)
        number = read_last_quantity(output, mark)
        if expected is None:
            raise InputError(f"the label has no number that can be read: {str(label)[:60]!r}")
        if number is None:
            feedback = f"{NO_NUMBER}; {expected.value:g} was wanted."
            return EvaluationResult(0.0, False, feedback)

        right = any(
            abs(value - expected_value)
            <= max(absolute, share * abs(expected_value))
            # Most decimal fractions have no exact floating-point value.
            + ROUNDING * max(abs(value), abs(expected_value))
            for value, expected_value in _pair_readings(number, expected)
        )
        feedback = f"The last number is {number.value:g}; {expected.value:g} was wanted."

        return EvaluationResult(float(right), right, "" if right else feedback)

    return compare


def _split_numeric(argument: str) -> tuple[str, DecimalMark]:
    """Return the tolerance and the decimal mark in the argument of `numeric`."""
    tolerance, _, option = argument.rpartition(":")
    if not option.startswith(DECIMAL):
        return argument, ""
    mark = option.removeprefix(DECIMAL)
    if mark != "comma" and mark != "point":
        raise InputError(
            f"metric numeric:{argument}: the decimal mark is decimal-comma or decimal-point"
        )

    return tolerance, mark


def guesses_marks(metric: str) -> bool:
    """Return whether a metric reads numbers whose decimal mark nothing says."""
    name, _, argument = metric.partition(":")
    return name == NUMERIC and DECIMAL not in argument


def require_one_mark(metrics: Iterable[str], cases: Iterable[Case]) -> Iterator[Case]:
    """Yield cases, and check that their references and texts leave no doubt about the decimal mark
    of numbers, if one of the metrics is `numeric` without a mark of its own.

    Raises:
        InputError: one number can only have a decimal comma, and another may group thousands.
    """
    if not any(map(guesses_marks, metrics)):
        yield from cases
        return
    marks = DecimalMarks()
    for case in cases:
        for text in filter(None, (case.reference, *case.candidates)):
            marks.note(text, f"row {case.id}")
        yield case


def _pair_readings(number: Quantity, expected: Quantity) -> list[tuple[float, float]]:
    """Return the pairs of values in one of which two numbers must agree: 20 % may be written as 20
    or as 0.2 on the other side, but 20 % is not 0.2 %."""
    if number.is_percent and expected.is_percent:
        return [(number.value, expected.value)]
    return [
        (value, expected_reading)
        for value in number.readings
        for expected_reading in expected.readings
    ]


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

    if not is_object(schema):
        raise InputError(f"{file}: a JSON schema is an object, not {type(schema).__name__}")
    check_schema(schema, file)

    return schema
