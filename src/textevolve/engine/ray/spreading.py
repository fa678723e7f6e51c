"""What the driver does: it hires workers, gives them items, and takes results in.

A cluster has to be joined before (`cluster`)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from textevolve.engine.local import cancel
from textevolve.engine.ray.cluster import (
    START_SECONDS,
    loaded,
    pickled,
    refuse_silent,
    unpickled,
)
from textevolve.engine.ray.worker import GATHER_SECONDS, Letter, RayWorker, portable
from textevolve.errors import ClusterError, SettingsError

BATCH = 100
"""Items at most that a worker has waiting beside those that it works on, as many as these else."""
AHEAD = 4
"""Ordered results that may wait for a slow one before them, for each item that may be in hand."""
LOOK_SECONDS = 1.0
"""Between two looks at which nodes there are, and at what there is to notify."""
OPEN_SECONDS, END_SECONDS = 300.0, 10.0
"""How long is waited for a worker to be ready, and for one to put away its things."""
HEAD_SECONDS = 15.0
"""How long the head of the cluster may be silent; Ray ends this process after 60."""
MOST_LOSSES = 6
"""Workers that may die one after the other while no result comes."""


@dataclass(frozen=True)
class Crew:
    """What workers are and what the driver does for them.

    `opening`: made anew for each worker, `pickled`. `at_once`: items that each works on at a time.
    `answer` to a question of a worker, who has a name; `hear` its news; `lost`: it is gone.
    `notice`: what workers are to know, by how many there are; it is sent when it has changed.
    """

    opening: Callable[[], bytes]
    at_once: int
    answer: Callable[[str, Any], Awaitable[Any]]
    hear: Callable[[str, Any], None]
    lost: Callable[[str], None]
    notice: Callable[[int], Any]


async def spread(
    items: Iterable[Any], crew: Crew, head: str, *, ordered: bool = True
) -> AsyncGenerator[Any]:
    """The results of all items, each worked on at some worker; items are read lazily.

    `head`: the address of the cluster's head, which has to answer all the time: Ray ends this
    process, without a word of ours, a minute after it has gone. `ordered`: in the order of the
    items, else as they come. What a worker had in hand that died is worked on again elsewhere. The
    first error cancels the rest and is raised; nothing runs on when this ends. The process has to
    have joined a cluster.

    Raises:
        ClusterError: workers die, one after the other, there are no nodes to work on, or the head
            does not answer any more.
    """
    driver = _Driver(iter(items), crew, ordered)
    watching = asyncio.ensure_future(driver.watch(head))
    watching.add_done_callback(lambda _: driver.wake.set())
    try:
        while True:
            driver.wake.clear()
            driver.fill()
            while driver.found:
                yield driver.found.popleft()
                driver.fill()
            if driver.failure is not None:
                raise driver.failure
            if driver.done:
                return
            if watching.done():
                watching.result()
            await driver.wake.wait()
    finally:
        await cancel([watching])
        await driver.dismiss()


@dataclass
class _Member:
    """A worker as the driver sees it."""

    name: str
    actor: Any
    in_hand: dict[int, Any] = field(default_factory=dict[int, Any])
    letters: list[Letter] = field(default_factory=list[Letter])
    written: asyncio.Event = field(default_factory=asyncio.Event)
    answering: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])
    notice: Any = None

    def write(self, letter: Letter) -> None:
        self.letters.append(letter)
        self.written.set()


class _Driver:
    def __init__(self, source: Iterator[Any], crew: Crew, ordered: bool) -> None:
        self.crew = crew
        self.found: deque[Any] = deque()
        self.failure: BaseException | None = None
        self.wake = asyncio.Event()
        self._source = enumerate(source)
        self._more = True
        self._again: deque[tuple[int, Any]] = deque()
        self._ordered = ordered
        self._next = 0
        self._waiting: dict[int, Any] = {}
        self._members: dict[str, _Member] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._losses = 0

    @property
    def done(self) -> bool:
        in_hand = any(one.in_hand for one in self._members.values())
        return not (self._more or self._again or in_hand or self.found)

    def fill(self) -> None:
        """Give workers what they have room for, the one with the least first, and no more ahead of
        the first result that is missing than may wait; that one may be among what is to be done
        again."""
        room = self.crew.at_once + min(BATCH, self.crew.at_once)
        most = AHEAD * room * max(1, len(self._members))
        while self._again or len(self._waiting) < most:
            free = [one for one in self._members.values() if len(one.in_hand) < room]
            item = self._take() if free else None
            if item is None:
                return
            member = min(free, key=lambda one: len(one.in_hand))
            member.in_hand[item[0]] = item[1]
            member.write(("item", *item))

    def _take(self) -> tuple[int, Any] | None:
        if self._again:
            return self._again.popleft()
        if self._more:
            item = next(self._source, None)
            self._more = item is not None
            return item
        return None

    async def watch(self, head: str) -> None:
        """Keep a worker on each node, and tell all of them what there is to know."""
        idle, answered = 0.0, time.monotonic()
        while True:
            try:
                await refuse_silent(head)
                answered = time.monotonic()
            except SettingsError:
                if (silent := time.monotonic() - answered) >= HEAD_SECONDS:
                    raise ClusterError(
                        f"the head of the Ray cluster, {head}, has not answered for {silent:.0f} s:"
                        " start the cluster again; what was answered is kept"
                    ) from None
                await asyncio.sleep(LOOK_SECONDS)
                continue
            nodes = await asyncio.to_thread(_find_nodes)
            for node in nodes:
                if node not in self._serving:
                    self._serving[node] = asyncio.ensure_future(self._serve(node, nodes[node]))
            for node, task in list(self._serving.items()):
                if task.done():
                    del self._serving[node]
                    task.result()
            idle = 0.0 if self._serving else idle + LOOK_SECONDS
            if idle >= START_SECONDS:
                raise ClusterError(f"no node of the Ray cluster had a processor for {idle:g} s")
            self._notify()
            await asyncio.sleep(LOOK_SECONDS)

    def _notify(self) -> None:
        said = self.crew.notice(max(1, len(self._members)))
        for member in self._members.values():
            if member.notice != said:
                member.notice = said
                member.write(("notice", 0, said))

    async def _serve(self, node: str, place: str) -> None:
        """One worker's life. It ends without an error where the worker is lost."""
        exceptions = loaded().exceptions
        name = f"{node[:12]}-{self._losses}"
        actor = await asyncio.to_thread(_hire, node, self.crew)
        member = _Member(name, actor)
        pumps: list[asyncio.Future[None]] = []
        try:
            opened = unpickled(await asyncio.wait_for(_told(actor.open.remote()), OPEN_SECONDS))
            if opened is not None:
                raise opened
            self._members[name] = member
            self._notify()
            self.wake.set()
            pumps = [asyncio.ensure_future(one(member)) for one in (self._send, self._receive)]
            await asyncio.gather(*pumps)
        except (exceptions.RayError, ConnectionError, TimeoutError) as error:
            self._lose(member, place, error)
            await asyncio.sleep(min(self._losses, 5) * LOOK_SECONDS)
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            self._members.pop(name, None)
            await cancel([*pumps, *member.answering])
            self.crew.lost(name)
            await _dismiss(actor)
            self._notify()
            self.wake.set()

    def _lose(self, member: _Member, place: str, error: Exception) -> None:
        self._members.pop(member.name, None)
        self._again.extend(sorted(member.in_hand.items()))
        member.in_hand.clear()
        self._losses += 1
        said = " ".join(str(error).split())
        if "No module named" in said:
            module = said.partition("No module named")[2][:60].strip()
            self.failure = ClusterError(f"the node {place} lacks the Python module {module}")
        elif self._losses >= MOST_LOSSES:
            self.failure = ClusterError(
                f"{self._losses} workers died one after the other, the last on the node {place}:"
                f" {said[:300] or type(error).__name__}"
            )

    async def _send(self, member: _Member) -> None:
        while True:
            await member.written.wait()
            await asyncio.sleep(GATHER_SECONDS)
            member.written.clear()
            letters, member.letters = member.letters, []
            await _told(member.actor.give.remote(pickled(letters)))

    async def _receive(self, member: _Member) -> None:
        while True:
            for kind, number, said in unpickled(await _told(member.actor.fetch.remote())):
                if kind == "question":
                    answering = asyncio.ensure_future(self._answer(member, number, said))
                    member.answering.add(answering)
                    answering.add_done_callback(member.answering.discard)
                elif kind == "news":
                    self.crew.hear(member.name, said)
                elif member.in_hand.pop(number, None) is not None:
                    self._take_result(kind, number, said)
            self.wake.set()

    def _take_result(self, kind: str, number: int, said: Any) -> None:
        self._losses = 0
        if kind == "failure":
            self.failure = self.failure or said
        elif not self._ordered:
            self.found.append(said)
        else:
            self._waiting[number] = said
            while self._next in self._waiting:
                self.found.append(self._waiting.pop(self._next))
                self._next += 1

    async def _answer(self, member: _Member, number: int, question: Any) -> None:
        try:
            answer: Letter = ("answer", number, await self.crew.answer(member.name, question))
        except Exception as error:  # noqa: BLE001  it belongs to the worker that asked
            answer = ("refusal", number, portable(error))
        member.write(answer)

    async def dismiss(self) -> None:
        await cancel(self._serving.values())


def _find_nodes() -> Mapping[str, str]:
    """The nodes with a processor, by their ids: where each is."""
    return {
        node["NodeID"]: str(node["NodeManagerHostname"] or node["NodeManagerAddress"])
        for node in loaded().nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    }


def _hire(node: str, crew: Crew) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node, soft=False)
    options: dict[str, Any] = {"num_cpus": 1, "max_concurrency": 1000, "max_restarts": 0}
    hired: Any = loaded().remote(RayWorker).options(scheduling_strategy=where, **options)
    return hired.remote(crew.opening(), crew.at_once)


async def _told(reference: Any) -> Any:
    """What a worker's method gives. Nobody waits for it any more where this is cancelled, but Ray's
    client does not bear that its own future is."""
    asked: asyncio.Future[Any] = asyncio.ensure_future(reference)
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(asked)


async def _dismiss(actor: Any) -> None:
    """Let a worker put away its things, and end it."""
    with suppress(Exception):
        await asyncio.wait_for(_told(actor.close.remote()), END_SECONDS)
    with suppress(Exception):
        await asyncio.to_thread(loaded().kill, actor)
