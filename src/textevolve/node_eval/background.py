"""Evaluations beside the agent: queues with worker threads, time limits, outcomes, and waiting.

Quick evaluators run on one thread, one after another; those that take long run side by side. Async
ones share one event loop, which a thread of the second kind waits for. An evaluator that hangs
cannot be stopped: its thread is left behind, and another takes its place.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Literal, cast

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.evaluators import (
    ERROR_KEPT,
    NodeEvaluator,
    NodeOutcome,
    as_failure,
    check_outcome,
    is_number,
)
from textevolve.node_eval.history import one_line
from textevolve.node_eval.run_records import EvaluationJob
from textevolve.node_eval.snapshots import SnapshotLimits

NAP, NAPS = 0.01, 50
"""The quick thread naps and looks for work by itself, so that the agent need not wake it for each
node; after so many naps without work it sleeps until it is woken."""

IDLE = 5.0
"""Seconds without work after which a thread ends."""

GRACE = 1.0
"""Seconds by which an async evaluator may overrun its time limit before its loop is left behind."""

WATCH = 0.05
"""Seconds between two looks for evaluators that hang."""

EXIT_WAIT = 5.0
"""Seconds for which the end of the program waits for unfinished evaluations."""

MOST_HANGS = 3
"""An evaluator that hung, or was waited for in vain, so many times in a row is left out."""

LEFT_OUT = Failure("skipped", f"left out: it gave no answer {MOST_HANGS} times")

log = logging.getLogger("textevolve.node_eval")
Evaluators = tuple[NodeEvaluator, ...]

evaluating: ContextVar[bool] = ContextVar("evaluating", default=False)
"""Set where an evaluator runs: nodes that it runs itself are not the agent's."""


@dataclass(slots=True, eq=False)
class EvaluatorTask:
    """Evaluators to run on a node, one after another; those that have ended are removed.

    `awaitable`: what the first of them returned, if it is yet to be awaited. `started`: when the
    first began, on the monotonic clock. `loop`: where it is awaited now.
    """

    job: EvaluationJob
    evaluators: list[NodeEvaluator]
    awaitable: Awaitable[object] | None = None
    started: float = 0.0
    loop: asyncio.AbstractEventLoop | None = None


class Lane:
    """A queue of tasks, and at most `threads` threads that run them in order.

    Queue and threads change with the lock held only, so that whoever closes the lane, or gives up
    on an evaluator, meets every task in one place.
    """

    def __init__(
        self,
        run: Callable[[Lane, object, EvaluatorTask], None],
        lock: Any,
        *,
        threads: int = 1,
        naps: int = 0,
    ) -> None:
        self.queue: deque[EvaluatorTask] = deque()
        self.workers: dict[object, EvaluatorTask | None] = {}
        self.news = threading.Condition(lock)
        self._run_task, self._threads = run, threads
        self._pauses = (*[NAP] * naps, IDLE)
        self._asleep = False

    @property
    def is_idle(self) -> bool:
        return not any(self.workers.values())

    def start(self) -> None:
        """Let a thread take what is queued.

        Raises:
            RuntimeError: no thread can be started.
        """
        idle = sum(task is None for task in self.workers.values())
        if len(self.queue) > idle and len(self.workers) < self._threads:
            worker = object()
            thread = threading.Thread(
                target=self._work, args=(worker,), name="textevolve-nodes", daemon=True
            )
            self.workers[worker] = None
            try:
                thread.start()
            except RuntimeError:
                del self.workers[worker]
                raise
        elif self._asleep:
            self.news.notify()

    def _work(self, worker: object) -> None:
        evaluating.set(True)
        while (task := self._take(worker)) is not None:
            self._run_task(self, worker, task)

    def _take(self, worker: object) -> EvaluatorTask | None:
        """The next task; None where the thread is to end, after it was idle or given up on."""
        with self.news:
            for pause in (0.0, *self._pauses):
                if pause and worker in self.workers:
                    self.workers[worker] = None
                    self._asleep = pause == IDLE
                    self.news.wait(pause)
                if worker not in self.workers:
                    return None
                if self.queue:
                    task = self.workers[worker] = self.queue.popleft()
                    task.started = monotonic()
                    return task
            del self.workers[worker]
            return None

    def close(self) -> None:
        """Let the threads end after what they do now."""
        for task in self.queue:
            forget(task.awaitable)
        self.queue.clear()
        self.workers.clear()
        self.news.notify_all()


