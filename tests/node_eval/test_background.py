import asyncio
import logging
import subprocess
import sys
import threading
import time

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval import (
    GENERATE,
    VERIFY,
    Monitor,
    NodeEvaluator,
    ThresholdEvaluator,
    background,
)

FINE = EvaluationResult(1.0, True)


class Says(NodeEvaluator):
    """Returns, awaits or raises what it is told to."""

    def __init__(self, name, says, **more):
        super().__init__(name, more.pop("targets", None))
        self.says = says
        for key, value in more.items():
            setattr(self, key, value)

    def evaluate(self, history):
        return self.says(history) if callable(self.says) else self.says


class SaysLater(Says):
    async def evaluate(self, history):
        evaluation = super().evaluate(history)
        return await evaluation if asyncio.iscoroutine(evaluation) else evaluation


def run_nodes(monitor, number=1, **more):
    return [
        monitor.end(monitor.begin(f"node {n}", GENERATE, {"n": n}, **more), {"sure": 0.5, "n": n})
        for n in range(number)
    ]


def judge(*evaluators, number=1, **more):
    """The results of each node, by the evaluator's name."""
    with Monitor(evaluators, **more) as monitor:
        items = run_nodes(monitor, number)
        assert monitor.drain_sync(20)
    return [item.evaluation_results for item in items]


def raising(error):
    def says(_):
        raise error

    return says


class Proxy:
    """As a lazy object whose real one cannot be had."""

    @property
    def __class__(self):
        raise RuntimeError("unbound")


WRONG = {
    "None": (None, "gave NoneType"),
    "above": (EvaluationResult(1.5, True), "the score 1.5 is outside 0 to 1"),
    "nan": (EvaluationResult(float("nan"), True), "the score nan is outside 0 to 1"),
    "string": (EvaluationResult("0.5", True), "the score is not a number but str"),
    "passed": (EvaluationResult(0.5, "yes"), "'passed' must be true or false"),
    "metadata": (EvaluationResult(0.5, True, "", [1]), "the metadata a mapping"),
    "failure": (Failure("failed", None), "reading it raised"),
    "no class": (Proxy(), "raised RuntimeError: unbound"),
    "raises": (raising(ValueError("bad\nluck")), "raised ValueError: bad luck"),
    "exits": (raising(SystemExit(3)), "raised SystemExit: 3"),
    "interrupts": (raising(KeyboardInterrupt()), "raised KeyboardInterrupt"),
    "times out": (raising(TimeoutError("its own")), "raised TimeoutError: its own"),
    "cancels": (raising(asyncio.CancelledError()), "raised CancelledError"),
}


@pytest.mark.parametrize("kind", [Says, SaysLater])
@pytest.mark.parametrize(("says", "reason"), WRONG.values(), ids=WRONG)
def test_what_gives_nothing_usable_is_a_failure_with_its_reason(kind, says, reason):
    results = judge(kind("wrong", says), Says("right", FINE))[0]
    assert results["right"] == FINE
    assert results["wrong"].kind == "failed"
    assert reason in results["wrong"].reason


def test_a_failing_evaluator_is_counted_and_told_once(caplog):
    with caplog.at_level(logging.WARNING), Monitor([Says("wrong", None)]) as monitor:
        run_nodes(monitor, 3)
        monitor.drain_sync()
        assert monitor.failed == 3
    (record,) = caplog.records
    assert record.getMessage().startswith("node 'node 0': evaluator 'wrong': the judge gave")


def test_only_nodes_of_the_targets_are_judged():
    results = judge(Says("a", FINE, targets=[VERIFY]), Says("b", FINE, targets=["GENERATE"]))[0]
    assert list(results) == ["b"]


@pytest.mark.parametrize("background", [False, True])
def test_a_hanging_evaluator_is_left_behind_and_asked_no_more_after_three_times(background):
    release = threading.Event()
    try:
        hangs = Says("hangs", lambda _: release.wait(20), timeout=0.05, background=background)
        results = judge(Says("first", FINE), hangs, Says("last", FINE), number=5)
    finally:
        release.set()
    failures = [result["hangs"] for result in results]
    assert [result for result in failures if result.kind == "failed"] == [
        Failure("failed", "no answer within 0.05 s")
    ] * sum(result.kind == "failed" for result in failures)
    assert (
        failures[-1] == Failure("skipped", "left out: the evaluator gave no answer 3 times")
        or background
    )
    assert all(result["first"] == result["last"] == FINE for result in results)


