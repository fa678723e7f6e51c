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
    assert all(isinstance(outcome, Response) for outcome in outcomes), outcomes
    return [outcome.text for outcome in outcomes]


def test_all_calls_that_wait_become_one_job_with_the_answers_of_plain_calls(world):
    single_world = world()
    outcome = asyncio.run(single_world.ask(NINE))
    assert [job.total for job in single_world.jobs] == [9]
    plain = BatchWorld(single_world.server)
    assert answers(outcome) == answers(asyncio.run(plain.ask(NINE, batch=False)))
    assert len(single_world.jobs) == 1
    assert [entry.key for entry in single_world.journal.entries].sort() == [
        entry.key for entry in plain.journal.entries
    ].sort()
    assert single_world.ledger.states == ["prepared", "prepared", "submitted", "collected"]
    assert single_world.server.batches.files == {}
    polled = [event for event in single_world.heard if isinstance(event, BatchPolled)]
    assert polled[-1].status == ""
    assert polled[-1].done == 9


@pytest.mark.parametrize("fault", [BatchFault.EXPIRED, BatchFault.ERROR_LINES])
def test_lines_without_an_answer_go_into_the_next_job(world, fault):
    single_world = world({1: fault})
    answers(asyncio.run(single_world.ask(NINE)))
    assert len(single_world.jobs) == 2
    assert single_world.jobs[1].total == {BatchFault.EXPIRED: 4}.get(fault, 3)
    assert not single_world.ledger.open
    assert single_world.server.batches.files == {}


@pytest.mark.parametrize("fault", [BatchFault.POLLS_FAIL, BatchFault.CREATED_UNSAID])
def test_what_goes_wrong_on_the_way_asks_nothing_twice(world, fault):
    single_world = world({1: fault})
    answers(asyncio.run(single_world.ask(NINE)))
    assert len(single_world.jobs) == 1
    assert single_world.server.calls == 9


def test_lines_that_fail_again_and_again_are_failures_with_a_reason(world):
    single_world = world(dict.fromkeys(range(1, 9), BatchFault.ERROR_LINES))
    outcome = asyncio.run(single_world.ask(NINE))
    failed = [
        single_world for single_world in outcome if isinstance(single_world, UnavailableError)
    ]
    assert len(failed) == 1  # the first line of each job is the one that failed before
    assert "no answer after 3 batch jobs" in str(failed[0])
    assert "it went wrong" in str(failed[0])
    assert [entry.error for entry in single_world.journal.entries if entry.error] == [
        str(failed[0])
    ]
    assert not single_world.ledger.open


def test_a_job_that_is_refused_as_a_whole_ends_the_run(world):
    single_world = world({1: BatchFault.INVALID})
    outcome = asyncio.run(single_world.ask(NINE))
    assert all(isinstance(error, CapabilityError) for error in outcome)
    assert "no batches of this" in str(outcome[0])
    assert single_world.ledger.states[-1] == "void"


def test_a_full_queue_waits_and_splits(world):
    single_world = world(most=3)
    answers(asyncio.run(single_world.ask(NINE)))
    assert single_world.server.calls == 9
    assert all(job.total <= 3 for job in single_world.jobs if job.outcome.output_file_id)
    assert any(isinstance(event, CallRetried) for event in single_world.heard)


def test_an_endpoint_without_batch_jobs_says_so(home):
    with ScriptedServer() as server:
        outcome = asyncio.run(BatchWorld(server).ask(NINE[:2]))
    assert all(isinstance(error, AccessError) for error in outcome)
    assert "leave out --batch" in str(outcome[0])


def test_a_job_that_is_cancelled_elsewhere_skips_the_rest_and_keeps_what_came(world):
    single_world = world({1: BatchFault.CANCELLED})
    outcome = asyncio.run(single_world.ask(NINE))
    assert sum(isinstance(single_world, Response) for single_world in outcome) == 5
    assert sum(isinstance(single_world, BudgetError) for single_world in outcome) == 4
    assert len(single_world.journal.entries) == 5
    assert not single_world.ledger.open
    answers(asyncio.run(single_world.ask(NINE)))
    assert [job.total for job in single_world.jobs] == [9, 4]


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
    single_world = world()
    asyncio.run(_cut_off(single_world, NINE, when))
    answers(asyncio.run(single_world.ask(NINE)))
    assert single_world.server.calls == 9
    assert len(single_world.jobs) == 1
