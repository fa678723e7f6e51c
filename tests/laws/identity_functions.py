"""Functions of one name that differ in what they hold, and the places in Python that take them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from textevolve import Client


class Scale:
    """An object whose state decides on a score."""

    def __init__(self, worth):
        self.worth = worth

    def read(self, output):
        return self.worth

    def __call__(self, output):
        return self.worth


def read_scale(worth, output):
    return worth


def write_body(worth, other):
    """Return a function of the same name with another body for the other worth."""
    if other:

        def read(output):
            return LESS[type(worth)]

    else:

        def read(output):
            return MORE[type(worth)]

    return read


def write_default(worth, other):
    def read(output, worth=worth):
        return worth

    return read


def capture(worth, other):
    def read(output):
        return worth

    return read


MORE = {float: 1.0, str: "yes"}
LESS = {float: 0.25, str: "no"}
WAYS: Mapping[str, Callable[[Any, bool], Any]] = {
    "body": write_body,
    "default": write_default,
    "captured value": capture,
    "state of its object": lambda worth, other: Scale(worth).read,
    "state of itself": lambda worth, other: Scale(worth),
    "argument of a partial": lambda worth, other: partial(read_scale, worth),
}
"""The ways in which a function differs, each as a function of what it returns."""

ANSWERED = [{"id": "a", "output": "yes", "label": "yes"}]


def score_metric(client: Client, function: Any) -> Any:
    compared = client.compare(ANSWERED, outputs="output", label="label", metric=function)
    return compared.variants[0].mean.value


def score_target(client: Client, function: Any) -> Any:
    compared = client.compare(ANSWERED, label="label", metric="exact", targets=[function])
    return compared.variants[0].mean.value


def score_evaluated(client: Client, function: Any) -> Any:
    return client.evaluate("Is it so?", ["yes"], judge=function).scores[0]


def score_optimized(client: Client, function: Any) -> Any:
    return client.optimize("Say yes.", judge=function, max_iterations=1).score


def score_innovated(client: Client, function: Any) -> Any:
    innovated = client.innovate("Say yes.", judge=function, rounds=0, outputs=2, fresh=0)
    return innovated.innovation.attempts[0].evaluation.score


def score_written(client: Client, function: Any) -> Any:
    def write(task, **rest):
        return function(task)

    return client.optimize(
        "Say yes.", judge="metric:regex:^yes$", generator=write, max_iterations=1
    ).score


@dataclass(frozen=True)
class Place:
    """A place in Python that takes a function.

    Attributes:
        score: Runs a study with the function and returns its score.
        words: Whether the function gives a text, and not a score.
        less: The score that is right for the second function.
    """

    score: Callable[[Any, Any], Any]
    words: bool = False
    less: float = 0.25


PLACES: Mapping[str, Place] = {
    "compare(metric=)": Place(score_metric),
    "compare(targets=)": Place(score_target, words=True, less=0.0),
    "evaluate(judge=)": Place(score_evaluated),
    "optimize(judge=)": Place(score_optimized),
    "optimize(generator=)": Place(score_written, words=True, less=0.0),
    "innovate(judge=)": Place(score_innovated),
}
