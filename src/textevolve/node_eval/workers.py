"""The threads and the event loop on which evaluators run. One that hangs cannot be stopped: what it
runs on is left behind, and another takes its place.

Which evaluations there are, and what becomes of their outcomes, is decided in `background.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.evaluators import NodeEvaluator, NodeOutcome
from textevolve.node_eval.history import History, HistoryItem, seen_from

NAP, NAPS = 0.01, 50
"""A pool that naps looks for work every so many seconds, so that the agent need not wake it for
each node; after so many naps without work it sleeps until it is woken."""

IDLE = 5.0
"""Seconds without work after which a thread ends."""

evaluating: ContextVar[bool] = ContextVar("evaluating", default=False)
"""Set where an evaluator runs: nodes that it runs itself are not the agent's."""


Outcomes = list[tuple[NodeEvaluator, NodeOutcome]]
OUTCOMES = (EvaluationResult, Failure)


@dataclass(slots=True, eq=False)
class EvaluationJob:
    """A node that ended, as its evaluators are to see it: in the last of the first `count`
    supersteps. `missing`: those that it has no outcome of yet, by their id: names may change."""

    item: HistoryItem
    entries: list[list[HistoryItem]]
    count: int
    missing: dict[int, NodeEvaluator] = field(default_factory=dict[int, NodeEvaluator])
    shared: History | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether an outcome is missing that does not come from the background."""
        return not all(getattr(one, "background", False) for one in list(self.missing.values()))

    def history_for(self, evaluator: NodeEvaluator) -> History:
        """A copy of its own; for one that only reads, the same as for others of that kind."""
        if "reads_only" not in type(evaluator).__dict__ or not evaluator.reads_only:
            return self.see(copied=True)
        if self.shared is None:
            self.shared = self.see(copied=False)
        return self.shared

    def see(self, *, copied: bool) -> History:
        """The history when the node had just ended."""
        return seen_from(self.entries, self.item, self.count - 1, self.count, copied=copied)


@dataclass(slots=True, eq=False)
class WorkerTask:
    """Evaluators to run one after another on a node, all quick or all `slow`. `others`: slow ones,
    to be handed on. `made`: what the only one of them returned, to be awaited."""

    job: EvaluationJob
    evaluators: tuple[NodeEvaluator, ...]
    slow: bool = False
    others: tuple[NodeEvaluator, ...] = ()
    made: Awaitable[object] | None = None


@dataclass(slots=True, eq=False)
class Running:
    """What runs now: a task, from which evaluator on (`at`), and since when."""

    task: WorkerTask
    at: int = 0
    since: float = 0.0
    outcomes: Outcomes = field(default_factory=list[tuple[NodeEvaluator, NodeOutcome]])

    @property
    def evaluator(self) -> NodeEvaluator:
        return self.task.evaluators[self.at]


Evaluate = Callable[[WorkerTask, NodeEvaluator], "NodeOutcome | Awaitable[object]"]
Settle = Callable[[WorkerTask, Outcomes], None]
Give = Callable[[WorkerTask], None]
NOT_THERE: Any = object()


class WorkerPool:
    """At most `threads` threads that run tasks in order.

    `wait_for` takes what an evaluator returned to be awaited; `hand_on` is told of each task before
    it runs. `naps`: the pool has one thread, which stays and looks for work by itself.

    What is queued and what runs changes with the lock held only, so that whoever closes the pool,
    or gives up on an evaluator, finds every task in one place.
    """

    def __init__(
        self,
        threads: int,
        evaluate: Evaluate,
        settle: Settle,
        wait_for: Give,
        lock: Any,
        *,
        naps: bool = False,
        hand_on: Give | None = None,
    ) -> None:
        self.queue: deque[WorkerTask] = deque()
        self.hands: dict[object, Running | None] = {}
        self.closed = False
        self._threads, self._naps = threads, naps
        self._evaluate, self._settle, self._lock = evaluate, settle, lock
        self._wait_for, self._hand_on = wait_for, hand_on
        self._wake, self._asleep = threading.Event(), False

    def put(self, task: WorkerTask) -> None:
        """With the lock held."""
        self.queue.append(task)
        if self._asleep:
            self._wake.set()
        elif len(self.hands) < self._threads:
            self.start()

    def start(self) -> None:
        with self._lock:
            if len(self.hands) >= self._threads or not self.queue:
                return
            hand = object()
            self.hands[hand] = None
            try:
                threading.Thread(
                    target=self._run, args=(hand,), name="textevolve-nodes", daemon=True
                ).start()
            except RuntimeError as error:  # the interpreter is ending
                del self.hands[hand]
                self._refuse(f"no thread to run on: {error}")

    def _refuse(self, reason: str) -> None:
        why = Failure("failed", reason)
        while self.queue:
            task = self.queue.popleft()
            for evaluators, slow in ((task.evaluators, task.slow), (task.others, True)):
                if evaluators:
                    one = WorkerTask(task.job, evaluators, slow)
                    self._settle(one, [(e, why) for e in evaluators])

    def wake(self) -> None:
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        return not any(list(self.hands.values()))

    def close(self) -> list[Running]:
        """Let the threads end after what they do now. That is returned, and gets no outcome any
        more; neither does what is queued."""
        with self._lock:
            self.closed = True
            left = [running for running in self.hands.values() if running is not None]
            self.hands.clear()
            self.queue.clear()
        self._wake.set()
        return left

    def _run(self, hand: object) -> None:
        evaluating.set(True)
        try:
            while hand in self.hands:
                if running := self._begin(hand):
                    self._work(hand, running)
                elif not self._stay(hand):
                    return
        finally:
            self.hands.pop(hand, None)

    def _begin(self, hand: object) -> Running | None:
        with self._lock:
            if not self.queue or hand not in self.hands:
                return None
            task = self.queue.popleft()
            if self._hand_on is not None:
                self._hand_on(task)
            running = Running(task, since=monotonic())
            if task.evaluators:
                self.hands[hand] = running
            return running

    def _stay(self, hand: object) -> bool:
        """Wait for work; False where the thread is to end."""
        if self._naps and not self.closed:
            for _ in range(NAPS):
                self._wake.wait(NAP)
                self._wake.clear()
                if self.queue or self.closed:
                    break
            else:
                self._asleep = True
                if not self.queue:
                    self._wake.wait(IDLE)
                self._wake.clear()
                self._asleep = False
        with self._lock:  # `start` looks at the hands with the lock held: no task is left alone
            if self.queue and not self.closed:
                return True
            self.hands.pop(hand, None)
            return False

    def _work(self, hand: object, running: Running) -> None:
        task = running.task
        for evaluator in task.evaluators:
            made = self._evaluate(task, evaluator)
            known = isinstance(made, OUTCOMES)
            with self._lock:
                if self.hands.get(hand) is not running:  # given up meanwhile, or closed
                    if not known:
                        forget(made)
                    return
                if known:
                    running.outcomes.append((evaluator, made))
                if evaluator is not task.evaluators[-1]:
                    running.at += 1
                    running.since = monotonic()
                else:
                    running.since = math.inf  # never overdue
            if not known:
                self._wait_for(WorkerTask(task.job, (evaluator,), task.slow, made=made))
        self._settle(task, running.outcomes)
        with self._lock:
            if self.hands.get(hand) is running:
                self.hands[hand] = None

    def give_up(self, overdue: Callable[[Running], bool]) -> list[Running]:
        """Leave behind the threads whose evaluator is overdue, and let others do what they had left
        to do."""
        found: list[Running] = []
        with self._lock:
            for hand, running in list(self.hands.items()):
                if running is not None and overdue(running):
                    del self.hands[hand]
                    found.append(running)
                    if rest := running.task.evaluators[running.at + 1 :]:
                        self.queue.appendleft(WorkerTask(running.task.job, rest, running.task.slow))
        for _ in found:
            self.start()
        return found


def forget(made: Awaitable[object] | None) -> None:
    """Let go of what nobody will await."""
    if inspect.iscoroutine(made):
        made.close()


class EvaluatorLoop:
    """An event loop on a thread of its own for async evaluators, `concurrency` of them at a time.

    All of them share the loop, so that a session or client which one opened stays usable for it.
    """

    def __init__(
        self,
        concurrency: int,
        ask: Callable[[WorkerTask], Awaitable[NodeOutcome]],
        settle: Settle,
    ) -> None:
        self.tasks: dict[WorkerTask, float | None] = {}
        """Begun when, on the monotonic clock; None where one waits for its turn."""
        self._ask, self._settle = ask, settle
        self._places = asyncio.Semaphore(concurrency)
        self._begun: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="textevolve-nodes", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def put(self, task: WorkerTask) -> None:
        self.tasks[task] = None
        self._loop.call_soon_threadsafe(self._begin, task)

    def _begin(self, task: WorkerTask) -> None:
        work = self._loop.create_task(self._work(task))
        self._begun.add(work)
        work.add_done_callback(self._begun.discard)

    async def _work(self, task: WorkerTask) -> None:
        evaluating.set(True)
        async with self._places:
            if task not in self.tasks:  # given up, or moved to another loop
                return
            self.tasks[task] = monotonic()
            outcome = await self._ask(task)
        if self.tasks.pop(task, NOT_THERE) is not NOT_THERE:
            self._settle(task, [(task.evaluators[0], outcome)])

    def give_up(self, overdue: Callable[[WorkerTask, float], bool]) -> list[WorkerTask]:
        """The tasks that did not end in time even when they were cancelled."""
        found = [t for t, since in list(self.tasks.items()) if since and overdue(t, since)]
        return [task for task in found if self.tasks.pop(task, NOT_THERE) is not NOT_THERE]

    def take(self) -> list[WorkerTask]:
        """The tasks that have not begun, for another loop to take over."""
        found = [task for task, since in list(self.tasks.items()) if since is None]
        return [task for task in found if self.tasks.pop(task, NOT_THERE) is not NOT_THERE]

    def stop(self, seconds: float) -> None:
        """End the loop and wait for its end so long; what runs on it is cancelled."""
        if self._thread.is_alive() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(seconds)
