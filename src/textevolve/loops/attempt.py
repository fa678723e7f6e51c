"""What all loops share: an attempt and its judgement, why a loop stopped, its time limit, how
alike two texts are, and the prompts.

A failed attempt is recorded and has no score; it never counts as one of score 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from importlib import resources
from typing import Literal, Protocol

from textevolve.errors import BudgetError
from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.llm.model import text_hash

StopReason = Literal[
    "accepted", "converged", "oscillating", "max_iterations", "budget", "failed", "stopped"
]
"""Why a loop ended. `stopped`: by the user; `failed`: no attempt has a score."""


Made = Literal["written", "revised"]
"""How an attempt was made: from the task alone, or from an attempt before."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One text that a loop made, and what became of it. `iteration` counts from 1.

    `output` is None where none was generated; `evaluation` says why in either case where there is
    no result. `similarity` in [0, 1] to the attempt before. `notes`: what was noticed, such as a
    degenerate output that was asked for again. `second`: of a judge that the loop never sees.
    `instructions`: what the judge wants changed. `made`: None where that was not noted.
    """

    iteration: int
    output: str | None
    evaluation: EvaluationResult | Failure
    usage: Usage = Usage()
    seconds: float = 0.0
    similarity: float | None = None
    notes: tuple[str, ...] = ()
    second: EvaluationResult | Failure | None = None
    instructions: tuple[str, ...] = ()
    made: Made | None = None

    @property
    def score(self) -> float | None:
        return self.evaluation.score if isinstance(self.evaluation, EvaluationResult) else None


TIME_IS_UP = "the time limit is reached; raise it to go on"


@asynccontextmanager
async def within_time(seconds: float | None) -> AsyncGenerator[None]:
    """Bounds the time of what is done within.

    Raises:
        BudgetError: the time is up.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise BudgetError(TIME_IS_UP) from None


class Generator(Protocol):
    """Makes a text for a task: the first from the task alone, later ones by revising `previous` as
    `feedback` instructs. Nothing else of the history reaches it, so its prompt does not grow."""

    async def __call__(
        self,
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str: ...


@cache
def prompts_version() -> dict[str, str]:
    """A hash of each prompt of this room by its name; a change of one makes another run."""
    folder = resources.files("textevolve.loops") / "prompts"
    return {
        f"loops.{file.name.removesuffix('.md')}": text_hash(file.read_text(encoding="utf-8"))[:12]
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".md")
    }


WORDS_COMPARED = 1000
"""Of longer texts only the first so many words are compared: the time grows with their product."""


def text_similarity(one: str, other: str) -> float:
    """Share in [0, 1] of the words of both that stand in the same order; 1 for the same words."""
    ours, theirs = (text.casefold().split()[:WORDS_COMPARED] for text in (one, other))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


NEAR_COPY = 0.98
SHORTEST, LONGEST, LEEWAY = 0.2, 4.0, 1500
"""A refined input is degenerate when it is nearly the last one, or shorter or longer by these
factors (with so many characters more for a short one)."""


def tell_degenerate(text: str, before: str) -> str:
    """Why a refined input cannot be one; empty where it can."""
    if "\0" in text:
        return "it holds a NUL character"
    if len(text) < SHORTEST * len(before):
        return f"absurdly short: {len(text)} characters after {len(before)}"
    if len(text) > LONGEST * len(before) + LEEWAY:
        return f"absurdly long: {len(text)} characters after {len(before)}"
    if text_similarity(text, before) >= NEAR_COPY:
        return "nearly a copy of the input before"
    return ""
