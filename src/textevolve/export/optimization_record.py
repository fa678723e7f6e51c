"""What became of a task as JSON lines: a line for each task, its attempts within."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.export.files import open_target
from textevolve.loops.optimization import Optimization


def write_history(results: Iterable[Optimization], path: str | Path) -> None:
    """
    Raises:
        InputError: the file cannot be written.
    """
    with open_target(path) as target:
        for made in results:
            target.write((to_line(made) + "\n").encode("utf-8", "backslashreplace"))


def to_line(made: Optimization) -> str:
    """One line of JSON; a figure that does not exist is null."""
    return json.dumps(_plain(describe_optimization(made)), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe_optimization(made: Optimization) -> Mapping[str, Any]:
    """Everything about an optimisation as JSON-ready data, its attempts in order."""
    best = made.best
    return {
        "id": made.id,
        "task": made.task,
        "status": made.status,
        "reason": made.reason,
        "score": made.score,
        "output": made.output,
        "best": best.iteration if best else None,
        "minimum_score": made.minimum_score,
        "reached_minimum": made.reached_minimum,
        "seconds": made.seconds,
        **_spent(made.usage),
        "attempts": [
            {
                "iteration": attempt.iteration,
                "output": attempt.output,
                "evaluation": _judged(attempt.evaluation),
                "second": _judged(attempt.second),
                "instructions": list(attempt.metadata.get("instructions", ())),
                "similarity": attempt.similarity,
                "notes": list(attempt.notes),
                "seconds": attempt.seconds,
                **_spent(attempt.usage),
            }
            for attempt in made.attempts
        ],
    }


def _judged(outcome: EvaluationResult | Failure | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    if isinstance(outcome, Failure):
        return {"score": None, "failure": outcome.kind, "reason": outcome.reason}
    return {
        "score": outcome.score,
        "passed": outcome.passed,
        "feedback": outcome.feedback,
        "metadata": dict(outcome.metadata),
    }


def _spent(usage: Usage) -> dict[str, Any]:
    return {"calls": usage.calls, "tokens": usage.tokens, "cost": usage.cost}
