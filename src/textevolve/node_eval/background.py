"""Run evaluators concurrently with the agent: two queues with worker threads, time limits, and
waiting for results.

Quick evaluators run on one thread, one after another; slow ones run concurrently. Async evaluators
share one event loop, for which their thread waits. An evaluator that hangs cannot be stopped: its
thread is abandoned, and another thread replaces it.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
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
from textevolve.node_eval.history import short_line
from textevolve.node_eval.run_records import EvaluationJob
from textevolve.node_eval.snapshots import SnapshotLimits
from textevolve.system import after_fork

NAP = 0.01
NAPS = 50
"""An idle thread sleeps for `NAP` seconds and checks the queue, up to `NAPS` times, so that the
agent need not wake it for each node; then it ends."""

GRACE = 1.0
"""The seconds by which an async evaluator may exceed its time limit before its event loop is
abandoned."""

WATCH = 0.05
"""The seconds between two checks for hanging evaluators, while code waits for results."""

EXIT_WAIT = 5.0
"""The seconds for which the end of the program waits for unfinished evaluations."""

MOST_HANGS = 3
"""The number of hangs after which an evaluator is no longer called."""

log = logging.getLogger("textevolve.node_eval")
Plan = tuple[tuple[tuple[NodeEvaluator, ...], bool], ...]
"""The tasks for a node, each with whether it is slow. All quick evaluators are one task, since a
task takes more time than many quick evaluators; each slow evaluator is a task of its own."""

evaluating: ContextVar[bool] = ContextVar("evaluating", default=False)
"""True in code that an evaluator runs. Nodes in such code are not recorded, since they are not the
agent's."""


@dataclass(slots=True, eq=False)
class EvaluatorTask:
    """The task to run evaluators on a node, one after another; each is removed when it has ended.
    `started`: when the first one began, on the monotonic clock. `future`: the evaluator's work on
    the event loop; None if it is not async."""

    job: EvaluationJob
    evaluators: list[NodeEvaluator]
    started: float = 0.0
    future: Future[NodeOutcome] | None = None


class Lane:
    """A queue of tasks, and at most `threads` threads that run them in order. The caller must hold
    the lock to change the queue and the threads."""

    def __init__(
        self, run: Callable[[Lane, object, EvaluatorTask], None], lock: Any, threads: int
    ) -> None:
        self.queue: deque[EvaluatorTask] = deque()
        self.workers: dict[object, EvaluatorTask | None] = {}
        self.news = threading.Condition(lock)
        self._run_task = run
        self._threads = threads

    def start(self) -> None:
        """Start a thread for the queued tasks, if there are fewer than the maximum."""
        idle = sum(task is None for task in self.workers.values())
        if len(self.queue) > idle and len(self.workers) < self._threads:
            worker = object()
            thread = threading.Thread(
                target=self._work, args=(worker,), name="textevolve-nodes", daemon=True
            )
            with suppress(RuntimeError):  # no more threads, or the interpreter is ending
                thread.start()
                self.workers[worker] = None

    def _work(self, worker: object) -> None:
        evaluating.set(True)
        while (task := self._take(worker)) is not None:
            self._run_task(self, worker, task)

    def _take(self, worker: object) -> EvaluatorTask | None:
        """Return the next task; None if the thread is to end, because it was idle or was
        abandoned."""
        with self.news:
            for pause in (0.0, *[NAP] * NAPS):
                if pause and worker in self.workers:
                    self.workers[worker] = None
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
        """End each thread after its current task, and drop the queued tasks."""
        for task in self.workers.values():
            if task is not None and task.future is not None:
                task.future.cancel()
        self.queue.clear()
        self.workers.clear()
        self.news.notify_all()


@cache
def _shared_loop() -> BackgroundLoop:
    """Return the event loop of all async evaluators, so that a session or a client that an
    evaluator opened stays usable."""
    return BackgroundLoop()


