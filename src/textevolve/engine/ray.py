"""Work spread over the nodes of a Ray cluster: the counterpart of `local.stream`, and the only
module that uses Ray.

This process is the driver. A worker is a Ray actor, one for each node that has a processor. It
processes items, may ask the driver questions meanwhile, and sends news to it. The two exchange
messages (letters) in groups; the driver both sends and fetches them, so a driver outside the
cluster works in the same way. Ray does not restart actors: the driver knows which items a dead
worker had, gives them to other workers, and starts a new worker if the node is still alive. The
module does not depend on the type of an item.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from textevolve.engine.local import cancel, stream
from textevolve.errors import ClusterError, InputError, SettingsError, describe_error, shorten_error
from textevolve.texts.prose import join_lines

GATHER_SECONDS = 0.005
"""The seconds for which messages are collected before they are sent together."""

Letter: TypeAlias = tuple[str, int, Any]
"""A message between driver and worker: its kind ("question", "answer", "error" or "news"), the
number of the question that it belongs to, and its content."""


class Line:
    """One end of the connection between the driver and a worker. Each end asks questions, which the
    other end answers concurrently, and sends news, which need no answer. `notice`: the latest news
    from the other end.

    Messages are collected, so that many are sent at once.
    """

    def __init__(
        self,
        answer: Callable[[Any], Awaitable[Any]],
        hear: Callable[[Any], object] = lambda _news: None,
    ) -> None:
        self.notice: Any = None
        self._answer = answer
        self._hear = hear
        self._letters: list[Letter] = []
        self._written = asyncio.Event()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Future[None]] = set()

    @property
    def waiting(self) -> int:
        """Return the number of questions that have no answer yet."""
        return len(self._waiting)

    async def ask(self, question: Any) -> Any:
        """Send a question and return the other end's answer; an error of the other end is raised
        here."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write("question", number, question)
        try:
            return await answer
        finally:
            del self._waiting[number]

    def report(self, news: Any) -> None:
        self._write("news", 0, news)

    def _write(self, kind: str, number: int, content: Any) -> None:
        self._letters.append((kind, number, content))
        self._written.set()

    async def gather(self) -> list[Letter]:
        """Wait for messages to send, collect them for a moment, and return them."""
        await self._written.wait()
        await asyncio.sleep(GATHER_SECONDS)
        self._written.clear()
        letters = self._letters
        self._letters = []
        return letters

    def take(self, letters: Sequence[Letter]) -> None:
        """Process messages that the other end sent."""
        for kind, number, content in letters:
            waiting = self._waiting.get(number)
            if kind == "question":
                answering = asyncio.ensure_future(self._reply(number, content))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)
            elif kind == "news":
                self.notice = content
                self._hear(content)
            elif waiting is None or waiting.done():  # whoever asked was cancelled
                continue
            elif kind == "error":
                waiting.set_exception(content)
            else:
                waiting.set_result(content)

    async def _reply(self, number: int, question: Any) -> None:
        try:
            self._write("answer", number, await self._answer(question))
        except Exception as error:  # noqa: BLE001  it is raised where the question was asked
            self._write("error", number, portable(error))

    def drop(self, error: BaseException) -> None:
        """Fail all questions that have no answer yet with this error."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        self._written.set()
        await cancel(self._answering)


ItemWork: TypeAlias = Callable[[Any], Awaitable[Any]]
Opening: TypeAlias = Callable[[Line], AbstractAsyncContextManager[ItemWork]]
"""A function that a worker calls at its start: it opens the resources for the work, and returns the
function that processes an item."""


class RayWorker:
    """The Ray actor of one node, which processes several items concurrently."""

    def __init__(self, opening: bytes, at_once: int) -> None:
        self._opening = opening
        self._gate = asyncio.Semaphore(at_once)
        self._stack = AsyncExitStack()

    async def open(self) -> bytes:
        """Open the resources that the work needs. Return the serialized error if that fails,
        otherwise a serialized None."""
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of what a killed driver leaves
        self._line = Line(self._do)

        try:
            opening: Opening = unpickled(self._opening)
            self._work = await self._stack.enter_async_context(opening(self._line))
        except ImportError as error:
            return pickled(ClusterError(f"a node lacks code that the run needs ({error})"))
        except Exception as error:  # noqa: BLE001  it is raised at the driver
            return pickled(portable(error))

        return pickled(None)

    async def _do(self, item: Any) -> bytes:
        async with self._gate:
            return pickled(await self._work(item))

    async def give(self, packed: bytes) -> None:
        self._line.take(unpickled(packed))

    async def fetch(self) -> bytes:
        return pickled(await self._line.gather())

    async def close(self) -> None:
        await self._line.close()
        await self._stack.aclose()


def portable(error: Exception) -> Exception:
    """Return the error if it can be sent to the driver; otherwise a ClusterError with the same
    message."""
    try:
        unpickled(pickled(error))
    except Exception:  # noqa: BLE001  whatever goes wrong, it does not travel
        return ClusterError(join_lines(describe_error(error)))

    return error


CONNECT_SECONDS = 5.0
START_SECONDS = 180.0
"""The most seconds that the driver waits until an address answers, and until the cluster has
started."""
LOCAL_OBJECTS = 100_000_000
"""The size in bytes of the shared memory of a cluster that is started on this machine; it is small,
since messages are small."""


def load(address: str) -> None:
    """Load Ray, with its usage reports disabled, for a cluster at this address. A cluster of this
    machine alone listens on loopback, which must be set before Ray is loaded.

    Raises:
        SettingsError: Ray is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not _cluster_address(address):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        loaded()
    except ImportError:
        raise SettingsError(
            "--on ray needs the package Ray; install it with: pip install 'textevolve[ray]'"
        ) from None