def forget(awaitable: object) -> None:
    """Let go of what nobody will await."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


class Background:
    """`queue_size`: how many nodes may wait for quick evaluators, and how many evaluations of the
    slow kind may wait for a thread. `when_full`: what is more is dropped, or the agent waits.
    `timeout`: seconds for one evaluation. `concurrency`: how many slow ones run at a time."""

    def __init__(
        self,
        *,
        limits: SnapshotLimits,
        queue_size: int,
        when_full: Literal["drop", "wait"],
        timeout: float,
        concurrency: int,
    ) -> None:
        self.limits, self.queue_size, self.when_full = limits, queue_size, when_full
        self.timeout, self.concurrency = timeout, concurrency
        self.dropped = self.failed = 0
        self._hangs: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._closed = self._retired = False
        self._begin()
        _open.add(self)
        close_first()

    def _begin(self) -> None:
        self.lock = threading.RLock()
        self.unfinished: set[EvaluationJob] = set()
        self._changed = threading.Condition(self.lock)
        self._waiters = 0
        self._quick = Lane(self._run, self.lock, naps=NAPS)
        self._slow = Lane(self._run, self.lock, threads=self.concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = False
        self._ended = threading.Event()

    def put(self, job: EvaluationJob, quick: Evaluators, slow: Evaluators) -> None:
        """Take a node in. What finds no place is recorded as skipped."""
        quick = self._find_room(job, self._quick, quick)
        slow = self._find_room(job, self._slow, slow)
        if not quick and not slow:
            return
        with self.lock:
            if self._closed:
                self._skip(job, quick + slow, "the monitor is closed")
                return
            job.missing = {id(one): one for one in quick + slow}
            self.unfinished.add(job)
            if quick:
                self._queue(self._quick, EvaluatorTask(job, list(quick)))
            for evaluator in slow:
                self._queue(self._slow, EvaluatorTask(job, [evaluator]))
            self._watch()

    def _queue(self, lane: Lane, task: EvaluatorTask) -> None:
        """With the lock held."""
        lane.queue.append(task)
        try:
            lane.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            lane.queue.remove(task)
            forget(task.awaitable)
            for evaluator in task.evaluators:
                self.settle(task.job, evaluator, Failure("failed", f"no thread: {error}"))

    def _find_room(self, job: EvaluationJob, lane: Lane, evaluators: Evaluators) -> Evaluators:
        def has_room() -> bool:
            return self._closed or len(lane.queue) < self.queue_size

        if not evaluators or has_room():
            return evaluators
        # A lane that naps is woken, and has room at once; nobody waits for one at work.
        seconds = None if self.when_full == "wait" else NAP if lane.is_idle else 0
        if seconds != 0 and self.wait(has_room, seconds):
            return evaluators
        with self.lock:
            self.dropped += len(evaluators)
            self._skip(job, evaluators, f"dropped: the queue of {self.queue_size:,} was full")
        return ()

    def _skip(self, job: EvaluationJob, evaluators: Evaluators, reason: str) -> None:
        for evaluator in evaluators:
            _record(job, evaluator, Failure("skipped", reason))

    def _run(self, lane: Lane, worker: object, task: EvaluatorTask) -> None:
        """Run the evaluators of a task, on one of the lane's threads."""
        if self._waiters:  # there is room in the queue now
            with self.lock:
                self._changed.notify_all()
        while task.evaluators:
            evaluator = task.evaluators[0]
            outcome = self._evaluate(task, evaluator, waits=lane is self._slow)
            ended = isinstance(outcome, (EvaluationResult, Failure))
            with self.lock:
                if lane.workers.get(worker) is not task:  # given up on meanwhile, or closed
                    forget(outcome)
                    return
                del task.evaluators[0]
                task.started = monotonic()
                if not ended:
                    later = EvaluatorTask(task.job, [evaluator], outcome)
                    self._queue(self._slow, later)
            if ended:
                self.settle(task.job, evaluator, outcome)

    def _evaluate(
        self, task: EvaluatorTask, evaluator: NodeEvaluator, *, waits: bool
    ) -> NodeOutcome | Awaitable[object]:
        """The outcome; or what is still to be awaited, unless this thread `waits` for it."""
        if self._hangs[evaluator.name] >= MOST_HANGS:
            forget(task.awaitable)
            return LEFT_OUT
        try:
            made: Any = task.awaitable or evaluator.evaluate(task.job.see())
            if type(made) is EvaluationResult or not inspect.isawaitable(made):
                return check_outcome(made, self.limits)
            awaitable = cast("Awaitable[object]", made)
            return self._await(task, evaluator, awaitable) if waits else awaitable
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return as_failure(error)

    def _await(
        self, task: EvaluatorTask, evaluator: NodeEvaluator, awaitable: Awaitable[object]
    ) -> NodeOutcome:
        """The outcome of what is awaited on the loop that all async evaluators share, so that a
        session or client which one opened stays usable for it."""
        try:
            with self.lock:
                if self._closed:
                    return Failure("skipped", "the monitor is closed")
                if self._loop is None:
                    self._loop = _start_loop()
                task.loop, task.started = self._loop, monotonic()
                asked = self._ask(evaluator, awaitable)
                future = asyncio.run_coroutine_threadsafe(asked, self._loop)
            return future.result()
        finally:
            forget(awaitable)  # where it was never begun

    async def _ask(self, evaluator: NodeEvaluator, awaitable: Awaitable[object]) -> NodeOutcome:
        evaluating.set(True)
        limit = asyncio.timeout(self.limit_of(evaluator))
        try:
            async with limit:
                return check_outcome(await awaitable, self.limits)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return self._no_answer(evaluator) if limit.expired() else as_failure(error)

    def settle(
        self,
        job: EvaluationJob,
        evaluator: NodeEvaluator,
        outcome: NodeOutcome,
        *,
        hung: bool = False,
    ) -> None:
        """Record an evaluator's first outcome; one that was given up on may still bring another."""
        failed = False
        if isinstance(outcome, Failure) and outcome.kind == "failed":
            failed = True
            self._log_failure(job, evaluator, outcome.reason)
        with self.lock:
            if job.missing.pop(id(evaluator), None) is None:
                return
            _record(job, evaluator, outcome)
            self.failed += failed
            if hung or (is_inline(evaluator) and outcome == self._no_answer(evaluator)):
                self._hangs[evaluator.name] += 1
            elif outcome is not LEFT_OUT:
                self._hangs.pop(evaluator.name, None)
            if not job.missing:
                self.unfinished.discard(job)
                if self._retired and not self.unfinished and not self._closed:
                    self._end()
            if self._waiters:
                self._changed.notify_all()

    def _log_failure(self, job: EvaluationJob, evaluator: NodeEvaluator, reason: str) -> None:
        """Without the lock: what writes the log may take its time, and the agent would wait."""
        if id(evaluator) not in job.missing:
            return
        level = logging.DEBUG if evaluator.name in self._warned else logging.WARNING
        self._warned.add(evaluator.name)
        node, reason = one_line(job.item.node), one_line(reason, ERROR_KEPT)
        log.log(level, "node '%s': evaluator '%s': %s", node, evaluator.name, reason)

    def limit_of(self, evaluator: NodeEvaluator) -> float:
        own: Any = getattr(evaluator, "timeout", None)
        return own if is_number(own) and own > 0 else self.timeout

    def _no_answer(self, evaluator: NodeEvaluator) -> Failure:
        return Failure("failed", f"no answer within {self.limit_of(evaluator):g} s")

    # What hangs.

    def fail_overdue(self, job: EvaluationJob, evaluator: NodeEvaluator) -> None:
        self.settle(job, evaluator, self._no_answer(evaluator), hung=True)

    def _watch(self) -> None:
        """Look for evaluators that hang as long as a node is unfinished; with the lock held."""
        if not self._watched:
            with suppress(RuntimeError):  # the interpreter is ending
                threading.Thread(
                    target=self._watch_over, name="textevolve-watch", daemon=True
                ).start()
                self._watched = True

    def _watch_over(self) -> None:
        while not self._ended.wait(WATCH):
            with self.lock:
                if not self.unfinished:
                    self._watched = False
                    return
                overdue = [*self._give_up(self._quick), *self._give_up(self._slow)]
            for job, evaluator in overdue:
                self.fail_overdue(job, evaluator)

    def _give_up(self, lane: Lane) -> Iterator[tuple[EvaluationJob, NodeEvaluator]]:
        """Leave behind the threads whose evaluator is overdue; others do what they had left."""
        for worker, task in list(lane.workers.items()):
            if task is None or not task.evaluators:
                continue
            evaluator = task.evaluators[0]
            grace = GRACE if task.loop else 0.0
            if monotonic() - task.started <= self.limit_of(evaluator) + grace:
                continue
            del lane.workers[worker], task.evaluators[0]
            self._stop_loop(task.loop)  # it is blocked, else this would have been cancelled
            if task.evaluators:
                lane.queue.appendleft(task)
            with suppress(RuntimeError):
                lane.start()
            yield task.job, evaluator

    def _stop_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is not None and loop is self._loop:
            self._loop = None
            loop.call_soon_threadsafe(loop.stop)

    # Waiting.

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Whether `done` came true within the seconds; it is called with each outcome."""
        if evaluating.get():  # an evaluator that waits for evaluators would wait for itself
            return done()
        with self._changed:
            self._waiters += 1
            self._quick.news.notify()
            try:
                return self._changed.wait_for(done, timeout)
            finally:
                self._waiters -= 1

    async def wait_async(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """As `wait`, while the event loop goes on."""
        until = None if timeout is None else monotonic() + timeout
        pause = 0.0005
        while not done():
            if evaluating.get() or (until is not None and monotonic() >= until):
                return False
            with self.lock:
                self._quick.news.notify()
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        return True

    def is_done(self) -> bool:
        return not self.unfinished

    def close(self, timeout: float | None) -> bool:
        """Wait so many seconds for what is unfinished, then end the threads."""
        self.wait(self.is_done, timeout)
        return self._end()

    def retire(self) -> None:
        """Nobody will wait any more: end the threads as soon as all is done."""
        with self.lock:
            self._retired = True
            if self.is_done():
                self._end()

    def _end(self) -> bool:
        """End the threads; whether every evaluation has its outcome. What has none is skipped."""
        with self.lock:
            self._closed, finished = True, self.is_done()
            self._quick.close()
            self._slow.close()
            self._stop_loop(self._loop)
            self._abandon(self.unfinished, "the monitor was closed before")
        self._ended.set()
        return finished

    def _abandon(self, jobs: set[EvaluationJob], why: str) -> None:
        skipped = Failure("skipped", f"{why} its turn came or its answer")
        for job in list(jobs):
            for evaluator in list(job.missing.values()):
                self.settle(job, evaluator, skipped)

    def restart(self) -> None:
        """In a forked process, where the threads are gone and the locks may be held."""
        unfinished = self.unfinished
        self._begin()
        self._abandon(unfinished, "the process was forked before")


def _record(job: EvaluationJob, evaluator: NodeEvaluator, outcome: NodeOutcome) -> None:
    """With the lock held. A new dict each time: readers may be walking through the old one."""
    job.item.evaluation_results = {**job.item.evaluation_results, evaluator.name: outcome}


def is_slow(evaluator: NodeEvaluator) -> bool:
    """Whether it runs beside others: it asks a model, or is an async function."""
    return bool(getattr(evaluator, "background", False)) or inspect.iscoroutinefunction(
        evaluator.evaluate
    )


def is_inline(evaluator: NodeEvaluator) -> bool:
    return bool(getattr(evaluator, "inline", False))


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run_loop, args=(loop,), name="textevolve-nodes", daemon=True).start()
    return loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class InlineWaits:
    """How nodes wait for inline evaluators, each up to its own time limit, counted from when the
    node ended. `seconds`: how long nodes have waited, all of them together. `needed`: whether there
    is an inline evaluator at all."""

    def __init__(self, background: Background) -> None:
        self.seconds = 0.0
        self.needed = False
        self._background = background

    def wait(self, job: EvaluationJob) -> None:
        """In plain code; an event loop that this runs in stands still."""
        began = monotonic()
        for evaluator, ended, seconds in self._missing(job, began):
            if not self._background.wait(ended, seconds):
                self._background.fail_overdue(job, evaluator)
        self._count(began)

    async def wait_async(self, job: EvaluationJob) -> None:
        """As `wait`, while the event loop goes on."""
        began = monotonic()
        for evaluator, ended, seconds in self._missing(job, began):
            if not await self._background.wait_async(ended, seconds):
                self._background.fail_overdue(job, evaluator)
        self._count(began)

    def _missing(
        self, job: EvaluationJob, began: float
    ) -> Iterator[tuple[NodeEvaluator, Callable[[], bool], float]]:
        """Inline evaluators without an outcome, the shortest limit first, each with the question
        whether it has ended and the seconds that are left to it."""
        limit_of = self._background.limit_of
        with self._background.lock:
            inline = [one for one in job.missing.values() if is_inline(one)]
        for evaluator in sorted(inline, key=limit_of):
            seconds = max(0.0, began + limit_of(evaluator) - monotonic())
            yield evaluator, partial(_has_ended, job, evaluator), seconds

    def _count(self, began: float) -> None:
        with self._background.lock:
            self.seconds += monotonic() - began


def _has_ended(job: EvaluationJob, evaluator: NodeEvaluator) -> bool:
    return id(evaluator) not in job.missing


def close_first() -> None:
    """Close backgrounds first at the end of the program, before the judges of evaluators: what is
    registered last runs first, and a judge registers itself when it is made."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    """Nothing is printed but what is lost."""
    until = monotonic() + EXIT_WAIT
    for background in list(_open):
        if not background.is_done() and not background.close(max(0.0, until - monotonic())):
            log.warning("the program ended before every node was judged: wait with monitor.drain()")


def _restart_all() -> None:
    for background in list(_open):
        background.restart()


_open: weakref.WeakSet[Background] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