class Background:
    """The queues and threads that evaluate nodes. `limits`: of copied results. `queue_size`: the
    number of nodes that may wait for quick evaluators, and of slow evaluations that may wait; more
    are dropped. `timeout`: the seconds allowed for one evaluation. `concurrency`: the number of
    concurrent slow evaluations."""

    def __init__(
        self, *, limits: SnapshotLimits, queue_size: int, timeout: float, concurrency: int
    ) -> None:
        self.limits = limits
        self.queue_size = queue_size
        self.timeout = timeout
        self.concurrency = concurrency
        self.dropped = self.failed = 0
        self._hangs: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._closed = False
        self._begin()
        _open.add(self)
        close_first()

    def _begin(self) -> None:
        self.lock = threading.RLock()
        self.unfinished: set[EvaluationJob] = set()
        self._changed = threading.Condition(self.lock)
        self._quick = Lane(self._run, self.lock, 1)
        self._slow = Lane(self._run, self.lock, self.concurrency)

    def put(self, job: EvaluationJob, plan: Plan) -> None:
        """Queue the evaluations of a node. Those for which the queue is full, or all if the monitor
        is closed, are recorded as skipped."""
        if self._quick.queue or self._slow.queue:
            self._give_up_overdue()
        with self.lock:
            for evaluators, slow in plan:
                lane = self._slow if slow else self._quick
                reason = ""
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
                    lane.queue.append(EvaluatorTask(job, list(evaluators)))
                    lane.start()

    def _run(self, lane: Lane, worker: object, task: EvaluatorTask) -> None:
        """Run the evaluators of a task on one of the lane's threads."""
        while task.evaluators:
            evaluator = task.evaluators[0]
            outcome = self._evaluate(task, evaluator)
            with self.lock:
                if lane.workers.get(worker) is not task:  # given up on meanwhile, or closed
                    return
                del task.evaluators[0]
                task.started = monotonic()
                task.future = None

            self.settle(task.job, evaluator, outcome)

    def _evaluate(self, task: EvaluatorTask, evaluator: NodeEvaluator) -> NodeOutcome:
        if self._hangs[evaluator.name] >= MOST_HANGS:
            return Failure("skipped", f"left out: the evaluator gave no answer {MOST_HANGS} times")
        try:
            outcome: Any = evaluator.evaluate(task.job.see())
            if type(outcome) is EvaluationResult or not inspect.isawaitable(outcome):
                return check_outcome(outcome, self.limits)
            with self.lock:
                task.future = _shared_loop().submit(self._ask(evaluator, outcome))
            return task.future.result()
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return as_failure(error)

    async def _ask(self, evaluator: NodeEvaluator, awaitable: Awaitable[object]) -> NodeOutcome:
        evaluating.set(True)
        limit = asyncio.timeout(self.limit_of(evaluator))
        try:
            async with limit:
                return check_outcome(await awaitable, self.limits)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return self._no_answer(evaluator) if limit.expired() else as_failure(error)

    def settle(self, job: EvaluationJob, evaluator: NodeEvaluator, outcome: NodeOutcome) -> None:
        """Record an evaluator's first outcome for a node; an evaluator that was abandoned may still
        return a second one, which is ignored."""
        failure = outcome if isinstance(outcome, Failure) and outcome.kind == "failed" else None
        if failure and id(evaluator) in job.missing:
            # Without the lock: what writes the log may take its time, and the agent would wait.
            level = logging.DEBUG if evaluator.name in self._warned else logging.WARNING
            self._warned.add(evaluator.name)
            node = short_line(job.item.node)
            reason = short_line(failure.reason, ERROR_KEPT)
            log.log(level, "node '%s': evaluator '%s': %s", node, evaluator.name, reason)

        with self.lock:
            if job.missing.pop(id(evaluator), None) is None:
                return
            _record(job, evaluator, outcome)
            self.failed += failure is not None
            if not job.missing:
                self.unfinished.discard(job)
            self._changed.notify_all()

    def limit_of(self, evaluator: NodeEvaluator) -> float:
        return getattr(evaluator, "timeout", None) or self.timeout

    def _no_answer(self, evaluator: NodeEvaluator) -> Failure:
        return Failure("failed", f"no answer within {self.limit_of(evaluator):g} s")

    def _give_up_overdue(self) -> None:
        """Record failures for evaluators that hang: abandon their threads, and the event loop if an
        evaluator blocks it; other threads take over their remaining evaluators. It is called while
        code waits for results, and when new nodes arrive."""
        overdue: list[tuple[EvaluationJob, NodeEvaluator]] = []

        with self.lock:
            for lane in (self._quick, self._slow):
                for worker, task in list(lane.workers.items()):
                    if task is None or not task.evaluators:
                        continue
                    evaluator = task.evaluators[0]
                    grace = (
                        0.0 if task.future is None else GRACE
                    )  # an async one is cancelled before
                    if monotonic() - task.started <= self.limit_of(evaluator) + grace:
                        continue
                    if task.future is not None:
                        _shared_loop.cache_clear()
                    del lane.workers[worker]
                    if waiting_evaluators := task.evaluators[1:]:
                        lane.queue.appendleft(EvaluatorTask(task.job, waiting_evaluators))
                    lane.start()
                    overdue.append((task.job, evaluator))

        for job, evaluator in overdue:
            self._hangs[evaluator.name] += 1
            self.settle(job, evaluator, self._no_answer(evaluator))

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Return whether the condition `done` becomes true within `timeout` seconds; it is checked
        after each outcome. In the code of an evaluator, which would wait for itself, return at
        once."""
        until = inf if timeout is None else monotonic() + timeout

        while not done():
            self._give_up_overdue()
            with self._changed:
                self._quick.news.notify()
                seconds_left = until - monotonic()
                if evaluating.get() or seconds_left <= 0:  # an evaluator would wait for itself
                    return done()
                if not done():
                    self._changed.wait(min(WATCH, seconds_left))

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
        """Wait up to `timeout` seconds for unfinished evaluations, then end the threads; return
        whether all have an outcome. The others are recorded as skipped."""
        self.wait(self.is_done, timeout)
        with self.lock:
            finished = self.is_done()
            self._closed = True
            self._quick.close()
            self._slow.close()
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
