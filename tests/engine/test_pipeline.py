"""Two stages side by side: all pieces arrive, little is kept, errors and closing are clean."""

import asyncio

import pytest

from textevolve.engine.local import pipe


class Source:
    """Yields numbers, and counts how far it was read and how often it was closed."""

    def __init__(self, number=5):
        self.number = number
        self.yielded = self.closed = self.open = self.most = 0

    async def __call__(self, tens):
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            for n in range(self.number):
                await asyncio.sleep(0)
                self.yielded += 1
                yield tens * 100 + n
        finally:
            self.open -= 1
            self.closed += 1


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


async def settle():
    for _ in range(200):
        await asyncio.sleep(0)


async def test_every_piece_of_every_source_arrives_once():
    source = Source()
    results = pipe(range(7), source, double, source_concurrency=3, concurrency=4)
    found = sorted([result async for result in results])
    assert found == sorted(2 * (s * 100 + n) for s in range(7) for n in range(5))
    assert (source.closed, source.most) == (7, 3)


async def test_a_slow_reader_holds_everything_back():
    source = Source(1000)
    results = pipe([0], source, double, source_concurrency=1, concurrency=4)
    await anext(results)
    await settle()
    assert source.yielded <= 3 * 4 + 2
    await results.aclose()
    assert source.closed == 1


async def test_work_is_begun_before_a_source_ends_and_never_above_the_limit():
    running, most, gate = 0, 0, asyncio.Event()

    async def wait(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return number

    source = Source(50)
    results = pipe([0], source, wait, source_concurrency=1, concurrency=8)
    first_task = asyncio.ensure_future(anext(results))
    await settle()
    assert running == 8
    assert source.yielded < 50
    gate.set()
    assert await first_task == 0
    assert len([result async for result in results]) == 49
    assert most == 8


class End(BaseException):
    """No Exception, as what ends a command."""


@pytest.mark.parametrize("kind", [ValueError, End])
@pytest.mark.parametrize("where", ["source", "work"])
async def test_an_error_ends_everything_after_the_results_before_it(where, kind):
    source = Source()

    async def produce(tens):
        async for piece in source(tens):
            if where == "source" and piece == 3:
                raise kind("no more")
            yield piece

    async def work(number):
        if where == "work" and number == 3:
            raise kind("no more")
        return number

    matches = []

    async def read():
        async for result in pipe([0], produce, work, source_concurrency=1, concurrency=1):
            matches.append(result)

    with pytest.raises(kind, match="no more"):
        await read()
    assert matches == ([0, 1, 2] if where == "work" else [0, 1, 2][: len(matches)])
    assert source.open == 0


async def test_cancelling_the_reader_ends_sources_and_work():
    source, cancelled = Source(), []

    async def hang(number):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def read():
        async for _ in pipe([0], source, hang, source_concurrency=1, concurrency=2):
            pass

    task = asyncio.create_task(read())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert sorted(cancelled) == [0, 1]
    assert source.open == 0


@pytest.mark.parametrize("stage", ["produce", "work"])
async def test_a_stage_that_cancels_itself_is_an_error_and_never_a_wait_without_end(stage):
    async def cancelled(piece):
        raise asyncio.CancelledError

    async def produce(source):
        yield source
        if stage == "produce":
            raise asyncio.CancelledError

    work = cancelled if stage == "work" else double

    async def read():
        return [r async for r in pipe([1], produce, work, source_concurrency=1, concurrency=2)]

    with pytest.raises(RuntimeError, match="cancelled"):
        await asyncio.wait_for(read(), 60)
