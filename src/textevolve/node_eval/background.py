"""Evaluations beside the agent: a bounded queue, time limits, outcomes, and waiting for them.

Quick evaluators run on one thread, one after another; those that take long run side by side. The
threads themselves are in `workers.py`, what a node is in `monitor.py`.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Literal, TypeGuard, cast

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
from textevolve.node_eval.snapshots import SnapshotLimits
from textevolve.node_eval.workers import (
    NAP,
    EvaluationJob,
    EvaluatorLoop,
    Outcomes,
    Running,
    WorkerPool,
    WorkerTask,
    evaluating,
    forget,
)

GRACE = 1.0
"""Seconds by which an async evaluator may overrun its time limit before its loop is left behind."""

EXIT_WAIT = 5.0
"""Seconds for which the end of the program waits for unfinished evaluations."""

MOST_HANGS = 3
"""An evaluator that hung, or was waited for in vain, so many times in a row is left out."""

LEFT_OUT = Failure("skipped", f"left out: it gave no answer {MOST_HANGS} times")

log = logging.getLogger("textevolve.node_eval")
WhenFull = Literal["drop", "wait"]
Evaluators = tuple[NodeEvaluator, ...]


class Background:
    """`queue_size`: how many nodes may wait for quick evaluators, and how many evaluations of the
    slow kind may be unfinished. `when_full`: what is more is dropped, or the agent waits.
    `timeout`: seconds for one evaluation. `concurrency`: how many slow ones run at a time."""

    def __init__(
        self,
        *,
        limits: SnapshotLimits,
        queue_size: int,
        when_full: WhenFull,
        timeout: float,
        concurrency: int,
    ) -> None:
        self.limits, self.queue_size, self.when_full = limits, queue_size, when_full
        self.timeout, self.concurrency = timeout, concurrency
        self.dropped = self.failed = 0
        self.lock = threading.RLock()
        self._shortest = timeout
        self._hangs: Counter[str] = Counter()
        self._told: set[str] = set()
        self._closed = self._retired = False
        self._begin()
        _close_at_exit(self)

    def _begin(self) -> None:
        self.unfinished: set[EvaluationJob] = set()
        self._slow_pending = 0
        self._changed = threading.Condition(self.lock)
        self._waiters = 0
        self._listeners: list[Callable[[], None]] = []
        parts = (self._evaluate, self._settle, self._put_on_loop, self.lock)
        self._quick = WorkerPool(1, *parts, naps=True, hand_on=self._hand_on)
        self._slow = WorkerPool(self.concurrency, *parts)
        self._loop: EvaluatorLoop | None = None
        self._old_loops: list[EvaluatorLoop] = []
        self._watching: threading.Thread | None = None
        self._halt = threading.Event()

    def put(self, job: EvaluationJob, quick: Evaluators, slow: Evaluators) -> None:
        """Take a node in. What finds no place is recorded as skipped."""
        if quick and len(self._quick.queue) >= self.queue_size:
            # One that naps is woken, and has room at once; nobody waits for one at work.
            nap = NAP if self._quick.is_idle else 0
            quick = self._find_room(job, quick, self._quick_is_full, nap)
        if slow and self._slow_pending + len(slow) > self.queue_size:
            slow = self._find_room(job, slow, lambda: self._slow_is_full(len(slow)), 0)
        if not quick and not slow:
            return
        with self.lock:
            if self._closed:
                self._skip(job, quick + slow, "the monitor is closed")
                return
            job.missing = {id(one): one for one in quick + slow}
            self.unfinished.add(job)
            self._slow_pending += len(slow)
            self._quick.put(WorkerTask(job, quick, others=slow))

    def _quick_is_full(self) -> bool:
        return len(self._quick.queue) >= self.queue_size

    def _slow_is_full(self, more: int) -> bool:
        # A node with more evaluators than the queue has places goes in when the queue is empty.
        return self._slow_pending > 0 and self._slow_pending + more > self.queue_size

    def _find_room(
        self,
        job: EvaluationJob,
        evaluators: Evaluators,
        is_full: Callable[[], bool],
        seconds: float,
    ) -> Evaluators:
        limit = None if self.when_full == "wait" else seconds
        if limit != 0:
            self.wait(lambda: self._closed or not is_full(), limit)
        if self._closed or not is_full():
            return evaluators
        with self.lock:
            self.dropped += len(evaluators)
            self._skip(job, evaluators, f"dropped: the queue of {self.queue_size:,} was full")
        return ()

    def _skip(self, job: EvaluationJob, evaluators: Evaluators, reason: str) -> None:
        self._record(job, [(one, Failure("skipped", reason)) for one in evaluators])

    def _record(self, job: EvaluationJob, outcomes: Outcomes) -> None:
        """With the lock held. A new dict each time: readers may be walking through the old one."""
        named = {evaluator.name: outcome for evaluator, outcome in outcomes}
        job.item.evaluation_results = {**job.item.evaluation_results, **named}
        self.failed += sum(map(_has_failed, named.values()))

    def _tell(self, job: EvaluationJob, outcomes: Outcomes) -> None:
        """Without the lock: what writes the log may take its time, and the agent would wait."""
        for evaluator, outcome in outcomes:
            if _has_failed(outcome) and id(evaluator) in job.missing:
                level = logging.DEBUG if evaluator.name in self._told else logging.WARNING
                self._told.add(evaluator.name)
                node, reason = one_line(job.item.node), one_line(outcome.reason, ERROR_KEPT)
                log.log(level, "node '%s': evaluator '%s': %s", node, evaluator.name, reason)

    def _settle(self, task: WorkerTask, outcomes: Outcomes, *, hung: bool = False) -> None:
        """The first outcome of an evaluator counts: one of what was given up on, or closed, may
        still come, and is none any more."""
        job = task.job
        self._tell(job, outcomes)
        with self.lock:
            new = [one for one in outcomes if job.missing.pop(id(one[0]), None) is not None]
            if new:
                self._record(job, new)
                self._count_hangs(new, hung=hung)
            if task.slow:
                self._slow_pending -= len(new)
                _close_first()
            if not job.missing:
                job.shared = None
                self.unfinished.discard(job)
                if self._retired and not self.unfinished and not self._closed:
                    self._end()
            if self._waiters:
                self._changed.notify_all()
            for listener in self._listeners:
                with suppress(RuntimeError):  # its event loop was closed meanwhile
                    listener()

    def _count_hangs(self, outcomes: Outcomes, *, hung: bool) -> None:
        """An async evaluator that was cancelled did no harm, unless a node waited for it."""
        for one, made in outcomes:
            if made == _no_answer(self.limit_of(one)) and (hung or getattr(one, "inline", False)):
                self._hangs[one.name] += 1

    def _evaluate(
        self, task: WorkerTask, evaluator: NodeEvaluator
    ) -> NodeOutcome | Awaitable[object]:
        """The outcome, or what is still to be awaited."""
        if self._hangs.get(evaluator.name, 0) >= MOST_HANGS:
            return LEFT_OUT
        try:
            made: Any = evaluator.evaluate(task.job.history_for(evaluator))
            if type(made) is not EvaluationResult and inspect.isawaitable(made):
                return cast("Awaitable[object]", made)
            outcome = check_outcome(made, self.limits)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            outcome = as_failure(error)
        self._hangs.pop(evaluator.name, None)
        return outcome

    def _hand_on(self, task: WorkerTask) -> None:
        """With the lock held."""
        for evaluator in task.others:
            alone = WorkerTask(task.job, (evaluator,), slow=True)
            if inspect.iscoroutinefunction(evaluator.evaluate):
                self._put_on_loop(alone)
            else:
                self._slow.put(alone)
        task.others = ()
        self._watch_over()

    def _put_on_loop(self, task: WorkerTask) -> None:
        try:
            with self.lock:
                if self._closed:
                    forget(task.made)
                    return
                if self._loop is None:
                    self._loop = EvaluatorLoop(self.concurrency, self._ask, self._settle)
                self._loop.put(task)
        except RuntimeError as error:  # the interpreter is ending
            forget(task.made)
            why = Failure("failed", f"no event loop to run on: {error}")
            self._settle(task, [(task.evaluators[0], why)])

    async def _ask(self, task: WorkerTask) -> NodeOutcome:
        (evaluator,) = task.evaluators
        seconds = self.limit_of(evaluator)
        made = task.made
        if self._hangs.get(evaluator.name, 0) >= MOST_HANGS and made is None:
            return LEFT_OUT
        try:
            async with asyncio.timeout(seconds):
                if made is None:
                    made = cast(
                        "Awaitable[object]", evaluator.evaluate(task.job.history_for(evaluator))
                    )
                try:
                    outcome = await made
                except TimeoutError as error:  # its own, not that of the limit
                    return as_failure(error)
            checked = check_outcome(outcome, self.limits)
        except TimeoutError:
            return _no_answer(seconds)
        except BaseException as error:  # noqa: BLE001  an evaluator may raise anything
            return as_failure(error)
        self._hangs.pop(evaluator.name, None)
        return checked

    def limit_of(self, evaluator: NodeEvaluator) -> float:
        own: Any = getattr(evaluator, "timeout", None)
        return own if is_number(own) and own > 0 else self.timeout

    # What hangs.

    def set_shortest(self, evaluators: Evaluators) -> None:
        """The shortest of all limits says how often to look for what is overdue."""
        self._shortest = min((self.limit_of(one) for one in evaluators), default=self.timeout)
        _close_first()  # for one that was made after the monitor

    def _watch_over(self) -> None:
        if self._watching is not None:
            return
        with self.lock:
            if self._watching is None and not self._closed:
                watch = threading.Thread(target=self._watch, name="textevolve-watch", daemon=True)
                with suppress(RuntimeError):  # the interpreter is ending
                    watch.start()
                    self._watching = watch

    def _watch(self) -> None:
        while not self._halt.wait(min(max(self._shortest / 4, 0.01), 1.0)):
            for pool in (self._quick, self._slow):
                for running in pool.give_up(self._is_overdue):
                    self.fail_overdue(running)
            self._replace_stuck_loop()
            with self.lock:
                if not self.unfinished:
                    self._watching = None
                    return

    def _is_overdue(self, running: Running) -> bool:
        return monotonic() - running.since > self.limit_of(running.evaluator)

    def fail_overdue(self, running: Running) -> None:
        why = _no_answer(self.limit_of(running.evaluator))
        self._settle(running.task, [*running.outcomes, (running.evaluator, why)], hung=True)

    def _replace_stuck_loop(self) -> None:
        def is_overdue(task: WorkerTask, since: float) -> bool:
            return monotonic() - since > self.limit_of(task.evaluators[0]) + GRACE

        for loop in [*self._old_loops, *([self._loop] if self._loop else [])]:
            stuck = loop.give_up(is_overdue)
            for task in stuck:
                self.fail_overdue(Running(task))
            if stuck and loop is self._loop:
                with self.lock:
                    self._old_loops.append(loop)
                    self._loop = None
                for task in loop.take():
                    self._put_on_loop(task)

    # Waiting.

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Whether `done` came true within the seconds; it is asked whenever an outcome is there."""
        if evaluating.get():  # an evaluator that waits for evaluators would wait for itself
            return done()
        with self._changed:
            self._waiters += 1
            self._quick.wake()
            try:
                return self._changed.wait_for(done, timeout)
            finally:
                self._waiters -= 1

    async def wait_async(self, done: Callable[[], bool], timeout: float | None) -> bool:
        if evaluating.get():
            return done()
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(news.set)

        with self.lock:
            self._listeners.append(tell)
        self._quick.wake()
        try:
            async with asyncio.timeout(timeout):
                while not done():
                    await news.wait()
                    news.clear()
            return True
        except TimeoutError:
            return False
        finally:
            with self.lock:
                self._listeners.remove(tell)

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
            self._closed = True
            loops = [*self._old_loops, *([self._loop] if self._loop else [])]
            self._loop, self._old_loops = None, []
            finished = self.is_done()
            for running in [*self._quick.close(), *self._slow.close()]:
                self._settle(running.task, running.outcomes)
            for task in [task for loop in loops for task in loop.take()]:
                forget(task.made)
            self._abandon(self.unfinished, "the monitor was closed before")
        self._halt.set()
        for loop in loops:
            loop.stop(GRACE)
        return finished

    def _abandon(self, jobs: Iterable[EvaluationJob], why: str) -> None:
        skipped = Failure("skipped", f"{why} its turn came or its answer")
        for job in list(jobs):
            self._settle(WorkerTask(job, ()), [(one, skipped) for one in job.missing.values()])
        self._slow_pending = 0

    def restart(self) -> None:
        """In a forked process, where the threads are gone and the locks may be held."""
        left = self.unfinished
        self.lock = threading.RLock()
        self._begin()
        self._abandon(left, "the process was forked before")


