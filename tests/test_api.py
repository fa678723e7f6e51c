"""The public functions, as a program or a notebook calls them."""

import asyncio
import json
import threading
import weakref

import numpy as np
import pytest

from flat_verbs import aevaluate, evaluate, evaluate_batch
from textevolve import (
    Agent,
    Case,
    DebateResult,
    EvaluationResult,
    Failure,
    InputError,
    Profile,
    Settings,
)
from textevolve.errors import AccessError
from textevolve.llm.testing import Answer, Fault
from textevolve.runs.stored import FLUSH_RECORDS
from textevolve.store.repository import open_store

pytestmark = pytest.mark.usefixtures("home")

CASE = ("Is 7 prime?", ["Yes, it is.", "No, it is 1 x 7."])
SOLO = Profile(agents=(Agent(name="Solo", persona="You judge."),), rounds=1, readout="verbalized")


def cases(number):
    return [(f"{n}?", (f"yes {n}", f"no {n}")) for n in range(number)]


def newest(path):
    with open_store(path) as store:
        run = store.get_run("last")
        return run, store.run_totals(run.id)


def test_evaluate_gives_all_that_is_promised_of_a_result(model, server):
    result = evaluate(*CASE, model=model, profile="general", rounds=2, convergence=None)
    assert result.tensor.shape == (2, 3, 2, 5)
    assert result.tensor.axes == ("round", "agent", "candidate", "component")
    one = result.tensor.at(round=1, agent="Critic", candidate=0, component="accuracy")
    assert 0 <= one <= 10
    assert result.scores == pytest.approx(result.tensor.values.mean(axis=(0, 1, 3)))
    assert result.probabilities.sum() == pytest.approx(1)
    assert result.best == int(np.argmax(result.scores))
    assert result.sample(np.random.default_rng(1)) in (0, 1)
    assert all(isinstance(r, EvaluationResult) and 0 <= r.score <= 1 for r in result.result)
    assert all(f.strengths and f.weaknesses and f.instructions for f in result.feedback)
    assert [(t.round, t.agent) for t in result.turns] == [(r, i) for r in (0, 1) for i in (0, 1, 2)]
    assert result.usage.calls == server.calls == 6
    assert result.usage.cached_tokens > 0
    assert result.coverage == 1
    assert result.round_one.shape == (2,)
    assert DebateResult.from_json(result.to_json()) == result
    json.loads(result.to_json(), parse_constant=pytest.fail)  # no NaN in it


def test_a_batch_takes_cases_of_every_shape_and_says_which_is_whose(model):
    arguments = [
        Case("1?", ("a",), "mine", {"rounds": 1}),
        {"input": "2?", "candidates": ["a", "b"], "weights": {"accuracy": 1.0}},
        ("3?", ["a", "b", "c"]),
        Case(" ", ("a",)),
    ]
    found = {r.index: r for r in evaluate_batch(iter(arguments), model=model)}
    assert [found[n].case.id for n in range(4)] == ["mine", "2", "3", "4"]
    assert [len(found[n].case.candidates) for n in range(4)] == [1, 2, 3, 1]
    assert len(found[0].convergence) == 1
    assert found[1].profile.weights == {"accuracy": 1.0}
    assert found[3].result == (Failure("failed", "the input is blank"),)


def test_a_batch_that_is_left_early_leaves_nothing_behind_and_can_be_gone_on_with(
    model, server, home, stalling, calls_of
):
    server.script = stalling(8)
    settings = Settings(store=home / "store.db", concurrency=4)
    options = {"model": model, "settings": settings, "profile": SOLO}
    before = set(threading.enumerate())
    for result in evaluate_batch(cases(40), **options):
        assert result.scored
        break
    assert set(threading.enumerate()) <= before
    calls, server.script = calls_of(server), None
    assert calls < 40
    run, totals = newest(settings.store)
    assert run.status == "interrupted"
    results = list(evaluate_batch(cases(40), **options))
    assert len(results) == 40
    assert server.calls <= 40 + 4
    assert server.calls == calls + 40 - totals.spent.calls
    finished, _ = newest(settings.store)
    assert (finished.id, finished.status) == (run.id, "finished")


async def test_a_cancelled_evaluation_ends_cleanly(model, server, home):
    server.latency = 5.0
    task = asyncio.create_task(aevaluate(*CASE, model=model, protocol="simultaneous"))
    while server.calls < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
    assert newest(home / "store.db")[0].status == "interrupted"


@pytest.mark.slow
def test_cases_are_read_lazily_and_few_are_held(model, server, monkeypatch):
    """Nine hundred cases: how many are held at once does not depend on how many there are."""
    server.requests = type(server.requests)(maxlen=0)
    server.headers = type(server.headers)(maxlen=0)
    alive = most = 0

    class Text(str):
        """Knows how many of its kind there are."""

        def __init__(self, _text):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self):
            nonlocal alive
            alive -= 1

    results, make = [], DebateResult.__init__

    def note(self, *values, **fields):
        make(self, *values, **fields)
        results.append(weakref.ref(self))

    monkeypatch.setattr(DebateResult, "__init__", note)
    arguments = ((Text(f"{number}?"), (f"yes {number}",)) for number in range(900))
    held = []
    for seen, _ in enumerate(evaluate_batch(arguments, model=model, profile=SOLO), 1):
        if seen % 225 == 0:
            held.append(sum(result() is not None for result in results))
    assert len(held) == 4
    assert len(results) >= 900
    assert most <= 3
    results_ahead, page = 4 * 32, 100
    assert max(held) <= results_ahead + page + FLUSH_RECORDS


async def asked(server, number):
    """Waits until the server has been asked so often."""
    while server.calls < number:  # noqa: ASYNC110  it counts in a thread of its own
        await asyncio.sleep(0.005)


async def test_equal_calls_at_once_are_one_run_with_one_result(model, server, home):
    server.latency = 0.05
    results = await asyncio.gather(*(aevaluate(*CASE, model=model) for _ in range(3)))
    assert results[0].scored
    assert results[0] == results[1] == results[2]
    assert server.calls == 6
    assert newest(home / "store.db")[0].status == "finished"


async def test_who_waits_for_an_equal_call_that_is_cancelled_or_fails_does_it(model, server):
    server.script = lambda _body, number: Answer(delay=3600) if number == 1 else None
    first_task = asyncio.create_task(aevaluate(*CASE, model=model))
    await asked(server, 1)
    second_task, third = (asyncio.create_task(aevaluate(*CASE, model=model)) for _ in range(2))
    await asyncio.sleep(0.05)
    first_task.cancel()
    third.cancel()
    assert (await second_task).scored
    assert (await asyncio.gather(first_task, third, return_exceptions=True))[0] is not None
    server.script = lambda _body, _number: Fault.UNAUTHORISED
    other = [aevaluate("Another?", ["a"], model=model) for _ in range(2)]
    refused = await asyncio.gather(*other, return_exceptions=True)
    assert [type(error) for error in refused] == [AccessError] * 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"candidates": 5}, "candidates must be a list of texts, or one text, not int"),
        ({"candidates": {"a": "x", "b": "y"}}, "candidates must be a list of texts.*not dict"),
        ({"limits": {"calls": 3}}, "limits must be a Limits or None, not dict"),
    ],
)
def test_what_cannot_be_used_is_our_error_before_anything_is_asked(server, model, given, reason):
    full_fields = {"input": CASE[0], "candidates": CASE[1], "model": model} | given
    with pytest.raises(InputError, match=reason):
        evaluate(**full_fields)
    assert server.calls == 0