def test_an_async_evaluator_that_takes_too_long_is_cancelled(monkeypatch):
    monkeypatch.setattr("textevolve.node_eval.background.GRACE", 20)
    cancelled = []

    async def wait():
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    slow = SaysLater("slow", lambda _: wait(), timeout=0.05)
    results = judge(slow, SaysLater("fine", FINE), number=2)
    assert [result["slow"] for result in results] == [
        Failure("failed", "no answer within 0.05 s")
    ] * 2
    assert [result["fine"] for result in results] == [FINE] * 2
    assert cancelled == [True, True]


def test_background_evaluators_run_side_by_side_and_no_more_than_that():
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=20)

    def says(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return FINE

    results = judge(Says("judge", says, background=True), number=6, concurrency=3)
    assert [result["judge"] for result in results] == [FINE] * 6
    assert most == 3


@pytest.mark.parametrize("background", [False, True])
def test_what_finds_no_place_is_dropped_and_counted(background):
    release = threading.Event()
    slow = Says("slow", lambda _: release.wait(20) and FINE, background=background)
    with Monitor([slow], queue_size=2, concurrency=1) as monitor:
        try:
            items = run_nodes(monitor, 9)
        finally:
            release.set()
        assert monitor.drain_sync(20)
        outcomes = [item.evaluation_results["slow"] for item in items]
        dropped = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        assert set(dropped) == {
            Failure("skipped", "not judged: 2 nodes were waiting, which is the most (queue_size)")
        }
        assert monitor.dropped == len(dropped) >= 6
        assert monitor.failed == 0
        assert outcomes.count(FINE) == 9 - len(dropped) >= 2


async def test_draining_leaves_the_event_loop_free():
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def ask():
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(release.wait(), 20), loop)
        )

    async def says():
        await ask()
        return FINE

    async with Monitor([SaysLater("slow", lambda _: says())]) as monitor:
        (item,) = run_nodes(monitor)
        assert not await monitor.drain(timeout=0.02)
        assert monitor.pending == 1
        release.set()
        assert await monitor.drain()
    assert item.evaluation_results["slow"] == FINE


@pytest.mark.parametrize("kind", [Says, SaysLater])
def test_closing_skips_what_is_unfinished_and_says_so(kind):
    release = threading.Event()

    async def later():
        await asyncio.sleep(20)

    says = (lambda _: release.wait(20)) if kind is Says else (lambda _: later())
    monitor = Monitor([kind("slow", says)])
    items = run_nodes(monitor, 3)
    try:
        assert not monitor.close(timeout=0.02)
    finally:
        release.set()
    assert {item.evaluation_results["slow"].kind for item in items} == {"skipped"}
    assert monitor.pending == 0
    (late,) = run_nodes(monitor)
    assert late.evaluation_results["slow"] == Failure("skipped", "the monitor is closed")
    assert monitor.close()


def test_threads_end_when_there_is_nothing_to_do(monkeypatch):
    monkeypatch.setattr(background, "NAPS", 1)
    monitor = Monitor([Says("fine", FINE), SaysLater("later", FINE)])
    for _ in range(3):
        run_nodes(monitor, 2)
        assert monitor.drain_sync(20)
        deadline = time.monotonic() + 30
        while monitor._background._quick.workers and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not monitor._background._quick.workers
    del monitor


SCRIPT = """
import asyncio, os, sys, time
from textevolve.node_eval import EvaluationResult, Monitor, NodeEvaluator
from textevolve.node_eval import background
background.EXIT_WAIT = WAIT

class Slow(NodeEvaluator):
    def evaluate(self, history):
        time.sleep(SECONDS)
        os.write(1, b"judged\\n")
        return EvaluationResult(1.0, True)

class Later(NodeEvaluator):
    async def evaluate(self, history):
        await asyncio.sleep(SECONDS)
        os.write(1, b"judged\\n")
        return EvaluationResult(1.0, True)

monitor = Monitor([Slow("slow"), Later("later")])
monitor.end(monitor.begin("node", None, {}), {})
"""


@pytest.mark.parametrize(("seconds", "wait", "judged"), [(0.05, 20, 2), (30, 0.5, 0)])
def test_the_end_of_the_program_waits_a_little_and_prints_no_traceback(seconds, wait, judged):
    script = SCRIPT.replace("SECONDS", str(seconds)).replace("WAIT = WAIT", f"WAIT = {wait}")
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0
    assert process.stdout == "judged\n" * judged
    assert "Traceback" not in process.stderr
    assert ("the program ended before every node was judged" in process.stderr) == (judged == 0)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"queue_size": 0}, {"timeout": float("nan")}),
        {"evaluators": [ThresholdEvaluator("a", "k", 0.5), ThresholdEvaluator("a", "k", 0.6)]},
        *({"evaluators": [object()]}, {"evaluators": [None]}),
    ],
)
def test_values_that_cannot_be_used_are_refused(wrong):
    with pytest.raises(InputError):
        Monitor(**wrong)
