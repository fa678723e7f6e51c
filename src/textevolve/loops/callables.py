"""Callables of the user's own in the place of evaluators and generators.

They may be async or plain; what a plain one does is done in a thread, so that nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from textevolve.errors import TextEvolveError
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Usage,
    check_results,
)
from textevolve.loops.attempt import Generator
from textevolve.loops.scoring import PlainEvaluation
from textevolve.user_code import UserCodeError, call_function, is_async


def as_evaluator(given: Callable[[Case], Any]) -> Evaluator:
    """An evaluator around a callable that takes a `Case`.

    It may give an `Evaluation`; or, for each candidate in order, an `EvaluationResult`, a `Failure`
    or a number from 0 to 1; for a single candidate also one of these alone. Where it gives anything
    else, each candidate has a failure that says what is wrong; what it raises comes as a
    `UserCodeError`, which every run takes for a failure of the one case.
    """

    async def judge(case: Case, /) -> Evaluation:
        try:
            return _read(await call_function(given, case), case)
        except TextEvolveError:
            raise
        except Exception as error:
            raise UserCodeError(given, error) from error

    return judge


def as_generator(given: Callable[..., Any]) -> Generator:
    """A generator, of which plain functions are made async; an async one is given back."""
    if is_async(given):
        return cast(Generator, given)

    async def write(
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str:
        return await call_function(
            given, task, previous=previous, feedback=feedback, temperature=temperature
        )

    return write


def _read(made: Any, case: Case) -> Evaluation:
    whole = hasattr(made, "result")
    listed: Any = made.result if whole else made
    ones = cast("Sequence[Any]", listed) if isinstance(listed, list | tuple) else [listed]
    results = check_results(ones, len(case.candidates))
    usable = whole and [*map(type, ones)] == [*map(type, results)]
    if usable and hasattr(made, "usage") and hasattr(made, "coverage"):
        return cast(Evaluation, made)
    scored = sum(isinstance(one, EvaluationResult) for one in results)
    return PlainEvaluation(results, getattr(made, "usage", Usage()), scored / len(results))
