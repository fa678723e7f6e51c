import asyncio
from random import Random
from typing import Any

import pytest
from batch_world import MemoryJournal
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import AccessError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.events import CallFinished, CallRetried, Event
from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited
from textevolve.llm.meter import DistinctCalls, Tab, sum_calls
from textevolve.llm.model import Message, Request, request_key
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.llm.wrappers import Journaled, Retrying, backoff
from textevolve.settings import Retries

QUICK = Retries(attempts=4, first=0.001, longest=0.002)


def ask(text: str = "?", **more: Any) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


def first_fail(times: int, fault: Fault):
    return lambda _body, number: fault if number <= times else "done"


# Retrying


@given(
    first=st.floats(0, 10),
    longest=st.floats(0, 60),
    attempt=st.integers(1, 10_000),
    asked=st.none() | st.floats(0, 600),
    seed=st.integers(),
)
def test_a_wait_is_within_its_bounds(
    first: float, longest: float, attempt: int, asked: float | None, seed: int
) -> None:
    wait = backoff(Retries(first=first, longest=longest), attempt, asked, Random(seed))
    floor = asked or 0.0
    assert floor <= wait <= floor + min(longest, first * 2.0 ** min(attempt - 1, 60)) + 1e-9


@pytest.mark.parametrize("fault", [Fault.RATE_LIMIT_WAIT, Fault.OVERLOADED, Fault.RESET])
async def test_it_is_tried_again(
    server: ScriptedServer, client: OpenAIClient, fault: Fault
) -> None:
    heard: list[Event] = []
    server.script = first_fail(2, fault)
    response = await Retrying(client, QUICK, listener=heard.append)(ask())
    assert (response.text, response.attempts, server.calls) == ("done", 3, 3)
    retried = [event for event in heard if isinstance(event, CallRetried)]
    assert [event.attempt for event in retried] == [1, 2]
    assert all(event.model == client.name and event.reason for event in retried)
    if fault is Fault.RATE_LIMIT_WAIT:
        assert all(event.wait >= 0.05 for event in retried)


