"""Run evaluators concurrently with the agent: two queues with worker threads, time limits, and
waiting for results.

Quick evaluators run on one thread, one after another; slow ones run concurrently. Async evaluators
share one event loop, for which their thread waits. Only async evaluators have a time limit: a
function that hangs cannot be stopped, and occupies its thread.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from math import inf
from time import monotonic
from typing import Any

from textevolve.engine.sync import BackgroundLoop
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.evaluators import (
    ERROR_KEPT,
    NodeEvaluator,
    NodeOutcome,
    as_failure,
    check_outcome,
)
from textevolve.node_eval.history import one_line
from textevolve.node_eval.run_records import EvaluationJob
from textevolve.node_eval.snapshots import SnapshotLimits
from textevolve.system import after_fork

NAP, NAPS = 0.01, 50
"""An idle thread sleeps for `NAP` seconds and checks the queue, up to `NAPS` times, so that the
agent need not wake it for each node; then it ends."""

EXIT_WAIT = 5.0
"""The seconds for which the end of the program waits for unfinished evaluations."""

log = logging.getLogger("textevolve.node_eval")
Plan = tuple[tuple[tuple[NodeEvaluator, ...], bool], ...]
"""The tasks for a node, each with whether it is slow. All quick evaluators are one task, since a
task takes more time than many quick evaluators; each slow evaluator is a task of its own."""

evaluating: ContextVar[bool] = ContextVar("evaluating", default=False)
"""True in code that an evaluator runs. Nodes in such code are not recorded, since they are not the
agent's."""


Task = tuple[EvaluationJob, tuple[NodeEvaluator, ...]]
"""A node, and the evaluators that judge it, one after another."""


class Lane:
    """A queue of tasks, and at most `most` threads that run them in order. The caller must hold the
    lock to change the queue."""

    def __init__(self, run: Callable[[Task], None], lock: Any, most: int) -> None:
        self.queue: deque[Task] = deque()
        self.news = threading.Condition(lock)
        self.threads = self._idle = 0
        self._run_task, self._most = run, most

    def start(self) -> None:
        """Start a thread for the queued tasks, if there are fewer than the maximum."""
        if len(self.queue) > self._idle and self.threads < self._most:
            thread = threading.Thread(target=self._work, name="textevolve-nodes", daemon=True)
            with suppress(RuntimeError):  # no more threads, or the interpreter is ending
                thread.start()
                self.threads += 1

    def _work(self) -> None:
        evaluating.set(True)
        while (task := self._take()) is not None:
            self._run_task(task)

    def _take(self) -> Task | None:
        """Return the next task; None if the thread is to end, because it was idle."""
        with self.news:
            naps = 0
            while not self.queue and naps < NAPS:
                naps, self._idle = naps + 1, self._idle + 1
                self.news.wait(NAP)
                self._idle -= 1
            if self.queue:
                return self.queue.popleft()
            self.threads -= 1
            return None


@cache
def _shared_loop() -> BackgroundLoop:
    """Return the event loop of all async evaluators, so that a session or a client that an
    evaluator opened stays usable."""
    return BackgroundLoop()


