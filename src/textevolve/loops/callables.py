"""Callables of the user's own in the place of evaluators and generators.

They may be async or plain; what a plain one does is done in a thread, so that nothing waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, cast

from textevolve.evaluation import Case, Evaluation, EvaluationResult, Evaluator, Failure, Usage
from textevolve.loops.attempt import Generator
from textevolve.loops.scoring import PlainEvaluation

PASSES = 0.5
"""The score from which a bare number passes."""


def as_evaluator(given: Callable[[Case], Any]) -> Evaluator:
    """An evaluator around a callable that takes a `Case`.

    It may give an `Evaluation`; or, for each candidate in order, an `EvaluationResult`, a `Failure`
    or a number from 0 to 1; for a single candidate also one of these alone. Where it gives anything
    else, each candidate has a failure that says what is wrong.
    """

    async def judge(case: Case, /) -> Evaluation:
        return _read(await _call(given, case), case)

    return judge


def as_generator(given: Callable[..., Any]) -> Generator:
    """A generator, of which plain functions are made async; an async one is given back."""
    if _is_async(given):
        return cast(Generator, given)

    async def write(
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str:
        return await _call(
            given, task, previous=previous, feedback=feedback, temperature=temperature
        )

    return write


async def _call(given: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if _is_async(given):
        return await given(*arguments, **named)
    made = await asyncio.to_thread(given, *arguments, **named)
    return await made if inspect.isawaitable(made) else made


def _is_async(given: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(
        getattr(given, "__call__", None)  # noqa: B004  of an object, it is the method that tells
    )


def _read(made: Any, case: Case) -> Evaluation:
    whole = hasattr(made, "result")
    listed: Any = made.result if whole else made
    ones = cast("Sequence[Any]", listed) if isinstance(listed, list | tuple) else [listed]
    number = len(case.candidates)
    if len(ones) != number:
        gave = f"the evaluator gave {len(ones)} results for {number} candidates"
        failure = Failure("failed", f"{gave}: it must give one for each, in their order")
        return PlainEvaluation((failure,) * number, getattr(made, "usage", Usage()), 0.0)
    if whole and hasattr(made, "usage") and hasattr(made, "coverage"):
        return cast(Evaluation, made)
    results = tuple(_read_one(one) for one in ones)
    scored = sum(isinstance(one, EvaluationResult) for one in results)
    return PlainEvaluation(results, getattr(made, "usage", Usage()), scored / len(results))


def _read_one(one: Any) -> EvaluationResult | Failure:
    if isinstance(one, EvaluationResult | Failure):
        return one
    if isinstance(one, Real):
        return EvaluationResult(float(one), float(one) >= PASSES)
    return Failure(
        "failed",
        f"the evaluator gave {type(one).__name__} for a candidate: it must give a number from 0 to"
        " 1, an EvaluationResult or a Failure, or an Evaluation of all",
    )
