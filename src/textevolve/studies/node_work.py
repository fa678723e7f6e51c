"""What a node does of a spread run: it opens the workbench that this machine would have opened, and
does a study's own `run` on one case after the other. Here, too: what it is told, and what it asks
the driver, which is in `distributed.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from textevolve import __version__
from textevolve.engine import ray
from textevolve.engine.collector import rare_collections
from textevolve.errors import MismatchError
from textevolve.evaluation import Case, Usage
from textevolve.events import CallFinished, CallHeld, CallRetried, Event, RecordsExpected
from textevolve.llm.journal import Journal, JournalEntry
from textevolve.llm.model import Response
from textevolve.llm.wrappers import Budget, Claim, Salted
from textevolve.settings import Settings, StoreAddress
from textevolve.store.repository import open_store
from textevolve.studies.kinds import find_study
from textevolve.wiring import Limits, Setting, Workbench, open_workbench

if TYPE_CHECKING:
    from textevolve.studies.study import StudySpec


@dataclass(frozen=True)
class SpreadRun:
    """What each worker is told of a run: its specification, how many cases it has, what its
    workbench is made of, and what answers are salted with. `limits`: those that the driver has to
    be asked about, if there are any. `objects`: of the user's own, packed. `check`: raises an error
    where the files and prompts of a node are not those of the run; it is given the objects."""

    version: str
    spec: StudySpec
    run_id: str
    cases: int
    setting: Setting
    settings: Settings
    salt: str
    limits: Limits | None
    objects: bytes
    check: Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """`workers`: among how many the limits a minute are divided. `halted`: why no call is to be
    made any more, empty where calls are."""

    workers: int = 1
    halted: str = ""


@dataclass(frozen=True, slots=True)
class Find:
    key: str


@dataclass(frozen=True, slots=True)
class Append:
    entry: JournalEntry


@dataclass(frozen=True, slots=True)
class Claimed:
    claim: Claim


@dataclass(frozen=True, slots=True)
class Settled:
    claim: Claim
    usage: Usage
    model: str


@dataclass(frozen=True)
class OpenWork:
    run: SpreadRun

    def __call__(self, line: ray.DriverLine) -> AbstractAsyncContextManager[ray.ItemWork]:
        return _open_work(self.run, line)


@asynccontextmanager
async def _open_work(run: SpreadRun, line: ray.DriverLine) -> AsyncGenerator[ray.ItemWork]:
    if run.version != __version__:
        raise MismatchError(
            f"a node has TextEvolve {__version__}, and this machine {run.version}: install the same"
        )
    study = find_study(run.spec.kind)
    async with AsyncExitStack() as stack:
        stack.enter_context(rare_collections())
        benches = _Benches(run, line, stack)

        async def work(placed: tuple[int, Case]) -> list[Any]:
            place, case = placed
            bench = replace(await benches.get(), first=place)
            async with aclosing(study.run(run.spec, [case], bench)) as records:
                return [record async for record in records]

        yield work


class _Benches:
    """The worker's workbench: a new one for later cases where its share of the limits a minute is
    another."""

    def __init__(self, run: SpreadRun, line: ray.DriverLine, stack: AsyncExitStack) -> None:
        self._run, self._line, self._stack = run, line, stack
        self._opening = asyncio.Lock()
        self._workers = 0
        self._bench: Workbench | None = None
        limit = run.setting.time_limit
        self._deadline = None if limit is None else time.monotonic() + limit
        self._journal: Journal | None = None
        self._objects = ray.unpickled(run.objects)
        run.check(self._objects)

    async def get(self) -> Workbench:
        workers = self._notice().workers if _paced(self._run.settings) else 1
        if self._bench is None or workers != self._workers:
            async with self._opening:
                if self._bench is None or workers != self._workers:
                    self._bench, self._workers = await self._open(workers), workers
        return self._bench

    def _notice(self) -> Notice:
        return self._line.notice or Notice()

    async def _open(self, workers: int) -> Workbench:
        run, line = self._run, self._line
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        if self._journal is None:
            self._journal = await self._open_journal()

        async def halt() -> str:
            return self._notice().halted

        opened = open_workbench(
            replace(run.setting, time_limit=left, objects=self._objects),
            share_limits(run.settings, workers),
            Salted(self._journal, run.salt),
            Limits() if run.limits is None else AskedBudget(run.limits, line),
            lambda event: _tell(line, event),
            halt=halt,
        )
        return await self._stack.enter_async_context(opened)

    async def _open_journal(self) -> Journal:
        location = self._run.settings.store
        if not isinstance(location, StoreAddress):
            return AskedJournal(self._line)
        store = await asyncio.to_thread(open_store, location, patient=True)
        await self._stack.enter_async_context(store)
        return store.journal(self._run.run_id)


def _tell(line: ray.DriverLine, event: Event) -> None:
    """What is worth the way: steps of single cases are not."""
    if isinstance(event, CallFinished):
        line.tell(replace(event, cause=None))
    elif isinstance(event, CallRetried | CallHeld | RecordsExpected):
        line.tell(event)


def _paced(settings: Settings) -> bool:
    members = [one for pool in settings.pools.values() for one in pool.members]
    return any(
        one.requests_per_minute or one.tokens_per_minute
        for one in (*settings.providers.values(), *members)
    )


def share_limits(settings: Settings, workers: int) -> Settings:
    """The settings of one of so many workers: of each limit a minute its share."""

    def part(one: Any) -> Any:
        names = ("requests_per_minute", "tokens_per_minute")
        given = {name: value for name in names if (value := getattr(one, name)) is not None}
        return one.model_copy(update={name: value / workers for name, value in given.items()})

    providers = {name: part(one) for name, one in settings.providers.items()}
    pools = {
        name: pool.model_copy(update={"members": tuple(map(part, pool.members))})
        for name, pool in settings.pools.items()
    }
    return settings.model_copy(update={"providers": providers, "pools": pools})


class AskedJournal:
    """The journal of the driver, which writes for all: an answer is durable when `append` ends."""

    def __init__(self, line: ray.DriverLine) -> None:
        self._line = line

    async def find(self, key: str) -> Response | None:
        return await self._line.ask(Find(key))

    async def append(self, entry: JournalEntry) -> None:
        await self._line.ask(Append(entry))


class AskedBudget(Budget):
    """The budget of the driver, which all workers share."""

    def __init__(self, limits: Limits, line: ray.DriverLine) -> None:
        super().__init__(cost=limits.cost, tokens=limits.tokens, calls=limits.calls)
        self._line = line

    async def claim(self, claim: Claim) -> None:
        await self._line.ask(Claimed(claim))

    def settle(self, claim: Claim, usage: Usage, model: str) -> None:
        self._line.tell(Settled(claim, usage, model))
