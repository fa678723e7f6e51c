"""Calls in batch jobs: gathered, answered, tried again, taken up by another process."""

import asyncio
import contextlib
import itertools

import pytest
from batch_world import BatchWorld, asked

from textevolve.errors import AccessError, BudgetError, CapabilityError, UnavailableError
from textevolve.events import BatchPolled, CallRetried
from textevolve.llm.model import Response
from textevolve.llm.testing import BatchFault, ScriptedBatches, ScriptedServer

NINE = [asked(n) for n in range(9)]


@pytest.fixture
def world(home):
    """Makes a world with a server; `faults` by the number of the job."""
    with contextlib.ExitStack() as stack:

        def make(faults=None, script=None, seconds=0.03, most=None, **options):
            wrong = (faults or {}).get
            batches = ScriptedBatches(seconds, wrong, most)
            server = stack.enter_context(ScriptedServer(script, batches=batches))
            return BatchWorld(server, **options)

        yield make


def answers(outcomes):
    assert all(isinstance(one, Response) for one in outcomes), outcomes
    return [one.text for one in outcomes]


def test_all_calls_that_wait_become_one_job_with_the_answers_of_plain_calls(world):
    one = world()
    found = asyncio.run(one.ask(NINE))
    assert [job.total for job in one.jobs] == [9]
    plain = BatchWorld(one.server)
    assert answers(found) == answers(asyncio.run(plain.ask(NINE, batch=False)))
    assert len(one.jobs) == 1
    assert [entry.key for entry in one.journal.entries].sort() == [
        entry.key for entry in plain.journal.entries
    ].sort()
    assert one.ledger.states == ["prepared", "prepared", "submitted", "collected"]
    assert one.server.batches.files == {}
    polled = [event for event in one.heard if isinstance(event, BatchPolled)]
    assert polled[-1].status == ""
    assert polled[-1].done == 9


@pytest.mark.parametrize(
    "fault", [BatchFault.EXPIRED, BatchFault.ERROR_LINES, BatchFault.RESULTS_GONE]
)
def test_lines_without_an_answer_go_into_the_next_job(world, fault):
    one = world({1: fault})
    answers(asyncio.run(one.ask(NINE)))
    assert len(one.jobs) == 2
    assert one.jobs[1].total == {BatchFault.EXPIRED: 4, BatchFault.RESULTS_GONE: 9}.get(fault, 3)
    assert not one.ledger.open
    assert one.server.batches.files == {}


@pytest.mark.parametrize("fault", [BatchFault.POLLS_FAIL, BatchFault.CREATED_UNSAID])
def test_what_goes_wrong_on_the_way_asks_nothing_twice(world, fault):
    one = world({1: fault})
    answers(asyncio.run(one.ask(NINE)))
    assert len(one.jobs) == 1
    assert one.server.calls == 9


def test_lines_that_fail_again_and_again_are_failures_with_a_reason(world):
    one = world(dict.fromkeys(range(1, 9), BatchFault.ERROR_LINES))
    found = asyncio.run(one.ask(NINE))
    failed = [one for one in found if isinstance(one, UnavailableError)]
    assert len(failed) == 1  # the first line of each job is the one that failed before
    assert "no answer after 3 batch jobs" in str(failed[0])
    assert "it went wrong" in str(failed[0])
    assert [entry.error for entry in one.journal.entries if entry.error] == [str(failed[0])]
    assert not one.ledger.open


def test_a_job_that_is_refused_as_a_whole_ends_the_run(world):
    one = world({1: BatchFault.INVALID})
    found = asyncio.run(one.ask(NINE))
    assert all(isinstance(error, CapabilityError) for error in found)
    assert "no batches of this" in str(found[0])
    assert one.ledger.states[-1] == "void"


def test_a_full_queue_waits_and_splits(world):
    one = world(most=3)
    answers(asyncio.run(one.ask(NINE)))
    assert one.server.calls == 9
    assert all(job.total <= 3 for job in one.jobs if job.outcome.output_file_id)
    assert any(isinstance(event, CallRetried) for event in one.heard)


def test_an_endpoint_without_batch_jobs_says_so(home):
    with ScriptedServer() as server:
        found = asyncio.run(BatchWorld(server).ask(NINE[:2]))
    assert all(isinstance(error, AccessError) for error in found)
    assert "leave out --batch" in str(found[0])


def test_a_job_that_is_cancelled_elsewhere_skips_the_rest_and_keeps_what_came(world):
    one = world({1: BatchFault.CANCELLED})
    found = asyncio.run(one.ask(NINE))
    assert sum(isinstance(one, Response) for one in found) == 5
    assert sum(isinstance(one, BudgetError) for one in found) == 4
    assert len(one.journal.entries) == 5
    assert not one.ledger.open
    answers(asyncio.run(one.ask(NINE)))
    assert [job.total for job in one.jobs] == [9, 4]


async def _cut_off(world, requests, when):
    """A process that ends without closing anything as soon as the ledger is asked so often."""
    cut, keep = asyncio.Event(), world.ledger.keep
    count = itertools.count(1)

    async def dies(batch):
        if next(count) > when:
            cut.set()
            await asyncio.sleep(3600)
        await keep(batch)

    world.ledger.keep = dies

    async def ask():
        async with world.process() as model:
            await asyncio.gather(*map(model, requests))

    work = asyncio.create_task(ask())
    await asyncio.wait({work, asyncio.create_task(cut.wait())}, return_when="FIRST_COMPLETED")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    world.ledger.keep = keep


@pytest.mark.parametrize("when", [1, 2])
def test_a_process_that_ends_anywhere_loses_nothing_and_asks_nothing_twice(world, when):
    """1: the file is uploaded, unnoted; 2: the job is made, unnoted."""
    one = world()
    asyncio.run(_cut_off(one, NINE, when))
    answers(asyncio.run(one.ask(NINE)))
    assert one.server.calls == 9
    assert len(one.jobs) == 1
