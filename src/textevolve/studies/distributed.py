"""The cases of a study spread over the nodes of a Ray cluster.

What must be one for the whole run stays at this process, the driver, which workers ask: its limits,
and the journal where that is a file, which one process writes. What workers do is in
`node_work.py`; `engine.ray` carries what both say.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from textevolve import __version__
from textevolve.engine import ray
from textevolve.engine.local import cancel
from textevolve.errors import BudgetError, CapabilityError, InputError
from textevolve.evaluation import Case, Usage
from textevolve.events import (
    RecordsExpected,
)
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.journal import Journal
from textevolve.llm.model import Response
from textevolve.llm.wrappers import Budget, Claim
from textevolve.settings import Settings, StoreAddress
from textevolve.studies.node_work import (
    Append,
    Claimed,
    Find,
    Notice,
    OpenWork,
    Settled,
    SpreadRun,
)
from textevolve.wiring import CALLS_IN_FLIGHT, Setting, make_budget

if TYPE_CHECKING:
    from textevolve.store.runs import RunRecord
    from textevolve.studies.driver import Launch
    from textevolve.studies.study import AnyStudy, StudySpec

LONGEST_WAIT = 120.0
"""Seconds that a worker's question is waited for that another asks, too, before both do."""


def is_spread(study: AnyStudy, spec: StudySpec, settings: Settings) -> bool:
    """Whether the settings ask for a cluster and the study's cases can be worked on apart. Where
    they ask in vain, that is said."""
    independent = study.independent(spec)
    if _asks_for_cluster(settings) and not independent:
        said = f"{study.kind} runs in this process: its cases are not worked on one by one"
        logging.getLogger("textevolve").info(said, extra={"shown": said})
    return _asks_for_cluster(settings) and independent


def _asks_for_cluster(settings: Settings) -> bool:
    return settings.on not in (None, "none")


def check_spread(
    study: AnyStudy,
    spec: StudySpec,
    settings: Settings,
    models: Sequence[str],
    described: Mapping[str, Any],
) -> None:
    """What can be said of the cluster that the settings ask for before a run is kept.

    Raises:
        CapabilityError: as `spread_run`.
    """
    if _asks_for_cluster(settings) and study.independent(spec):
        _refuse_unspread(models, described, settings)


def spread_run(
    spec: StudySpec,
    run: RunRecord,
    setting: Setting,
    settings: Settings,
    launch: Launch,
    *,
    salt: str,
    check: Callable[[Mapping[str, object]], None],
) -> SpreadRun:
    """What workers are told of a run.

    Raises:
        CapabilityError: something of it cannot be done by other processes; says what to do.
        SettingsError: Ray is not installed.
        InputError: an object of the user's own cannot be sent to them.
    """
    _refuse_unspread(setting.models, setting.described, settings)
    ray.load(settings.on or "")
    limited = make_budget(launch.limits).limits
    return SpreadRun(
        version=__version__,
        spec=spec,
        run_id=run.id,
        cases=run.n_cases or 0,
        setting=replace(setting, objects={}),
        settings=settings,
        salt=salt,
        limits=launch.limits if limited else None,
        objects=_pack_objects(launch.objects),
        check=check,
    )


def _refuse_unspread(
    models: Sequence[str], described: Mapping[str, Any], settings: Settings
) -> None:
    local = [one for one in models if one.startswith("local/") and not embedder_of(one)]
    if local:
        raise CapabilityError(
            f"{local[0]} runs inside one process, and --on ray has many: serve it with `textevolve"
            " serve` and name that endpoint, or leave --on out"
        )
    if settings.batch:
        raise CapabilityError("batch jobs are gathered by one machine: leave out --batch or --on")
    memories = settings.memory_location
    if described.get("collections") and not isinstance(memories, StoreAddress):
        raise CapabilityError(
            f"memories are recalled from the file {memories}, which other machines do not have:"
            " keep them at a postgresql:// address, or leave --on out"
        )


def _pack_objects(objects: Mapping[str, object]) -> bytes:
    for name, one in objects.items():
        try:
            ray.pickled(one)
        except InputError as error:
            raise InputError(f"{name}: {error}; --on ray needs that, or leave --on out") from None
    return ray.pickled(dict(objects))


