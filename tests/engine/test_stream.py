"""Work on one event loop: order, bounds, errors and cancellation."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.engine.local import gather_bounded, stream


class Workshop:
    """Work that ends when it is told to, and remembers how much of it there was at once."""

    def __init__(self):
        self.begun = []
        self.cancelled = []
        self.running = 0
        self.most = 0
        self.gates = {}

    def open(self, item):
        self.gates.setdefault(item, asyncio.Event()).set()

    async def __call__(self, item):
        self.begun.append(item)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gates.setdefault(item, asyncio.Event()).wait()
            return item
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self.running -= 1


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def collect(results, into):
    async for result in results:
        into.append(result)


async def test_results_come_in_order_or_as_they_finish():
    for ordered, expected in ((True, [0, 1, 2, 3]), (False, [3, 1, 2, 0])):
        work, matches = Workshop(), []
        task = asyncio.create_task(collect(stream(range(4), work, 4, ordered=ordered), matches))
        for item in (3, 1, 2, 0):
            await settle()
            work.open(item)
        await task
        assert matches == expected


async def test_a_slow_one_lets_only_so_many_results_wait_behind_it():
    work, matches, read = Workshop(), [], []

    def items():
        for item in range(1000):
            read.append(item)
            yield item

    for item in range(1, 1000):
        work.open(item)
    task = asyncio.create_task(collect(stream(items(), work, 5, ahead=3), matches))
    await asyncio.sleep(0.05)
    assert matches == []
    assert len(read) <= 5 * 3 + 1
    work.open(0)
    await task
    assert matches == list(range(1000))


@pytest.mark.parametrize("ordered", [True, False])
async def test_items_are_read_no_further_than_the_reader_has_come(ordered):
    read = []

    def items():
        for item in range(1000):
            read.append(item)
            yield item

    async def work(item):
        return item

    results = stream(items(), work, 4, ordered=ordered, ahead=2)
    for _ in range(3):
        await anext(results)
    await settle()
    assert len(read) <= 3 + 4 * 2 + 1
    await results.aclose()


@pytest.mark.parametrize("ordered", [True, False])
async def test_the_first_error_cancels_the_rest(ordered):
    work = Workshop()

    async def fail_at_two(item):
        return await work(item) if item != 2 else 1 / 0

    results = stream(range(6), fail_at_two, 4, ordered=ordered)
    work.open(0)
    work.open(1)
    matches = []
    with pytest.raises(ZeroDivisionError):
        await collect(results, matches)
    assert set(matches) <= {0, 1}
    assert work.running == 0
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("ordered", [True, False])
async def test_leaving_early_cancels_what_runs_and_waits_for_it(ordered):
    work = Workshop()
    results = stream(range(10), work, 3, ordered=ordered)
    work.open(0)
    assert await anext(results) == 0
    await settle()
    await results.aclose()
    assert sorted(work.cancelled) == [1, 2, 3]
    assert work.running == 0
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_of_the_items_is_raised_and_nothing_is_left():
    work = Workshop()

    def items():
        yield 0
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        await collect(stream(items(), work, 4), [])
    assert work.running == 0
    assert len(asyncio.all_tasks()) == 1


@given(
    delays=st.lists(st.integers(0, 3), max_size=30),
    limit=st.integers(1, 8),
    ahead=st.integers(1, 4),
    ordered=st.booleans(),
)
def test_every_item_gives_one_result(delays, limit, ahead, ordered):
    running = most = 0

    async def work(numbered):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(numbered[1]):
            await asyncio.sleep(0)
        running -= 1
        return numbered[0]

    async def run():
        found = []
        results = stream(enumerate(delays), work, limit, ordered=ordered, ahead=ahead)
        await collect(results, found)
        return found

    found = asyncio.run(run())
    assert sorted(found) == list(range(len(delays)))
    assert most <= limit
    assert not ordered or found == sorted(found)


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_gathered_work_keeps_its_order_and_its_bound(limit):
    running, most = 0, 0

    async def work(item):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(random.Random(item).random() / 1000)
        running -= 1
        return item

    found = await gather_bounded([lambda n=n: work(n) for n in range(12)], limit)
    assert found == list(range(12))
    assert most == min(limit, 12)
    assert await gather_bounded([], limit) == []


@pytest.mark.parametrize("limit", [1, 2, 8])
async def test_an_error_in_gathered_work_cancels_the_rest(limit):
    work = Workshop()
    work.open(0)

    async def fail():
        await settle()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await gather_bounded([lambda: work(0), fail, *[lambda n=n: work(n) for n in (2, 3)]], limit)
    assert work.running == 0
    assert len(asyncio.all_tasks()) == 1
