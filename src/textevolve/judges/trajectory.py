"""A judge of a whole trajectory: the request, each tool call with its result, and the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textevolve.evaluation import Case
from textevolve.judges.context import Judgement
from textevolve.judges.probe import Checklist
from textevolve.metrics.trajectory_metrics import list_calls
from textevolve.trajectory import Trajectory

TRAJECTORY = "trajectory"
"""The name of the judge, and of the shipped rubric by which it judges."""
MOST_SHOWN = 4000
"""The maximum number of characters of each call, with its result, that the model sees."""


@dataclass(frozen=True)
class TrajectoryJudge(Checklist):
    """A checklist over the whole trajectory instead of the answer alone. The criteria are the
    user's rubric, otherwise the shipped rubric `trajectory`."""

    shipped: ClassVar[str] = TRAJECTORY

    async def __call__(self, case: Case, /) -> Judgement:
        """Judge each candidate as the final answer of the case's trajectory.

        Raises:
            InputError: no calls are recorded, or the case or the options cannot be used.
                FatalModelError, CapabilityError: no call can succeed, or the endpoint gives no
                log-probabilities.
        """
        trajectory = case.trajectory or Trajectory()
        texts = tuple(write_trajectory(trajectory, answer) for answer in case.candidates)
        return replace(await super().__call__(replace(case, candidates=texts)), case=case)


def write_trajectory(trajectory: Trajectory, answer: str) -> str:
    """Write each call with its result on a line of JSON, which no result can break, then the errors
    of other steps, and the final answer. A call is cut at `MOST_SHOWN` characters.

    Raises:
        InputError: no calls are recorded.
    """
    list_calls(trajectory)
    calls: list[Any] = trajectory.as_row()["tool_calls"]
    lines = [f"Tool call {n}: {_shorten(call)}" for n, call in enumerate(calls, 1)]
    lines += [f"Another step failed: {_shorten(error)}" for error in trajectory.errors]
    return "\n".join([*(lines or ["No tool was called."]), "Final answer:", answer])


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"
