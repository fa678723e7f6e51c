"""What a study in batch jobs will take: how many waves, how long at most, at what price.

The study is rehearsed with calls that wait for each other as they do in batch jobs, and the waves
are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from textevolve.errors import TextEvolveError
from textevolve.estimates.debate import UsageRange
from textevolve.estimates.expected import Used
from textevolve.evaluation import Case
from textevolve.llm.batches.ledger import batch_price, is_free, takes_batches
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.providers import resolve
from textevolve.report.wording import count
from textevolve.settings import Settings
from textevolve.studies.driver import models_asked
from textevolve.studies.rehearsal import (
    CASES_DRAWN,
    LONGEST,
    SHORTEST,
    Manner,
    forecast,
    rehearse,
)
from textevolve.studies.stored import StoredSpec, read_spec
from textevolve.studies.study import AnyStudy

MANY_WAVES = 12
"""From so many on it is said that batch jobs are slow for such a study."""
TURNS, PAUSE = 20, 0.002
"""Turns of the loop and seconds without a new call, after which a rehearsed wave is complete."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """`waves`: what is usual, at least and at most; None where it cannot be rehearsed. `hours`:
    that each may take. `discounts`: by model that costs something, None where that is not known.
    `plain`: models that take no batch jobs."""

    waves: tuple[int, int, int] | None
    hours: int
    discounts: Mapping[str, float | None]
    plain: tuple[str, ...] = ()


async def forecast_study(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    earlier: Sequence[Used] = (),
) -> UsageRange:
    """What a study may take, in batch jobs where the settings say so."""
    if not settings.batch:
        return await forecast(study, stored, cases, settings, earlier)
    plan = await plan_batches(study, stored, cases, settings)
    asked = models_asked(study.asks(read_spec(study, stored)), stored)
    found = await forecast(study, stored, cases, _at_batch_prices(settings, asked))
    batches, price = say_plan(plan)
    parts = {"batch jobs": batches} | ({"their price": price} if price else {})
    return replace(found, parts={**found.parts, **parts})


async def plan_batches(
    study: AnyStudy, stored: StoredSpec, cases: Sequence[Case], settings: Settings
) -> BatchPlan:
    """What a study will take. Its models are those that `driver.specify` found fit."""
    asked = models_asked(study.asks(read_spec(study, stored)), stored)
    ends = {name: resolve(name, settings, asks=False) for name in asked}
    taking = {name: end for name, end in ends.items() if takes_batches(end)}
    discounts = {name: end.batch_discount for name, end in taking.items() if not is_free(end)}
    plain = tuple(name for name in asked if name not in taking)
    chosen = cases[:: max(1, -(-len(cases) // CASES_DRAWN))]
    found: list[int] = []
    try:
        for manner in (Manner(draw=0), SHORTEST, LONGEST):
            counter = WaveCounter()
            await rehearse(study, stored, chosen, settings, manner, counter.put_before)
            found.append(counter.waves)
    except (TextEvolveError, ValueError):
        return BatchPlan(None, settings.batches.window, discounts, plain)
    usual, least, most = found
    waves = usual, min(usual, least), max(usual, most)
    return BatchPlan(waves, settings.batches.window, discounts, plain)


def _at_batch_prices(settings: Settings, asked: Sequence[str]) -> Settings:
    """The settings with what calls cost in batch jobs, where that is known."""
    ends = [resolve(name, settings, asks=False) for name in asked]
    cut = {end.spec: batch_price(end) for end in ends if takes_batches(end)}
    known = {name: price for name, price in cut.items() if price is not None}
    return settings.model_copy(update={"prices": {**settings.prices, **known}})


def say_plan(plan: BatchPlan) -> tuple[str, str]:
    """How long it takes, and at what price."""
    hours = count(plan.hours, "hour")
    said = f"in waves of batch jobs, each of up to {hours}: how many cannot be rehearsed"
    if plan.waves is not None:
        usual, least, most = plan.waves
        bounds = f" (at least {least}, at most {most})" if least < most else ""
        longest = _days(most * plan.hours)
        said = f"in about {count(usual, 'wave')} of batch jobs{bounds}, each of up to {hours}:"
        said += f" {longest} at most"
        if usual >= MANY_WAVES:
            said += f". Each case asks {usual} times in a row, which suits batch jobs badly"
    prices = [f"{name}: {_say_discount(cut)}" for name, cut in plan.discounts.items()]
    prices += [f"{name}: takes no batch jobs, asked at once at full price" for name in plan.plain]
    return said, "; ".join(prices)


def _say_discount(discount: float | None) -> str:
    if discount is None:
        return "what is taken off for batch jobs is not known, so the cost is not"
    return "half the price" if discount == 0.5 else f"{discount:.0%} off the price"


def _days(hours: int) -> str:
    return count(hours, "hour") if hours < 48 else f"{hours / 24:g} days"


class WaveCounter:
    """Lets calls through when no more come, all at once, and counts how often."""

    def __init__(self) -> None:
        self.waves = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._ending: asyncio.Task[None] | None = None

    def put_before(self, model: Model) -> Model:
        return _Waiting(model, self)

    async def wait(self) -> None:
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end())
        await call

    async def _end(self) -> None:
        seen = 0
        while seen != len(self._waiting):
            seen = len(self._waiting)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await asyncio.sleep(PAUSE)
        self.waves += 1
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.done():
                call.set_result(None)


@dataclass(frozen=True, slots=True)
class _Waiting:
    model: Model
    counter: WaveCounter

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        await self.counter.wait()
        return await self.model(request)