class Background:
    """The queues and threads that evaluate nodes. `limits`: of copied results. `queue_size`: the
    number of nodes that may wait for quick evaluators, and of slow evaluations that may wait; more
    are dropped. `timeout`: the seconds allowed for an async evaluation. `concurrency`: the number
    of concurrent slow evaluations."""

    def __init__(
        self, *, limits: SnapshotLimits, queue_size: int, timeout: float, concurrency: int
    ) -> None:
        self.limits, self.queue_size = limits, queue_size
        self.timeout, self.concurrency = timeout, concurrency
        self.dropped = self.failed = 0
        self._warned: set[str] = set()
        self._closed = False
        self._begin()
        _open.add(self)
        close_first()

    def _begin(self) -> None:
        self.lock = threading.RLock()
        self.unfinished: set[EvaluationJob] = set()
        self._changed = threading.Condition(self.lock)
        self._awaited: set[Future[NodeOutcome]] = set()
        self._quick = Lane(self._run, self.lock, 1)
        self._slow = Lane(self._run, self.lock, self.concurrency)

    def put(self, job: EvaluationJob, plan: Plan) -> None:
        """Queue the evaluations of a node. If a queue is full, they are recorded as skipped."""
        with self.lock:
            for evaluators, slow in plan:
                lane, reason = self._slow if slow else self._quick, ""
                if 2 * len(lane.queue) >= self.queue_size:  # a napping thread is woken in time
                    lane.news.notify()
                if self._closed:
                    reason = "the monitor is closed"
                elif len(lane.queue) >= self.queue_size:
                    self.dropped += len(evaluators)
                    reason = (
                        f"not judged: {self.queue_size:,} nodes were waiting, which is the most"
                        " (queue_size)"
                    )
                if reason:
                    for evaluator in evaluators:
                        _record(job, evaluator, Failure("skipped", reason))
                else:
                    job.missing |= {id(evaluator): evaluator for evaluator in evaluators}
                    self.unfinished.add(job)
                    lane.queue.append((job, evaluators))
                    lane.start()

    def _run(self, task: Task) -> None:
        job, evaluators = task
        for evaluator in evaluators:
            if id(evaluator) in job.missing:  # not closed meanwhile
                self.settle(job, evaluator, self._evaluate(job, evaluator))

    def _evaluate(self, job: EvaluationJob, evaluator: NodeEvaluator) -> NodeOutcome:
        try:
            outcome: Any = evaluator.evaluate(job.see())
            if type(outcome) is EvaluationResult or not inspect.isawaitable(outcome):
                return check_outcome(outcome, self.limits)
            future = _shared_loop().submit(self._ask(evaluator, outcome))
            self._awaited.add(future)
            try:
                return future.result()
            finally:
                self._awaited.discard(future)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return as_failure(error)

    async def _ask(self, evaluator: NodeEvaluator, awaitable: Awaitable[object]) -> NodeOutcome:
        evaluating.set(True)
        seconds = getattr(evaluator, "timeout", None) or self.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return check_outcome(await awaitable, self.limits)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            if limit.expired():
                return Failure("failed", f"no answer within {seconds:g} s")
            return as_failure(error)

    def settle(self, job: EvaluationJob, evaluator: NodeEvaluator, outcome: NodeOutcome) -> None:
        """Record an evaluator's first outcome for a node. After the monitor was closed, an
        evaluator may still return a second one, which is ignored."""
        failure = outcome if isinstance(outcome, Failure) and outcome.kind == "failed" else None
        if failure and id(evaluator) in job.missing:
            # Without the lock: what writes the log may take its time, and the agent would wait.
            level = logging.DEBUG if evaluator.name in self._warned else logging.WARNING
            self._warned.add(evaluator.name)
            node, reason = one_line(job.item.node), one_line(failure.reason, ERROR_KEPT)
            log.log(level, "node '%s': evaluator '%s': %s", node, evaluator.name, reason)
        with self.lock:
            if job.missing.pop(id(evaluator), None) is None:
                return
            _record(job, evaluator, outcome)
            self.failed += failure is not None
            if not job.missing:
                self.unfinished.discard(job)
            self._changed.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Return whether the condition `done` becomes true within `timeout` seconds; it is checked
        after each outcome."""
        until = inf if timeout is None else monotonic() + timeout
        with self._changed:
            self._quick.news.notify()
            while not done():
                left = until - monotonic()
                if evaluating.get() or left <= 0:  # an evaluator would wait for itself
                    return False
                self._changed.wait(min(threading.TIMEOUT_MAX, left))
        return True

    async def wait_async(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait like `wait`, without blocking the event loop."""
        until = inf if timeout is None else monotonic() + timeout
        while not self.wait(done, 0.0):
            if evaluating.get() or monotonic() >= until:
                return False
            await asyncio.sleep(NAP)
        return True

    def is_done(self) -> bool:
        return not self.unfinished

    def close(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for unfinished evaluations, and return whether all have an
        outcome. The others are recorded as skipped; the threads end after their current task."""
        self.wait(self.is_done, timeout)
        with self.lock:
            finished, self._closed = self.is_done(), True
            for future in list(self._awaited):
                future.cancel()
            self._abandon(self.unfinished, "the monitor was closed before")
        return finished

    def _abandon(self, jobs: set[EvaluationJob], why: str) -> None:
        skipped = Failure("skipped", f"{why} the evaluator answered")
        for job in list(jobs):
            for evaluator in list(job.missing.values()):
                self.settle(job, evaluator, skipped)

    def restart(self) -> None:
        """Start again in a forked process, which has no threads, and whose locks may be held."""
        unfinished = self.unfinished
        self._begin()
        self._abandon(unfinished, "the process was forked before")


def _record(job: EvaluationJob, evaluator: NodeEvaluator, outcome: NodeOutcome) -> None:
    """Record an outcome; the caller holds the lock. A new dict replaces the old one, which readers
    may be iterating over."""
    job.item.evaluation_results = {**job.item.evaluation_results, evaluator.name: outcome}


def is_slow(evaluator: NodeEvaluator) -> bool:
    """Return whether an evaluator runs concurrently with others: it runs in the background, or is
    async."""
    return bool(getattr(evaluator, "background", False)) or inspect.iscoroutinefunction(
        evaluator.evaluate
    )


def close_first() -> None:
    """Make the end of the program close all `Background`s before the judges of evaluators:
    functions that are registered last run first, and a judge registers its own closing when it is
    created."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    """Close all backgrounds at the end of the program; warn about lost evaluations."""
    until = monotonic() + EXIT_WAIT
    for background in list(_open):
        if not background.is_done() and not background.close(max(0.0, until - monotonic())):
            log.warning("the program ended before every node was judged: wait with monitor.drain()")


def _restart_all() -> None:
    _shared_loop.cache_clear()
    for background in list(_open):
        background.restart()


_open: weakref.WeakSet[Background] = weakref.WeakSet()
"""All `Background`s that are not closed."""
after_fork(_restart_all)