def loaded() -> Any:
    import ray

    return ray


def _cluster_address(address: str) -> str:
    """Return the address of the cluster to join; empty if one has to be started."""
    configured = address if "://" in address else os.environ.get("RAY_ADDRESS", "")
    return "" if configured == "local" else configured


def pickled(value: Any) -> bytes:
    """Serialize an object for another process, including code of the user.

    Raises:
        InputError: the object cannot be serialized.
    """
    try:
        return loaded().cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001  pickling may raise anything
        reason = join_lines(describe_error(error))
        raise InputError(f"cannot be sent to another process ({reason:.200})") from None


def unpickled(packed: bytes) -> Any:
    return loaded().cloudpickle.loads(packed)


@asynccontextmanager
async def join_cluster(address: str) -> AsyncGenerator[None]:
    """Connect to the cluster as a driver, unless this process is one already. Ray has to be loaded.
    `address`: "ray" is the cluster that RAY_ADDRESS names, or otherwise a local one that is stopped
    afterwards; ray://HOST:PORT is the address of a cluster's client server.

    Raises:
        SettingsError: the cluster cannot be reached.
    """
    cluster = _cluster_address(address)
    ray = loaded()
    if cluster:
        await check_reachable(cluster)
    if ray.is_initialized():
        yield
        return
    try:
        await asyncio.wait_for(asyncio.to_thread(_join, ray, cluster), START_SECONDS)
    except TimeoutError:
        raise _unreached(cluster, f"it accepted no client within {START_SECONDS:g} s") from None
    except Exception as error:
        raise _unreached(cluster, describe_error(error)) from error

    try:
        yield
    finally:
        await asyncio.shield(asyncio.to_thread(ray.shutdown))


def _join(ray: Any, cluster: str) -> None:
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.CRITICAL,
        "namespace": "textevolve",
    }

    if cluster:
        ray.init(cluster, **quiet)
    else:
        quiet |= {"include_dashboard": False, "object_store_memory": LOCAL_OBJECTS}
        ray.init("local", **quiet)

    with suppress(ImportError, AttributeError, KeyError):
        # It prints messages about dead workers on standard output; we report those ourselves.
        from ray._private.ray_logging import global_worker_stdstream_dispatcher as printing

        printing.remove_handler("ray_print_logs")


async def check_reachable(address: str) -> None:
    """Check that something listens at the address, since Ray itself waits long for it.

    Raises:
        SettingsError: nothing listens there.
    """
    parts = urlsplit(address if "://" in address else f"//{address}")

    try:
        host = parts.hostname
        port = parts.port
    except ValueError:
        host = port = None

    if host is None or port is None:
        if address == "auto":
            return
        raise SettingsError(
            f"'{address}' is not the address of a Ray cluster; write ray://HOST:PORT"
        )

    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_SECONDS)
    except (TimeoutError, OSError) as error:
        raise _unreached(address, str(error) or f"no answer within {CONNECT_SECONDS:g} s") from None

    writer.close()


def _unreached(address: str, reason: str) -> SettingsError:
    reason = join_lines(reason)
    where = f"the Ray cluster at {address} cannot be reached" if address else "Ray does not start"
    return SettingsError(
        f"{where} ({reason:.300}); check that it runs, with the same version of Ray as this machine"
        " and one token (RAY_AUTH_TOKEN or ~/.ray/auth_token)"
    )


