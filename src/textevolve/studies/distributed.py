"""The cases of a study spread over the nodes of a Ray cluster.

What must be one for the whole run stays at this process, the driver, which workers ask: its limits,
and the journal where that is a file, which one process writes. What workers do is in
`node_work.py`; `engine.ray` carries what both say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textevolve import __version__
from textevolve.engine import ray
from textevolve.errors import CapabilityError, InputError
from textevolve.evaluation import Case, Usage
from textevolve.events import RecordsExpected
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.journal import Journal
from textevolve.llm.wrappers import Claim
from textevolve.settings import Settings, StoreAddress
from textevolve.studies.node_work import Settled, SpreadRun, open_work
from textevolve.wiring import CALLS_IN_FLIGHT, Setting, make_budget

if TYPE_CHECKING:
    from textevolve.store.runs import RunRecord
    from textevolve.studies.driver import Launch
    from textevolve.studies.study import AnyStudy, StudySpec


def is_spread(study: AnyStudy, spec: StudySpec, settings: Settings) -> bool:
    """Tell whether the settings ask for a cluster and the study's cases can be worked on apart."""
    return settings.on not in (None, "none") and study.independent(spec)


def check_spread(
    study: AnyStudy,
    spec: StudySpec,
    settings: Settings,
    models: Sequence[str],
    described: Mapping[str, Any],
) -> None:
    """Check what a cluster that the settings ask for cannot do; log if it is not used at all.

    Raises:
        CapabilityError: something of the run cannot be done by other processes.
    """
    if settings.on in (None, "none"):
        return
    if not study.independent(spec):
        message = f"{study.kind} runs in this process: its cases are not worked on one by one"
        logging.getLogger("textevolve").info(message, extra={"shown": message})
        return
    local = [name for name in models if name.startswith("local/") and not embedder_of(name)]
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
    """Describe a run to its workers.

    Raises:
        SettingsError: Ray is not installed.
        InputError: an object of the user's own cannot be sent to them.
    """
    ray.load(settings.on or "")
    try:
        objects = ray.pickled(dict(launch.objects))
    except InputError as error:
        names = ", ".join(launch.objects)
        raise InputError(f"{names}: {error}; --on ray needs that, or leave --on out") from None
    return SpreadRun(
        version=__version__,
        spec=spec,
        run_id=run.id,
        cases=run.n_cases or 0,
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
    """Yield the records of the cases, as the study gives them. `journal`: that of the run, which is
    asked for workers that cannot open the store.

    Raises:
        SettingsError: there is no Ray, or no cluster at the address.
        ClusterError: its nodes keep failing.
    """
    driver = _Driver(journal, launch, run.cases)
    began = time.monotonic()

    def pack_opening(workers: int) -> bytes:
        limit, passed = launch.time_limit, time.monotonic() - began
        left = None if limit is None else max(0.0, limit - passed)
        setting = replace(run.setting, time_limit=left)
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
    """What there is once for the whole run. Workers ask it by their names."""

    def __init__(self, journal: Journal, launch: Launch, cases: int) -> None:
        self._journal, self._launch, self._cases = journal, launch, cases
        self._budget = make_budget(launch.limits)
        self._claims: list[tuple[str, Claim]] = []
        self._each = 1

    async def answer(self, worker: str, question: tuple[str, Any]) -> Any:
        kind, content = question
        if kind == "find":
            return await self._journal.find(content)
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
        """Count the calls of a lost worker that did not end as failed."""
        own = [claim for name, claim in self._claims if name == worker]
        self._claims = [claimed for claimed in self._claims if claimed[0] != worker]
        for claim in own:
            self._budget.settle(claim, Usage(calls=1), "")
