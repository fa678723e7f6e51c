"""What a node does of a spread run: it opens the workbench that this machine would have opened, and
does a study's own `run` on one case after the other. Here, too: what it is told, and what it asks
the driver, which is in `distributed.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
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
from textevolve.wiring import Limits, Setting, open_workbench

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


@asynccontextmanager
async def open_work(run: SpreadRun, workers: int, line: ray.Line) -> AsyncGenerator[ray.ItemWork]:
    """Open what a worker needs, one of so many, which share the limits a minute.

    Raises:
        MismatchError: a node has another version, or other files, than the run was begun with.
    """
    if run.version != __version__:
        raise MismatchError(
            f"a node has TextEvolve {__version__}, and this machine {run.version}: install the same"
        )
    study, objects = find_study(run.spec.kind), ray.unpickled(run.objects)
    run.check(objects)

    async def halt() -> str:
        return line.notice or ""

    async with AsyncExitStack() as stack:
        stack.enter_context(rare_collections())
        opened = open_workbench(
            replace(run.setting, objects=objects),
            share_limits(run.settings, workers),
            Salted(await _open_journal(run, line, stack), run.salt),
            Limits() if run.limits is None else AskedBudget(run.limits, line),
            lambda event: _tell(line, event),
            halt=halt,
        )
        bench = await stack.enter_async_context(opened)

        async def work(placed: tuple[int, Case]) -> list[Any]:
            place, case = placed
            records = study.run(run.spec, [case], replace(bench, first=place))
            async with aclosing(records):
                return [record async for record in records]

        yield work


async def _open_journal(run: SpreadRun, line: ray.Line, stack: AsyncExitStack) -> Journal:
    location = run.settings.store
    if not isinstance(location, StoreAddress):
        return AskedJournal(line)
    store = await asyncio.to_thread(open_store, location, patient=True)
    await stack.enter_async_context(store)
    return store.journal(run.run_id)


def _tell(line: ray.Line, event: Event) -> None:
    """What is worth the way: steps of single cases are not."""
    if isinstance(event, CallFinished):
        line.tell(replace(event, cause=None))
    elif isinstance(event, CallRetried | CallHeld | RecordsExpected):
        line.tell(event)


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


@dataclass(frozen=True, slots=True)
class Settled:
    """The news that a call has ended for which something was set aside."""

    claim: Claim
    usage: Usage
    model: str


class AskedJournal:
    """The journal of the driver, which writes for all: an answer is durable when `append` ends."""

    def __init__(self, line: ray.Line) -> None:
        self._line = line

    async def find(self, key: str) -> Response | None:
        return await self._line.ask(("find", key))

    async def append(self, entry: JournalEntry) -> None:
        await self._line.ask(("append", entry))


class AskedBudget(Budget):
    """The budget of the driver, which all workers share."""

    def __init__(self, limits: Limits, line: ray.Line) -> None:
        super().__init__(cost=limits.cost, tokens=limits.tokens, calls=limits.calls)
        self._line = line

    async def claim(self, claim: Claim) -> None:
        await self._line.ask(("claim", claim))

    def settle(self, claim: Claim, usage: Usage, model: str) -> None:
        self._line.tell(Settled(claim, usage, model))
