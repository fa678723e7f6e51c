"""The journal: what is appended is on the disk, is found again, and is found by whom it should."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from textevolve.errors import StoreError
from textevolve.llm.model import JournalEntry, Message, Request, Response, request_key
from textevolve.settings import StoreLocation
from textevolve.store import writer
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

MakeEntry = Callable[..., JournalEntry]
NewRun = Callable[..., RunRecord]


async def test_an_answer_is_found_again(
    store: Store, location: StoreLocation, new_run: NewRun, make_entry: MakeEntry
) -> None:
    entry, run = make_entry(1), new_run()
    assert await store.journal(run.id).find(entry.key) is None
    await store.journal(run.id).append(entry)
    assert entry.response is not None
    expected = replace(entry.response, replayed=True)
    assert await store.journal(run.id).find(entry.key) == expected
    with open_store(location) as other:
        assert await other.journal(run.id).find(entry.key) == expected


async def test_append_returns_when_others_can_read(
    store: Store, location: StoreLocation, new_run: NewRun, make_entry: MakeEntry
) -> None:
    journal = store.journal(new_run().id)
    query = text("SELECT count(*) FROM calls WHERE key = :key")
    with open_store(location) as other:

        async def append(number: int) -> bool:
            entry = make_entry(number)
            await journal.append(entry)
            return other.read(lambda c: c.execute(query, {"key": entry.key}).scalar_one()) == 1

        assert all(await asyncio.gather(*[append(number) for number in range(100)]))


async def test_failed_calls_stay_and_are_not_found(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    run = new_run()
    journal = store.journal(run.id)
    await journal.append(make_entry(1, error="503 \ud83d\0"))
    assert await journal.find(make_entry(1).key) is None
    await journal.append(make_entry(1, "second"))
    await journal.append(make_entry(1, "third"))
    response = await journal.find(make_entry(1).key)
    assert response is not None
    assert response.text == "second"
    calls = list(store.calls(run.id))
    assert [call.error for call in calls] == ["503 \ud83d\0", None, None]
    assert [call.response and call.response.text for call in calls] == [None, "second", "third"]


async def test_a_run_finds_its_own_answer_before_an_earlier_one(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    first_run, second_run, third = new_run(), new_run(), new_run()
    await store.journal(first_run.id).append(make_entry(1, "of the first"))
    await store.journal(second_run.id).append(make_entry(1, "of the second"))
    key = make_entry(1).key
    found = [await store.journal(run.id).find(key) for run in (first_run, second_run, third)]
    assert [answer and answer.text for answer in found] == [
        "of the first",
        "of the second",
        "of the first",
    ]


async def test_calls_come_with_their_requests(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    run = new_run()
    journal = store.journal(run.id)
    request = Request(
        messages=(Message("user", ("\ud83d\ude00", "\0", "long " * 9000, "")),), seed=2**40
    )
    odd = replace(make_entry(0), request=request, key=request_key("m", request))
    entries = [odd, *[make_entry(number) for number in range(1, 450)]]
    await asyncio.gather(*[journal.append(entry) for entry in entries])
    calls = list(store.calls(run.id))
    assert [call.key for call in calls] == [entry.key for entry in entries]
    assert [store.read_request(call) for call in calls] == [entry.request for entry in entries]
    assert [call.started for call in calls] == [entry.started for entry in entries]


async def test_a_call_that_cannot_be_kept_fails_alone(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_SECONDS", 0.2)  # what follows the first is one group
    run = new_run()
    journal = store.journal(run.id)
    await journal.append(replace(make_entry(0), request=Request(messages=())))
    # The bad one is first in its group, and brings the text that all of them share.
    entries = [make_entry(n, prompt_tokens=2**70 if n == 0 else 1) for n in range(50)]
    outcomes = await asyncio.gather(*map(journal.append, entries), return_exceptions=True)
    assert isinstance(outcomes[0], StoreError)
    assert outcomes[1:] == [None] * 49
    calls = list(store.calls(run.id))[1:]
    assert [store.read_request(call) for call in calls] == [e.request for e in entries[1:]]


async def test_a_cancelled_append_is_still_kept(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    journal = store.journal(new_run().id)
    waiting = asyncio.create_task(journal.append(make_entry(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await journal.append(make_entry(2))
    assert await journal.find(make_entry(1).key)


def test_several_loops_share_a_store(store: Store, new_run: NewRun, make_entry: MakeEntry) -> None:
    run = new_run()
    matches: list[Response | None] = []

    async def work(thread: int) -> None:
        journal = store.journal(run.id)
        entries = [make_entry(1000 * thread + number) for number in range(200)]
        await asyncio.gather(*map(journal.append, entries))
        matches.extend([await journal.find(entry.key) for entry in entries])

    def run_loop(thread: int) -> None:
        asyncio.run(work(thread))

    threads = [threading.Thread(target=run_loop, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(matches) == 800
    assert None not in matches
    assert store.run_totals(run.id).spent.calls == 800


async def test_closing_writes_what_waits(location: StoreLocation, make_entry: MakeEntry) -> None:
    async with open_store(location) as store:
        run = store.create_run({}, "f")
        journal = store.journal(run.id)
        waiting = [asyncio.create_task(journal.append(make_entry(n))) for n in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    with open_store(location) as store:
        assert store.run_totals(run.id).spent.calls == 50
