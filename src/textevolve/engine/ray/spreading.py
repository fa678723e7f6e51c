"""The driver's part: it hires workers, gives them items, and takes results in.

A cluster has to be joined before (`cluster`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from textevolve.engine.local import cancel, stream
from textevolve.engine.ray.cluster import (
    START_SECONDS,
    loaded,
    pickled,
    unpickled,
)
from textevolve.engine.ray.worker import Line, RayWorker
from textevolve.errors import ClusterError

BATCH = 100
"""Items at most that a worker has waiting beside those that it works on, as many as these else."""
LOOK_SECONDS = 1.0
"""Between two looks at the nodes, and at what there is to notify."""
OPEN_SECONDS, END_SECONDS = 300.0, 10.0
"""How long a worker may take to be ready, and to put away its things."""
MOST_LOSSES = 6
"""Workers that may die one after the other while no result comes."""


@dataclass(frozen=True)
class Crew:
    """What workers are and what the driver does for them.

    `opening`: for each worker, made by how many there are, and `pickled`. `at_once`: items that
    each works on at a time. `answer` to a question of a worker, who has a name; `hear` its news;
    `lost`: it is gone. `notice`: what all workers are to know; it is sent when it has changed.
    """

    opening: Callable[[int], bytes]
    at_once: int
    answer: Callable[[str, Any], Awaitable[Any]]
    hear: Callable[[str, Any], None]
    lost: Callable[[str], None]
    notice: Callable[[], Awaitable[Any]]


async def spread(items: Iterable[Any], crew: Crew, *, ordered: bool = True) -> AsyncGenerator[Any]:
    """Yield the results of all items, each worked on at some worker; items are read lazily.

    `ordered`: in the order of the items, else as they come. What a worker had in hand that died is
    worked on again elsewhere. The first error cancels the rest and is raised; nothing runs on when
    this ends. The process has to have joined a cluster.

    Raises:
        ClusterError: workers die, one after the other, or there are no nodes to work on.
    """
    driver = _Driver(crew)
    watching = asyncio.ensure_future(driver.watch())
    try:
        results = stream(items, driver.work, driver.count_room, ordered=ordered)
        async with aclosing(results):
            async for result in results:
                yield result
    finally:
        await cancel([watching])
        await driver.dismiss()


class _LostError(Exception):
    """The worker of an item died."""


class _Driver:
    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self._lines: dict[str, Line] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._losses = 0
        self._notice: Any = None

    def count_room(self) -> int:
        """Count the items that all workers may have in hand."""
        at_once = self.crew.at_once
        return (at_once + min(BATCH, at_once)) * max(1, len(self._lines))

    async def work(self, item: Any) -> Any:
        """Return the result of an item, of the worker that had least to do."""
        while True:
            while self._failure is None and not self._lines:
                self._changed.clear()
                await self._changed.wait()
            if self._failure is not None:
                raise self._failure
            line = min(self._lines.values(), key=lambda each: each.waiting)
            try:
                result = unpickled(await line.ask(item))
            except _LostError:
                continue
            self._losses = 0
            return result

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        self._failure = self._failure or error
        for line in self._lines.values():
            line.drop(self._failure)
        self._changed.set()

    async def watch(self) -> None:
        """Keep a worker on each node, and send what all of them are to know."""
        idle = 0.0
        while self._failure is None:
            try:
                await self._look()
                idle = 0.0 if self._serving else idle + LOOK_SECONDS
                if idle >= START_SECONDS:
                    raise ClusterError(f"no node of the Ray cluster had a processor for {idle:g} s")
            except Exception as error:  # noqa: BLE001  it ends the run
                self.fail(error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        nodes = await asyncio.to_thread(_find_nodes)
        self._serving = {node: task for node, task in self._serving.items() if not task.done()}
        for node, place in nodes.items():
            if node not in self._serving:
                serving = self._serve(node, place, len(nodes))
                self._serving[node] = asyncio.ensure_future(serving)
        if (notice := await self.crew.notice()) != self._notice:
            self._notice = notice
            for line in self._lines.values():
                line.tell(notice)

    async def _serve(self, node: str, place: str, nodes: int) -> None:
        """Lead one worker's life. It ends without an error if the worker is lost."""
        exceptions = loaded().exceptions
        name = f"{node[:12]}-{self._losses}"
        actor = await asyncio.to_thread(_hire, node, self.crew, nodes)
        line = Line(partial(self.crew.answer, name), partial(self.crew.hear, name))
        pumps: list[asyncio.Future[None]] = []
        try:
            fault = unpickled(await asyncio.wait_for(_shielded(actor.open.remote()), OPEN_SECONDS))
            if fault is not None:
                raise fault
            self._lines[name] = line
            line.tell(self._notice)
            self._changed.set()
            pumps = [asyncio.ensure_future(pump(actor, line)) for pump in (_send, _receive)]
            await asyncio.gather(*pumps)
        except (exceptions.RayError, ConnectionError, TimeoutError) as error:
            self._lines.pop(name, None)
            self._note_loss(place, error)
            line.drop(_LostError())
            await asyncio.sleep(min(self._losses, 5) * LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001  it ends the run
            self.fail(error)
        finally:
            self._lines.pop(name, None)
            await cancel(pumps)
            await line.close()
            self.crew.lost(name)
            await _dismiss(actor)

    def _note_loss(self, place: str, error: Exception) -> None:
        self._losses += 1
        reason = " ".join(str(error).split())
        if self._losses >= MOST_LOSSES:
            self.fail(
                ClusterError(
                    f"{self._losses} workers died one after the other, the last on the node"
                    f" {place}: {reason[:300] or type(error).__name__}"
                )
            )

    async def dismiss(self) -> None:
        await cancel(self._serving.values())


async def _send(actor: Any, line: Line) -> None:
    while True:
        letters = await line.gather()
        await _shielded(actor.give.remote(pickled(letters)))


async def _receive(actor: Any, line: Line) -> None:
    while True:
        line.take(unpickled(await _shielded(actor.fetch.remote())))


def _find_nodes() -> Mapping[str, str]:
    """Find the nodes with a processor, by their ids: where each is."""
    return {
        node["NodeID"]: str(node["NodeManagerHostname"] or node["NodeManagerAddress"])
        for node in loaded().nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    }


def _hire(node: str, crew: Crew, workers: int) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node, soft=False)
    options: dict[str, Any] = {"num_cpus": 1, "max_concurrency": 1000, "max_restarts": 0}
    hired: Any = loaded().remote(RayWorker).options(scheduling_strategy=where, **options)
    return hired.remote(crew.opening(workers), crew.at_once)


async def _shielded(reference: Any) -> Any:
    """Return the result of a worker's method. Ray's client does not bear that its own future is
    cancelled."""
    result: asyncio.Future[Any] = asyncio.ensure_future(reference)
    result.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(result)


async def _dismiss(actor: Any) -> None:
    """Let a worker put away its things, and end it."""
    with suppress(Exception):
        await asyncio.wait_for(_shielded(actor.close.remote()), END_SECONDS)
    with suppress(Exception):
        await asyncio.to_thread(loaded().kill, actor)