async def test_it_gives_up_and_says_so(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = first_fail(99, Fault.OVERLOADED)
    with pytest.raises(UnavailableError, match=r"after 4 attempts.*503") as caught:
        await Retrying(client, QUICK)(ask())
    assert (caught.value.attempts, caught.value.status, server.calls) == (4, 503, 4)


async def test_what_cannot_succeed_is_not_tried_again(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.script = lambda _body, n: Fault.SERVER_ERROR if n == 1 else Fault.UNAUTHORISED
    with pytest.raises(AccessError) as caught:
        await Retrying(client, QUICK)(ask())
    assert (caught.value.attempts, server.calls) == (2, 2)


async def test_the_deadline_ends_all_attempts(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = first_fail(99, Fault.OVERLOADED)
    patient = Retries(attempts=99, first=0.05, longest=0.05)
    with pytest.raises(UnavailableError, match="after the deadline") as caught:
        await Retrying(client, patient, deadline=0.2)(ask())
    assert 4 <= caught.value.attempts < 99


# Limited


async def test_no_more_than_the_limit_are_in_flight(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.latency = 0.02
    model = Limited(client, 5)
    await asyncio.gather(*(model(ask(str(n))) for n in range(20)))
    assert (server.most_in_flight, server.calls, model.in_flight) == (5, 20, 0)


async def test_a_429_halves_the_limit_once_for_all_that_were_in_flight(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.latency = 0.05
    server.script = first_fail(10**9, Fault.RATE_LIMIT)
    model = Limited(client, 16)
    seen: list[float] = []
    for _ in range(6):
        calls = (model(ask(str(n))) for n in range(int(model.limit)))
        await asyncio.gather(*calls, return_exceptions=True)
        seen.append(model.limit)
    assert seen == [8, 4, 2, 1, 1, 1]


async def test_a_place_that_is_given_while_its_waiter_is_cancelled(client: OpenAIClient) -> None:
    model = Limited(client, 1)
    first_task, second_task, third = (asyncio.create_task(model(ask(str(n)))) for n in range(3))
    first_task.add_done_callback(lambda _: second_task.cancel())  # in the very turn that wakes it
    await asyncio.wait((first_task, second_task, third))
    assert second_task.cancelled()
    assert third.result().text
    assert model.in_flight == 0


# Journaled


async def test_an_answer_is_kept_and_replayed(server: ScriptedServer, client: OpenAIClient) -> None:
    journal, heard = MemoryJournal(), list[Event]()
    model = Journaled(Retrying(client, QUICK), journal, heard.append)
    server.script = first_fail(1, Fault.OVERLOADED)
    response = await model(ask())
    again = await model(ask())
    assert (response.replayed, again.replayed, again.text) == (False, True, response.text)
    assert server.calls == 2  # a failed attempt and an answer
    (entry,) = journal.entries
    assert entry.key == request_key(client.name, ask())
    assert (entry.attempts, entry.error, entry.response) == (2, None, response)
    finished = [event for event in heard if isinstance(event, CallFinished)]
    assert [event.replayed for event in finished] == [False, True]


async def test_a_failure_is_kept_and_asked_again(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    journal, heard = MemoryJournal(), list[Event]()
    model = Journaled(client, journal, heard.append)
    server.script = first_fail(1, Fault.OVERLOADED)
    with pytest.raises(UnavailableError):
        await model(ask())
    assert (await model(ask())).text == "done"
    failed, answered = journal.entries
    assert failed.response is None
    assert "503" in (failed.error or "")
    assert answered.error is None
    assert [event.error is None for event in heard if isinstance(event, CallFinished)] == [
        False,
        True,
    ]


async def test_the_same_request_at_once_is_asked_once(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.latency = 0.01
    journal = MemoryJournal()
    model = Journaled(client, journal)
    answers = await asyncio.gather(*(model(ask()) for _ in range(20)))
    assert server.calls == len(journal.entries) == 1
    assert len({answer.text for answer in answers}) == 1
    assert sum(answer.replayed for answer in answers) == 19


async def test_who_waits_asks_when_the_asker_is_cancelled(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.script = lambda _body, number: Answer(delay=3600) if number == 1 else None
    journal = MemoryJournal()
    model = Journaled(client, journal)
    first_task, second_task = asyncio.create_task(model(ask())), asyncio.create_task(model(ask()))
    while not server.calls:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    first_task.cancel()
    assert (await second_task).text
    assert first_task.cancelled()
    lost, entry = journal.entries
    assert (server.calls, lost.response, lost.usage.estimated) == (2, None, 1)
    assert entry.response


# Calls that are noted


async def test_a_request_counts_once_however_often_it_is_answered(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    model = Journaled(client, MemoryJournal())
    with Tab() as tab:
        await asyncio.gather(model(ask("a")), model(ask("a")), model(ask("b")))
    with Tab() as replayed:
        await model(ask("b"))
        await asyncio.create_task(model(ask("a")))  # tasks begun within are heard, too
    await model(ask("c"))  # nobody notes
    assert server.calls == 3
    assert len(tab.calls) == 3
    first_distinct_calls, second_distinct_calls = DistinctCalls(), DistinctCalls()
    spent = first_distinct_calls.count(tab)
    assert spent[0].calls == 2
    assert first_distinct_calls.count(replayed) == (Usage(), 0.0)
    assert second_distinct_calls.count(replayed)[0] == spent[0]


async def test_paid_failures_count_too(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = lambda _body, number: Answer(transport="cut") if number == 1 else "done"
    model = Journaled(Retrying(client, QUICK), MemoryJournal())
    with Tab() as first_block:
        await model(ask())
    with Tab() as second_block:
        await model(ask())  # answered by the journal
    assert (server.calls, sum_calls(first_block).calls, sum_calls(second_block).calls) == (2, 2, 1)
    assert sum_calls(first_block).estimated == 1
    assert sum_calls(first_block, second_block) == sum_calls(first_block)
