"""What several scripts share: how a share, a cost and the machine are written, and calls in the
order that suits a small machine.

A local model keeps the prompt that it saw last, so calls that begin alike should follow each other.
Work that goes side by side waits in one queue, a whole judgement at a time.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from textevolve.evaluation import Case, Evaluation, Evaluator, Usage
from textevolve.events import CallFinished, Event
from textevolve.llm.model import Model, Request, Response
from textevolve.statistics.intervals import wilson_interval


@dataclass
class InTurn:
    """A model whose calls take their place in the queue."""

    model: Model
    queue: asyncio.Semaphore

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        async with self.queue:
            return await self.model(request)


def judge_in_turn(judge: Evaluator, queue: asyncio.Semaphore) -> Evaluator:
    async def judged(case: Case, /) -> Evaluation:
        async with queue:
            return await judge(case)

    return judged


@dataclass
class Spent:
    """What was asked in this sitting, which the journal did not have."""

    usage: Usage = Usage()
    began: float = field(default_factory=time.monotonic)

    def hear(self, event: Event) -> None:
        if isinstance(event, CallFinished) and not event.replayed:
            self.usage += event.usage

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return f"asked in this sitting: {tell_usage(self.usage)}, {seconds:,.0f} s"


def tell_usage(used: Usage) -> str:
    return (
        f"{used.calls} calls, {used.prompt_tokens:,} prompt tokens"
        f" ({used.cached_tokens:,} cached), {used.completion_tokens:,} written"
    )


def format_share(hits: Sequence[float]) -> str:
    """Return how many of the values are hits, with the share and Wilson's interval at 95 %."""
    if not hits:
        return "none"
    interval = wilson_interval(sum(hits), len(hits))
    ends = f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"
    return f"{sum(hits):g} of {len(hits)}, {100 * sum(hits) / len(hits):.0f} % ({ends})"


def describe_machine() -> str:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    version = sys.version.split()[0]
    return f"{os.cpu_count()} cores, load {load}, {platform.platform()}, Python {version}"