BATCH = 100
"""The most items that wait at a worker in addition to those in progress. A worker that processes
fewer at once has only that many waiting."""
LOOK_SECONDS = 1.0
"""The seconds between two checks of the cluster's nodes, and of the news for workers."""
OPEN_SECONDS = 300.0
END_SECONDS = 10.0
"""The most seconds that a worker may take to open its resources, and to close them."""
MOST_LOSSES = 6
"""The number of workers that may die in a row, without any result between, before the run fails."""


@dataclass(frozen=True)
class Crew:
    """The options of the workers, and the driver's callbacks for them.

    Attributes:
        opening: Returns the serialized function that opens a worker's resources; its argument is
            the number of workers.
        at_once: How many items a worker processes at a time.
        answer: Answers a question of a worker; its first argument is the worker's name.
        hear: Receives the news of a worker; its first argument is the worker's name.
        lost: Is called with the name of a worker that died or was ended.
        notice: Returns the news for all workers, which are sent when they have changed.
    """

    opening: Callable[[int], bytes]
    at_once: int
    answer: Callable[[str, Any], Awaitable[Any]]
    hear: Callable[[str, Any], None]
    lost: Callable[[str], None]
    notice: Callable[[], Awaitable[Any]]


async def spread(items: Iterable[Any], crew: Crew, *, ordered: bool = True) -> AsyncGenerator[Any]:
    """Yield the results of all items, each processed by one of the workers; items are read lazily.

    `ordered`: in the order of the items; otherwise as they finish. If a worker dies, its items are
    processed again elsewhere. The first error cancels the rest and is raised; no work is left
    running afterwards. The process must have joined a cluster.

    Raises:
        ClusterError: `MOST_LOSSES` workers died in a row, or no node had a processor for
            `START_SECONDS`.
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
    """The error of an item whose worker died."""


class _Driver:
    """The part of a run in the driver: it keeps a worker on each node, and distributes the
    items."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self._lines: dict[str, Line] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._losses = 0
        self._notice: Any = None

    def count_room(self) -> int:
        """Return how many items all workers together can hold."""
        at_once = self.crew.at_once
        return (at_once + min(BATCH, at_once)) * max(1, len(self._lines))

    async def work(self, item: Any) -> Any:
        """Give an item to the least busy worker, and return its result."""
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
        """Keep a worker on each node, and send the news for all workers when they change."""
        idle = 0.0
        while self._failure is None:
            try:
                await self._look()
                idle = 0.0 if self._serving else idle + LOOK_SECONDS
                if idle >= START_SECONDS:
                    raise ClusterError(
                        f"no node of the Ray cluster had a free processor for {idle:g} s"
                    )
            except Exception as error:  # noqa: BLE001  it ends the run
                self.fail(error)

            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        nodes = await asyncio.to_thread(_find_nodes)
        self._serving = {node: task for node, task in self._serving.items() if not task.done()}
        for node, place in nodes.items():
            if node not in self._serving:
                self._serving[node] = asyncio.ensure_future(self._serve(node, place, len(nodes)))
        if (notice := await self.crew.notice()) != self._notice:
            self._notice = notice
            for line in self._lines.values():
                line.report(notice)

    async def _serve(self, node: str, place: str, nodes: int) -> None:
        """Start a worker, exchange messages with it, and end it; return without an error if the
        worker is lost."""
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
            line.report(self._notice)
            self._changed.set()
            pumps = [asyncio.ensure_future(pump(actor, line)) for pump in (_send, _receive)]
            await asyncio.gather(*pumps)
        except (exceptions.RayError, ConnectionError, TimeoutError) as error:
            self._lines.pop(name, None)
            self._losses += 1
            reason = shorten_error(error) or type(error).__name__
            if self._losses >= MOST_LOSSES:
                self.fail(
                    ClusterError(
                        f"{self._losses} workers died one after the other, the last on the node"
                        f" {place}: {reason}"
                    )
                )

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

    async def dismiss(self) -> None:
        await cancel(self._serving.values())


async def _send(actor: Any, line: Line) -> None:
    while True:
        await _shielded(actor.give.remote(pickled(await line.gather())))


async def _receive(actor: Any, line: Line) -> None:
    while True:
        line.take(unpickled(await _shielded(actor.fetch.remote())))


def _find_nodes() -> Mapping[str, str]:
    """Return the host names of the running nodes that have a processor, by the ids of the nodes."""
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
    """Return the result of a worker's method. If the caller is cancelled, the future continues,
    since Ray's client cannot cancel it."""
    result: asyncio.Future[Any] = asyncio.ensure_future(reference)
    result.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(result)


async def _dismiss(actor: Any) -> None:
    """Let a worker close its resources, and then end it."""
    with suppress(Exception):
        await asyncio.wait_for(_shielded(actor.close.remote()), END_SECONDS)
    with suppress(Exception):
        await asyncio.to_thread(loaded().kill, actor)
