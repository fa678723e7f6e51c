"""Distribution of a study's cases over the nodes of a Ray cluster.

This process, the driver, holds the state of the whole run: its limits, and the journal of answers
if that is a file, which only one process may write. Workers on the nodes send it their requests to
both. Each worker opens the same models and judges as this process would, and runs the study on one
case after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textevolve import __version__
from textevolve.engine import ray
from textevolve.errors import CapabilityError, InputError, MismatchError
from textevolve.evaluation import Case, Usage
from textevolve.events import CallFinished, CallHeld, CallRetried, Event, RecordsExpected
from textevolve.ledger import log
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.model import Journal, JournalEntry, Response
from textevolve.llm.wrappers import Budget, Claim, Salted
from textevolve.loading import rare_collections
from textevolve.mappings import map_values
from textevolve.runs.study import AnyStudy, StudySpec, find_study
from textevolve.settings import Settings, StoreAddress
from textevolve.store.repository import open_store
from textevolve.wiring import CALLS_IN_FLIGHT, Limits, Setting, make_budget, open_workbench

if TYPE_CHECKING:
    from textevolve.runs.driver import Launch
    from textevolve.runs.stored import StudyRun


def check_spread(
    study: AnyStudy,
    settings: Settings,
    models: Sequence[str],
    described: Mapping[str, Any],
) -> None:
    """Check that the cluster of the settings can perform a run. If it will not be used, since the
    cases depend on each other, log the reason.

    Raises:
        CapabilityError: a part of the run works in this process only.
    """
    if not study.independent:
        message = (
            f"{study.kind} cannot run on a cluster: it does not process its cases one by one;"
            " leave --on out"
        )
        log.info(message, extra={"shown": message})
        return

    local = [name for name in models if name.startswith("local/") and not embedder_of(name)]

    if local:
        raise CapabilityError(
            f"{local[0]} runs inside one process, and --on ray uses many: serve it with"
            " `textevolve serve` and name that endpoint, or leave --on out"
        )

    if settings.batch:
        raise CapabilityError("batch jobs are collected by one machine: leave out --batch or --on")
    memories = settings.memory_location

    if described.get("collections") and not isinstance(memories, StoreAddress):
        raise CapabilityError(
            f"memories are recalled from the file {memories}, which other machines do not have:"
            " keep them at a postgresql:// address, or leave --on out"
        )


def spread_run(
    run: StudyRun,
    setting: Setting,
    settings: Settings,
    launch: Launch,
    *,
    salt: str,
    check: Callable[[Mapping[str, object]], None],
) -> SpreadRun:
    """Return the description of a run that is sent to its workers.

    Raises:
        SettingsError: Ray is not installed.
        InputError: a Python object of the user cannot be sent to them.
    """
    ray.load(settings.on or "")

    try:
        objects = ray.pickled(dict(launch.objects))
    except InputError as error:
        raise InputError(
            f"{', '.join(launch.objects)}: {error}; --on ray needs that, or leave --on out"
        ) from None

    return SpreadRun(
        version=__version__,
        spec=run.spec,
        run_id=run.id,
        cases=run.record.n_cases or 0,
        setting=replace(setting, objects={}),
        settings=settings,
        salt=salt,
        limits=launch.limits if make_budget(launch.limits).limits else None,
        objects=objects,
        check=check,
    )


async def spread_cases(
    run: SpreadRun, cases: Iterable[Case], journal: Journal, launch: Launch
) -> AsyncGenerator[Any]:
    """Run the cases on the cluster, and yield the records that the study makes. `journal`: the
    run's journal, for workers that cannot open the store themselves.

    Raises:
        SettingsError: Ray is not installed, or there is no cluster at the address.
        ClusterError: the nodes of the cluster keep failing.
    """
    driver = _Driver(journal, launch, run.cases)
    began = time.monotonic()

    def pack_opening(workers: int) -> bytes:
        limit = launch.time_limit
        passed = time.monotonic() - began
        seconds_left = None if limit is None else max(0.0, limit - passed)
        setting = replace(run.setting, time_limit=seconds_left)
        return ray.pickled(partial(open_work, replace(run, setting=setting), workers))

    crew = ray.Crew(
        opening=pack_opening,
        at_once=run.settings.concurrency or CALLS_IN_FLIGHT,
        answer=driver.answer,
        hear=driver.hear,
        lost=driver.lose,
        notice=launch.halt,
    )

    async with (
        ray.join_cluster(run.settings.on or ""),
        aclosing(ray.spread(enumerate(cases), crew, ordered=launch.ordered)) as results,
    ):
        async for records in results:
            for record in records:
                yield record


class _Driver:
    """The driver's side of the connection to workers: it answers their requests to the run's
    journal and budget, and passes their events on."""

    def __init__(self, journal: Journal, launch: Launch, cases: int) -> None:
        self._journal = journal
        self._launch = launch
        self._cases = cases
        self._budget = make_budget(launch.limits)
        self._claims: list[tuple[str, Claim]] = []
        self._each = 1

    async def answer(self, worker: str, question: tuple[str, Any]) -> Any:
        kind, content = question
        if kind == "find":
            return await self._journal.find(content)
        if kind == "has_answer":
            return await self._journal.has_answer(content)
        if kind == "append":
            return await self._journal.append(content)
        await self._budget.claim(content)
        self._claims.append((worker, content))
        return None

    def hear(self, worker: str, news: Any) -> None:
        if isinstance(news, Settled):
            self._claims.remove((worker, news.claim))
            self._budget.settle(news.claim, news.usage, news.model)
        elif not isinstance(news, RecordsExpected):
            self._launch.listener(news)
        elif news.number != self._each:  # of one case
            self._each = news.number
            self._launch.listener(RecordsExpected(news.number * self._cases))

    def lose(self, worker: str) -> None:
        """Settle the unfinished calls of a lost worker in the budget, as failed calls."""
        lost_claims = [claim for name, claim in self._claims if name == worker]
        self._claims = [claimed for claimed in self._claims if claimed[0] != worker]
        for claim in lost_claims:
            self._budget.settle(claim, Usage(calls=1), "")


@dataclass(frozen=True)
class SpreadRun:
    """A run in the form that workers receive.

    Attributes:
        version: The version of this package, which workers must have, too.
        cases: The number of cases.
        setting: The models and date with which workers open their models and judges.
        salt: A text in the keys of the run's journal; another salt makes every call anew.
        limits: The limits on cost, tokens and calls that the driver enforces; None without limits.
        objects: The user's Python objects, pickled.
        check: A function that is called with these objects on the node, and raises an error if the
            files and prompts of the node differ from the run's.
    """

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
    """Open the models and judges of a worker, and yield the function that runs one case. `workers`:
    the number of workers that share the limits on requests and tokens per minute.

    Raises:
        MismatchError: a node has another version, or other files, than the run was started with.
    """
    if run.version != __version__:
        raise MismatchError(
            f"a node has TextEvolve {__version__}, and this machine has {run.version}: install"
            " the same version"
        )

    study = find_study(run.spec.kind)
    objects = ray.unpickled(run.objects)
    run.check(objects)

    async def halt() -> str:
        return line.notice or ""

    def forward(event: Event) -> None:  # those of the steps of a case stay here
        if isinstance(event, CallFinished):
            line.report(replace(event, cause=None))
        elif isinstance(event, CallRetried | CallHeld | RecordsExpected):
            line.report(event)

    async with AsyncExitStack() as stack:
        stack.enter_context(rare_collections())
        journal: Journal = RemoteJournal(line)
        if isinstance(location := run.settings.store, StoreAddress):
            store = await asyncio.to_thread(open_store, location, patient=True)
            await stack.enter_async_context(store)
            journal = store.journal(run.run_id)

        opened = open_workbench(
            replace(run.setting, objects=objects),
            share_limits(run.settings, workers),
            Salted(journal, run.salt),
            Limits() if run.limits is None else RemoteBudget(run.limits, line),
            forward,
            halt=halt,
        )
        bench = await stack.enter_async_context(opened)

        async def work(placed: tuple[int, Case]) -> list[Any]:
            place, case = placed
            records = study.run(run.spec, [case], replace(bench, first=place))
            async with aclosing(records):
                return [record async for record in records]

        yield work


def share_limits(settings: Settings, workers: int) -> Settings:
    """Return the settings of one worker, with its share of each limit on requests and tokens per
    minute."""

    def part(endpoint: Any) -> Any:
        names = ("requests_per_minute", "tokens_per_minute")
        limits = {name: value for name in names if (value := getattr(endpoint, name)) is not None}
        return endpoint.model_copy(update={name: value / workers for name, value in limits.items()})

    providers = map_values(part, settings.providers)
    pools = {
        name: pool.model_copy(update={"members": tuple(map(part, pool.members))})
        for name, pool in settings.pools.items()
    }

    return settings.model_copy(update={"providers": providers, "pools": pools})


@dataclass(frozen=True, slots=True)
class Settled:
    """The message of a worker that a call has ended, so that the driver replaces its reserved part
    of the budget (`claim`) by the actual usage."""

    claim: Claim
    usage: Usage
    model: str


class RemoteJournal:
    """The journal in a worker: it sends each request to the driver, which alone writes. When
    `append` returns, the answer is on disk."""

    def __init__(self, line: ray.Line) -> None:
        self._line = line

    async def find(self, key: str) -> Response | None:
        return await self._line.ask(("find", key))

    async def has_answer(self, model: str) -> bool:
        return await self._line.ask(("has_answer", model))

    async def append(self, entry: JournalEntry) -> None:
        await self._line.ask(("append", entry))


class RemoteBudget(Budget):
    """The budget in a worker: it sends each request to the driver, whose budget all workers
    share."""

    def __init__(self, limits: Limits, line: ray.Line) -> None:
        super().__init__(cost=limits.cost, tokens=limits.tokens, calls=limits.calls)
        self._line = line

    async def claim(self, claim: Claim) -> None:
        await self._line.ask(("claim", claim))

    def settle(self, claim: Claim, usage: Usage, model: str) -> None:
        self._line.report(Settled(claim, usage, model))
