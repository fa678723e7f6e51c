"""Waiting for async code from plain code, where a loop runs already, and when it is interrupted."""

import asyncio
import signal
import threading

import pytest

from textevolve.engine import sync

before = set()


@pytest.fixture(autouse=True)
def others():
    """Judges that stay open have threads of the same name, and other tests may have left some."""
    before.clear()
    before.update(threading.enumerate())


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def kind(request, monkeypatch):
    """Which event loop is taken: asyncio's own, and uvloop's where that is installed."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setattr(sync, "loop_module", lambda: asyncio)
    return request.param


def threads():
    return [t for t in threading.enumerate() if t.name == "textevolve" and t not in before]


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


class Source:
    """An async generator that knows how far it was read and whether it was closed."""

    def __init__(self, items, failing=None):
        self.items, self.failing = items, failing
        self.read = 0
        self.closed = False

    async def __call__(self):
        try:
            for item in self.items:
                await asyncio.sleep(0)
                if item == self.failing:
                    raise KeyError(item)
                self.read += 1
                yield item
        finally:
            await asyncio.sleep(0)
            self.closed = True


def test_from_plain_code():
    source = Source(range(5))
    assert sync.run(double(4)) == 8
    assert list(sync.iterate(source())) == [0, 1, 2, 3, 4]
    assert source.closed
    assert threads() == []


async def test_inside_a_running_loop():
    """As in a notebook: the loop waits meanwhile, and goes on afterwards."""
    source = Source(range(5))
    assert sync.run(double(4)) == 8
    assert list(sync.iterate(source())) == [0, 1, 2, 3, 4]
    assert await double(1) == 2
    assert threads() == []


def test_items_are_read_as_they_are_taken():
    source = Source(range(1000))
    for item in sync.iterate(source()):
        assert source.read <= item + 1
        if item == 3:
            break
    assert source.closed
    assert threads() == []


def test_errors_come_through():
    source = Source(range(5), failing=2)
    matches = []
    with pytest.raises(KeyError):
        matches.extend(sync.iterate(source()))
    assert source.closed
    with pytest.raises(ZeroDivisionError):
        sync.run(fail())
    assert threads() == []


async def fail():
    raise ZeroDivisionError


def interrupt_when(condition):
    """Sends Ctrl-C to the main thread as soon as the condition holds."""

    def watch():
        condition.wait(10)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_an_interrupt_cancels_the_work_and_waits_for_its_clean_end():
    waiting, outcome = threading.Event(), []

    async def work():
        try:
            waiting.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            outcome.append("cleanly")

    thread = interrupt_when(waiting)
    with pytest.raises(KeyboardInterrupt):
        sync.run(work())
    thread.join()
    assert outcome == ["cleanly"]
    assert threads() == []


def test_what_the_work_leaves_behind_is_cancelled():
    outcome, left = [], []

    async def stay():
        try:
            await asyncio.sleep(60)
        finally:
            outcome.append("cleanly")

    async def work():
        left.append(asyncio.create_task(stay()))
        await asyncio.sleep(0)
        return 3

    assert sync.run(work()) == 3
    assert outcome == ["cleanly"]


class End(BaseException):
    """No Exception, as what some libraries raise."""


ENDINGS = [SystemExit(3), End()]


@pytest.mark.parametrize("ending", ENDINGS, ids=repr)
def test_what_ends_the_loop_is_raised_where_the_work_is_waited_for(ending):
    closed = []

    async def end():
        raise ending

    async def work():
        try:
            await asyncio.gather(end(), asyncio.sleep(60))
        finally:
            await asyncio.sleep(0.01)
            closed.append("cleanly")

    async def source():
        try:
            yield 1
            await work()
        finally:
            await asyncio.sleep(0.01)
            closed.append("the source too")

    with pytest.raises(type(ending)):
        sync.run(work())
    with pytest.raises(type(ending)):
        list(sync.iterate(source()))
    assert closed == ["cleanly", "cleanly", "the source too"]
    assert threads() == []