def _has_failed(outcome: NodeOutcome) -> TypeGuard[Failure]:
    return isinstance(outcome, Failure) and outcome.kind == "failed"


def is_slow(evaluator: NodeEvaluator) -> bool:
    """Whether it runs beside others: it asks a model, or is an async function."""
    return bool(getattr(evaluator, "background", False)) or inspect.iscoroutinefunction(
        evaluator.evaluate
    )


def _no_answer(seconds: float) -> Failure:
    return Failure("failed", f"no answer within {seconds:g} s")


def _close_at_exit(background: Background) -> None:
    """Register a background, so that the end of the program waits for it."""
    _open.add(background)
    _close_first()


def _close_first() -> None:
    """Close backgrounds first at the end of the program, before the judges that evaluators opened.

    What is registered last runs first. Unregistering leaves an empty place behind, so this is done
    only where something was registered since."""
    global _registered
    if _registered != atexit._ncallbacks():  # pyright: ignore[reportPrivateUsage]
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        _registered = atexit._ncallbacks()  # pyright: ignore[reportPrivateUsage]


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
_registered = -1
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)


class InlineWaits:
    """How nodes wait for inline evaluators, each up to its own time limit, counted from when the
    node ended. `seconds`: how long nodes have waited, all of them together. `wanted`: whether there
    is an inline evaluator at all."""

    def __init__(self, background: Background) -> None:
        self.seconds = 0.0
        self.wanted = False
        self._background = background

    def wait(self, job: EvaluationJob) -> None:
        """In plain code; an event loop that this runs in stands still."""
        began = monotonic()
        for evaluator in self._missing(job):
            left = self._left(evaluator, began)
            if not self._background.wait(partial(_has_ended, job, evaluator), left):
                self._go_on_without(job, evaluator)
        self._count(began)

    async def wait_async(self, job: EvaluationJob) -> None:
        """As `wait`, while the event loop goes on."""
        began = monotonic()
        for evaluator in self._missing(job):
            left = self._left(evaluator, began)
            if not await self._background.wait_async(partial(_has_ended, job, evaluator), left):
                self._go_on_without(job, evaluator)
        self._count(began)

    def _missing(self, job: EvaluationJob) -> list[NodeEvaluator]:
        """Those without an outcome, the shortest limit first."""
        with self._background.lock:
            found = [one for one in job.missing.values() if is_inline(one)]
        return sorted(found, key=self._background.limit_of)

    def _left(self, evaluator: NodeEvaluator, began: float) -> float:
        return max(0.0, began + self._background.limit_of(evaluator) - monotonic())

    def _go_on_without(self, job: EvaluationJob, evaluator: NodeEvaluator) -> None:
        """What it may still say is no outcome any more."""
        task = WorkerTask(job, (evaluator,), slow=is_slow(evaluator))
        self._background.fail_overdue(Running(task))

    def _count(self, began: float) -> None:
        with self._background.lock:
            self.seconds += monotonic() - began


def is_inline(evaluator: NodeEvaluator) -> bool:
    return bool(getattr(evaluator, "inline", False))


def _has_ended(job: EvaluationJob, evaluator: NodeEvaluator) -> bool:
    return id(evaluator) not in job.missing
