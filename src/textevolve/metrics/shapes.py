"""The signatures that a metric may have, and the values that it may return, so functions written
for this package, for DSPy or for GEPA can be used unchanged.

    metric(output)                      metric(output, label)         metric(output, label, row)
    metric(example, pred, trace=None)   metric(gold, pred, trace, pred_name, pred_trace)

A metric returns a score from 0 to 1 or a truth value, alone or with a text of feedback: (score,
text), an `EvaluationResult`, or an object with the fields `score` and `feedback`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure, check_result, read_parts
from textevolve.user_code import count_required, is_async

LabelMetric: TypeAlias = Callable[..., Any]
"""A metric as a user may write it: any function of an output, its row's label (None without one)
and the values of the row by column. A function with fewer parameters is called with the first ones
only."""

PlainMetric: TypeAlias = Callable[[str, Any], float | bool | EvaluationResult]
"""A built-in metric, which compares an output with a label."""

GOLD, PREDICTED = ("example", "gold"), ("pred", "prediction", "predicted")
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
    return (
        ExampleFields(cast("dict[str, Any]", parsed))
        if isinstance(parsed, dict)
        else OnlyField(output)
    )


def read_score(value: Any, passes: float) -> EvaluationResult:
    """Convert a metric's return value into a result. `passes`: the lowest score that passes, except
    that an `EvaluationResult` keeps its own verdict.

    Raises:
        InputError: a metric may not return such a value; the message names its type.
    """
    if isinstance(value, EvaluationResult):
        result = value
    else:
        number, text = _parts_of(value)
        score = _number(number, value)
        result = EvaluationResult(score, score >= passes, text)
    if isinstance(checked := check_result(result), Failure):
        raise InputError(f"the metric gave {result.score!r}, which is no score from 0 to 1")
    return checked


def _parts_of(value: Any) -> tuple[Any, str]:
    """Return the score and the feedback text in a metric's return value."""
    score: Any = value
    text: Any = None
    if isinstance(value, tuple | list) and len(cast("Sequence[Any]", value)) == 2:
        score, text = cast("Sequence[Any]", value)
    elif not isinstance(value, bool | int | float | str):
        number, text = read_parts(value)
        score = cast("Any", value) if number is None else number
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
    if not isinstance(number, str):
        try:
            return float(number)
        except (TypeError, ValueError):
            pass
    raise InputError(f"the metric gave {number!r:.80}, which is no score from 0 to 1")


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