async def spread_cases(
    run: SpreadRun, cases: Iterable[Case], journal: Journal, launch: Launch
) -> AsyncGenerator[Any]:
    """The records of the cases, as the study gives them; `journal`: that of the run, which is asked
    for workers that cannot open the store.

    Raises:
        SettingsError: there is no Ray, or no cluster at the address.
        ClusterError: its nodes keep failing.
    """
    driver = _Driver(journal, launch, make_budget(launch.limits), run.cases)
    deadline = None if launch.time_limit is None else time.monotonic() + launch.time_limit

    def opening() -> bytes:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return ray.pickled(OpenWork(replace(run, setting=replace(run.setting, time_limit=left))))

    crew = ray.Crew(
        opening=opening,
        at_once=run.settings.concurrency or CALLS_IN_FLIGHT,
        answer=driver.answer,
        hear=driver.hear,
        lost=driver.lose,
        notice=lambda workers: Notice(workers, driver.halted),
    )
    async with ray.join_cluster(run.settings.on or "") as head:
        halting = asyncio.ensure_future(driver.watch_halt())
        try:
            source = ray.spread(enumerate(cases), crew, head, ordered=launch.ordered)
            async with aclosing(source) as found:
                async for records in found:
                    for record in records:
                        yield record
        finally:
            await cancel([halting])


@dataclass(frozen=True, slots=True)
class _Asking:
    worker: str
    done: asyncio.Event = field(default_factory=asyncio.Event)


class _Driver:
    """What there is once for the whole run. Workers ask it by their names."""

    def __init__(self, journal: Journal, launch: Launch, budget: Budget, cases: int) -> None:
        self._each, self._cases = 1, cases
        self.halted = ""
        self._journal, self._launch, self._budget = journal, launch, budget
        self._asking: dict[str, _Asking] = {}
        self._claims: list[tuple[str, Claim]] = []

    async def answer(self, worker: str, question: Any) -> Any:
        if isinstance(question, Find):
            return await self._find(worker, question.key)
        if isinstance(question, Append):
            try:
                return await self._journal.append(question.entry)
            finally:
                self._release(question.entry.key)
        assert isinstance(question, Claimed)
        try:
            await self._budget.claim(question.claim)
        except BudgetError:
            self._release_all(worker)  # it is not going to ask
            raise
        self._claims.append((worker, question.claim))
        return None

    async def _find(self, worker: str, key: str) -> Response | None:
        """What the journal has; where another worker asks for it just now, what that finds."""
        until = time.monotonic() + LONGEST_WAIT
        while (other := self._asking.get(key)) is not None and other.worker != worker:
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                await asyncio.wait_for(other.done.wait(), left)
            except TimeoutError:
                break
        self._asking[key] = _Asking(worker)
        found = await self._journal.find(key)
        if found is not None:
            self._release(key)
        return found

    def _release(self, key: str) -> None:
        asking = self._asking.pop(key, None)
        if asking is not None:
            asking.done.set()

    def _release_all(self, worker: str) -> None:
        for key in [key for key, one in self._asking.items() if one.worker == worker]:
            self._release(key)

    def hear(self, worker: str, news: Any) -> None:
        if isinstance(news, Settled):
            self._claims.remove((worker, news.claim))
            self._budget.settle(news.claim, news.usage, news.model)
        elif isinstance(news, RecordsExpected):  # of a case
            if news.number != self._each:
                self._each = news.number
                self._launch.listener(RecordsExpected(news.number * self._cases))
        else:
            self._launch.listener(news)

    def lose(self, worker: str) -> None:
        """What it was asking, others may ask; its calls that did not end count as failed."""
        self._release_all(worker)
        own = [one for one in self._claims if one[0] == worker]
        self._claims = [one for one in self._claims if one[0] != worker]
        for _, claim in own:
            self._budget.settle(claim, Usage(calls=1), "")

    async def watch_halt(self) -> None:
        while not self.halted:
            self.halted = await self._launch.halt()
            await asyncio.sleep(ray.LOOK_SECONDS)
