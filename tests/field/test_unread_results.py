"""A batch job has ended and is paid, but its results cannot be read at the first look: the file is
not there yet, is empty, is a page of a gateway, is cut, or has no name yet."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from batch_world import BatchWorld, asked

from textevolve.errors import AccessError
from textevolve.llm.model import Response
from textevolve.llm.testing import BatchFault, ScriptedBatches, ScriptedServer

QUESTIONS = [asked(number) for number in range(4)]
LATE = (
    BatchFault.RESULTS_LATE,
    BatchFault.RESULTS_EMPTY,
    BatchFault.RESULTS_A_PAGE,
    BatchFault.RESULTS_CUT,
    BatchFault.FILE_UNNAMED,
    BatchFault.FAILED_FIRST,
)


@contextlib.contextmanager
def open_world(fault):
    batches = ScriptedBatches(0.0, lambda number: fault if number == 1 else None)
    with ScriptedServer(batches=batches) as server:
        yield BatchWorld(server)


@pytest.mark.parametrize("fault", LATE)
def test_late_results_are_awaited(home, fault):
    with open_world(fault) as world:
        outcomes = asyncio.run(world.ask(QUESTIONS))
        assert all(isinstance(outcome, Response) for outcome in outcomes), outcomes
        assert world.server.batches.submissions == 1
        assert world.server.calls == 4
        assert world.server.batches.files == {}


def test_unreadable_results_stay(home):
    with open_world(BatchFault.RESULTS_GONE) as world:
        outcomes = asyncio.run(world.ask(QUESTIONS))
        job = world.jobs[0]
        assert all(isinstance(outcome, AccessError) for outcome in outcomes), outcomes
        assert job.outcome.id in str(outcomes[0])
        assert job.outcome.output_file_id in str(outcomes[0])
        assert job.outcome.output_file_id in world.server.batches.files
        assert len(world.ledger.open) == 1

        job.fault = None
        outcomes = asyncio.run(world.ask(QUESTIONS))
        assert all(isinstance(outcome, Response) for outcome in outcomes), outcomes
        assert world.server.batches.submissions == 1
        assert world.server.calls == 4
