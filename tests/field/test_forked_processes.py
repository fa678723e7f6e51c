"""A server opens and uses a judge, and then forks its workers; a pool of processes does the same.

The children must get scores, or one of our errors; they must not wait for the parent's threads.
"""

import multiprocessing
import sys

import pytest

from textevolve import Client, InputError
from textevolve.engine.sync import iterate

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
used = {}


def score(text):
    return used["metric"]("Say hello.", text)


def step_on():
    try:
        return next(used["values"])
    except InputError as error:
        return str(error)


async def count():
    for number in range(3):
        yield number


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_metrics_work_in_pools(server, home):
    with Client(f"{server.url}#scripted", store=home / "forks.db") as client:
        metric = used["metric"] = client.as_metric("probe")
        first = metric("Say hello.", "Hello!")
        with FORK.Pool(2) as pool:
            scores = pool.map_async(score, ["Hello!", "Hello!", "Goodbye!"]).get(timeout=60)
        assert scores[:2] == [first, first]
        assert metric("Say hello.", "Hello!") == first
        metric.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_begun_iterations_are_refused():
    used["values"] = iterate(count())
    assert next(used["values"]) == 0
    with FORK.Pool(1) as pool:
        reason = pool.apply_async(step_on).get(timeout=60)
    assert "before the process was forked" in reason
    assert list(used["values"]) == [1, 2]
