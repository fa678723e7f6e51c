"""What became of tasks as one self-contained HTML file: no script, nothing loaded.

Everything from a model, a judge or a user passes through the templates' escaping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export import wording
from textevolve.export.differences import find_differences
from textevolve.export.files import open_target
from textevolve.export.pages import open_template
from textevolve.loops.attempt import Attempt
from textevolve.loops.optimization import Optimization


def write_optimization_page(
    results: Sequence[Optimization],
    path: str | Path,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write the page; `facts` are shown as given, each under its name.

    Raises:
        InputError: the file cannot be written.
    """
    parts = open_template("optimization.html").generate(
        title=_title(results),
        results=results,
        facts=facts or {},
        differences=_differences,
        judged=_judged,
        parts=_parts,
        failed=lambda outcome: isinstance(outcome, Failure),  # pyright: ignore[reportUnknownLambdaType]
        instructions=lambda attempt: attempt.metadata.get("instructions", ()),  # pyright: ignore
        say_minimum=say_minimum,
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))


def _title(results: Sequence[Optimization]) -> str:
    if len(results) == 1:
        return wording.shorten(results[0].task, 120)
    return f"{len(results)} tasks"


def say_minimum(made: Optimization) -> str:
    """A sentence where the best score is below the least that was asked for; else nothing."""
    if made.reached_minimum is not False:
        return ""
    least = wording.figure(made.minimum_score)
    if made.score is None:
        return f"no attempt has a score, so the minimum of {least} is not reached"
    return f"the best score of {wording.figure(made.score)} is below the minimum of {least}"


def _differences(made: Optimization) -> list[tuple[str, str]]:
    """Between the first attempt with a text and the best, where they are two."""
    first, best = first_and_best(made)
    if first is None or best is None:
        return []
    pieces = find_differences(first.output or "", best.output or "")
    return [(piece.kind, piece.text) for piece in pieces]


def first_and_best(made: Optimization) -> tuple[Attempt | None, Attempt | None]:
    """The attempts between which there is a difference to show; None twice where they are one."""
    first = next((a for a in made.attempts if a.output), None)
    best = made.best
    if first is None or best is None or first.iteration == best.iteration:
        return None, None
    return first, best


def _judged(outcome: EvaluationResult | Failure | None) -> str:
    """A score, or why there is none."""
    if outcome is None:
        return "–"
    if isinstance(outcome, Failure):
        return f"{outcome.kind}: {wording.shorten(outcome.reason, 160)}"
    return wording.figure(outcome.score, 3)


def _parts(outcome: EvaluationResult | Failure) -> list[tuple[str, str]]:
    """The scores that a score is made of: rules, components, samples."""
    if isinstance(outcome, Failure):
        return []
    found: list[tuple[str, str]] = []
    for name in ("rules_score", "judge_score", "raw_score", "spread"):
        if isinstance(value := outcome.metadata.get(name), float):
            found.append((name.replace("_", " "), wording.figure(value, 3)))
    for name in ("rules", "components"):
        parts: object = outcome.metadata.get(name)
        if isinstance(parts, Mapping):
            for part, value in parts.items():  # pyright: ignore[reportUnknownVariableType]
                found.append((str(part), wording.figure(float(value), 2)))  # pyright: ignore
    return found
