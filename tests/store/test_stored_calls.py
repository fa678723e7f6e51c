"""Stored calls are read as they were written: pages, searches, failures, usage, batch jobs; and
the thread that writes them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from textevolve.errors import BusyError, StoreAwayError, StoreError
from textevolve.evaluation import Usage
from textevolve.llm.batches.ledger import KeptBatch
from textevolve.llm.model import JournalEntry, Message, Request, request_key
from textevolve.store import journal, lease, tables, writer
from textevolve.store.journal import StoreJournal, StoreLedger
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

MakeEntry = Callable[..., JournalEntry]
NewRun = Callable[..., RunRecord]


@pytest.fixture
def location(path: Path) -> Path:
    """A file: what differs between databases has tests of its own."""
    return path


def append_all(store: Store, run_id: str, *entries: JournalEntry) -> None:
    async def append() -> None:
        stored_journal = store.journal(run_id)
        for entry in entries:
            await stored_journal.append(entry)

    asyncio.run(append())


def count(store: Store, table: str) -> int:
    query = text(f"SELECT count(*) FROM {table}")
    return store.read(lambda connection: connection.execute(query).scalar_one())


def execute(store: Store, statement: str, **values: object) -> None:
    store.database.write(lambda connection: connection.execute(text(statement), values))


# Reading


def test_a_failed_call_keeps_its_usage(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run = new_run()
    usage = Usage(1, 7, 2, 3, 0.5, saved=0.25)
    paid = replace(make_entry(1, error="cut"), usage=usage, attempts=4)
    append_all(store, run.id, paid, make_entry(2, error="503"), make_entry(3))
    calls = list(store.calls(run.id))
    assert [call.usage.calls for call in calls] == [1, 0, 1]
    assert calls[0].usage == usage
    assert calls[1].usage == Usage()
    assert calls[2].response is not None
    assert calls[2].usage == calls[2].response.usage
    assert [call.attempts for call in calls] == [4, 1, 1]
    assert [call.seconds for call in calls] == [0.5] * 3
    totals = store.run_totals(run.id)
    assert (totals.spent.tokens, totals.spent.cost, totals.failed) == (10 + 12, 0.5, 2)


def test_an_entry_has_one_outcome(store: Store, new_run: NewRun, make_entry: MakeEntry):
    entry = make_entry(1)
    for odd in (replace(entry, error="too"), replace(entry, response=None)):
        with pytest.raises(StoreError, match="either a response or an error"):
            append_all(store, new_run(str(odd.error)).id, odd)


def test_the_latest_failure_counts(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run, other = new_run(), new_run("other")
    key = make_entry(1).key
    append_all(store, run.id, make_entry(1, error="first"), make_entry(1, error="second"))
    append_all(store, run.id, make_entry(2), make_entry(3, error="third"))
    append_all(store, other.id, make_entry(4, error="of another run"))
    assert store.journal(run.id).errors() == {key: "second", make_entry(3).key: "third"}


def test_pages_end_and_follow(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journal, "PAGE", 3)
    first_run, second_run = new_run(), new_run("second")
    append_all(store, first_run.id, *[make_entry(number) for number in range(4)])
    append_all(store, second_run.id, make_entry(10))

    async def reuse() -> None:
        stored_journal = store.journal(second_run.id)
        for number in (1, 3):
            assert await stored_journal.find(make_entry(number).key)
        await stored_journal.append(make_entry(11))

    asyncio.run(reuse())
    assert [len(store.page_calls(first_run.id, after)) for after in (0, 3, 4)] == [3, 1, 0]
    calls = list(store.calls(second_run.id))
    keys = [make_entry(number).key for number in (1, 3, 10, 11)]
    assert [call.key for call in calls] == keys
    assert [call.reused for call in calls] == [True, True, False, False]
    assert [call.id for call in store.page_calls(second_run.id, calls[1].id)] == [5, 6]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("model", b"m"),
        ("started", "soon"),
        ("seconds", "long"),
        ("attempts", 1.5),
        ("prompt_tokens", "many"),
        ("cost", "dear"),
    ],
)
def test_damaged_calls_are_named(
    store: Store, new_run: NewRun, make_entry: MakeEntry, column: str, value: object
):
    for entry in (make_entry(1), make_entry(1, error="503")):
        run = new_run(str(entry.error))
        append_all(store, run.id, entry)
        execute(
            store,
            f"UPDATE calls SET {column} = :value WHERE run_id = :run",
            value=value,
            run=run.id,
        )
        if column == "cost" and entry.error:
            continue
        with pytest.raises(StoreError, match="call"):
            list(store.calls(run.id))


def test_missing_texts_are_counted(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run = new_run()
    append_all(store, run.id, make_entry(1))
    (call,) = store.calls(run.id)
    assert store.read_request(call) == make_entry(1).request
    execute(store, "DELETE FROM texts WHERE hash IN (SELECT hash FROM texts LIMIT 2)")
    with pytest.raises(StoreError, match=r"call \d+: 2 of its texts are missing"):
        store.read_request(call)


def test_repeated_texts_are_one(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run = new_run()
    request = Request(messages=(Message("user", ("same", "same", "other")),))
    entry = replace(make_entry(1), request=request, key=request_key("m", request))
    append_all(store, run.id, entry)
    (call,) = store.calls(run.id)
    assert store.read_request(call) == request
    assert count(store, "texts") == 2


def test_calls_are_found_by_a_text(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run, other = new_run(), new_run("other")
    append_all(store, run.id, *[make_entry(number) for number in (5, 55, 6)])
    append_all(store, other.id, make_entry(555))

    async def reuse() -> None:
        assert await store.journal(run.id).find(make_entry(555).key)
        await store.journal(run.id).append(make_entry(7))

    asyncio.run(reuse())

    def find(words: str, most: int = 100) -> list[str] | None:
        calls = store.find_calls(run.id, words, most)
        return None if calls is None else [call.key for call in calls]

    keys = {number: make_entry(number).key for number in (5, 55, 555, 6, 7)}
    assert find("5") == [keys[5], keys[55], keys[555]]
    assert find("Judge.") == [keys[5], keys[55], keys[6], keys[555], keys[7]]
    assert find("nothing") == []
    assert find("5", most=5) == find("5")
    assert find("5", most=4) is None


def test_erased_calls_are_known(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run, other = new_run(), new_run("other")
    append_all(store, run.id, make_entry(1))
    append_all(store, other.id, make_entry(2))

    async def reuse() -> None:
        assert await store.journal(other.id).find(make_entry(1).key)
        await store.journal(other.id).append(make_entry(3))

    asyncio.run(reuse())
    erased = [store.read(journal.has_erased, single_run.id) for single_run in (run, other)]
    assert erased == [False, False]
    execute(
        store, "UPDATE calls SET key = :key WHERE run_id = :run", key=tables.ERASED_KEY, run=run.id
    )
    erased = [store.read(journal.has_erased, single_run.id) for single_run in (run, other)]
    assert erased == [True, True]
    assert store.read(journal.has_erased, new_run("third").id) is False


# Finding


async def test_one_query_for_all_that_ask(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    stored_journal = store.journal(new_run().id)
    await stored_journal.append(make_entry(1))
    requests: list[list[str]] = []
    find = store.database.find_answers

    def note(run_id: str, keys: list[str]):
        requests.append(list(keys))
        return find(run_id, keys)

    monkeypatch.setattr(store.database, "find_answers", note)
    keys = [make_entry(number).key for number in range(3)]
    results = await asyncio.gather(*map(stored_journal.find, keys))
    assert [answer is not None for answer in results] == [False, True, False]
    assert requests == [keys]


async def test_look_ups_elsewhere(store: Store, new_run: NewRun, make_entry: MakeEntry):
    run = new_run()
    with ThreadPoolExecutor(1) as threads:
        stored_journal = StoreJournal(run.id, store.writer, store.database, threads)
        await stored_journal.append(make_entry(1))
        blocked = threads.submit(time.sleep, 0.05)  # so that both ask during the first look-up
        first_task = asyncio.create_task(stored_journal.find(make_entry(1).key))
        await asyncio.sleep(0.01)
        second_task = asyncio.create_task(stored_journal.find(make_entry(1).key))
        third = asyncio.create_task(stored_journal.find(make_entry(2).key))
        answers = await asyncio.wait_for(asyncio.gather(first_task, second_task, third), 5)
        blocked.result()
        # Later look-ups work as well: the one before is over.
        later = await asyncio.wait_for(stored_journal.find(make_entry(1).key), 5)
    assert [answer is not None for answer in (*answers, later)] == [True, True, False, True]
    # An executor that is shut down is done without.
    assert await asyncio.wait_for(stored_journal.find(make_entry(1).key), 5)


async def test_look_ups_have_their_thread(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    threads: list[str] = []

    def note(_run_id: str, _keys: list[str]):
        threads.append(threading.current_thread().name)
        return []

    monkeypatch.setattr(store.database, "find_answers", note)
    run = new_run()
    key = make_entry(1).key
    with ThreadPoolExecutor(1, "looking") as elsewhere:
        for executor in (elsewhere, None):
            stored_journal = StoreJournal(run.id, store.writer, store.database, executor)
            assert await stored_journal.find(key) is None
    assert threads == ["looking_0", threading.current_thread().name]


async def test_a_failed_look_up_reaches_all(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    stored_journal = store.journal(new_run().id)

    def fail(_run_id: str, _keys: list[str]):
        raise StoreError("away")

    monkeypatch.setattr(store.database, "find_answers", fail)
    keys = [make_entry(number).key for number in range(2)]
    outcomes = await asyncio.gather(*map(stored_journal.find, keys), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["away", "away"]


async def test_an_impatient_look_up_harms_none(
    store: Store, new_run: NewRun, make_entry: MakeEntry
):
    stored_journal = store.journal(new_run().id)
    await stored_journal.append(make_entry(1))
    gone = asyncio.create_task(stored_journal.find(make_entry(1).key))
    other = asyncio.create_task(stored_journal.find(make_entry(1).key))
    await asyncio.sleep(0)
    gone.cancel()
    assert await other


async def test_own_answers_are_no_reuse(store: Store, new_run: NewRun, make_entry: MakeEntry):
    first_run, second_run = new_run(), new_run("second")
    await store.journal(first_run.id).append(make_entry(1))
    assert await store.journal(first_run.id).find(make_entry(1).key)
    await store.journal(first_run.id).append(make_entry(2))
    assert count(store, "reuses") == 0
    assert await store.journal(second_run.id).find(make_entry(1).key)
    await store.journal(second_run.id).append(make_entry(3))
    assert count(store, "reuses") == 1


async def test_who_lost_the_run_finds_nothing(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    run = new_run()
    lost = store.lease(run.id)
    lost.__enter__()
    stored_journal = store.journal(run.id)
    await stored_journal.append(make_entry(1))
    execute(store, "UPDATE runs SET lease_token = 'another'")
    assert await stored_journal.find(make_entry(1).key)
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.0)

    for _ in range(100):
        await asyncio.to_thread(store.writer.run, None, lambda _connection: None)
        if store.writer._lost:
            break
        await asyncio.sleep(0.01)
    with pytest.raises(BusyError, match="took it over"):
        await stored_journal.find(make_entry(1).key)


# Batch jobs


def test_batch_jobs_come_back(store: Store, new_run: NewRun):
    run, other = new_run(), new_run("other")
    keys = (f"{1:064x}", f"{2:064x}")
    jobs = [
        KeptBatch("c", "m", 3.0, keys[:1]),
        KeptBatch("a", "m", 1.0, keys, "submitted", "file", "id"),
        KeptBatch("b", "n", 2.0, keys, "cancelled"),
        KeptBatch("d", "m", 0.5, keys, "collected"),
        KeptBatch("e", "m", 0.6, keys, "void"),
    ]
    ledger = store.batches(run.id)

    async def keep() -> None:
        for job in jobs:
            await ledger.keep(job)
        await store.batches(other.id).keep(KeptBatch("f", "m", 4.0, keys))

    asyncio.run(keep())
    assert ledger.all_open() == [jobs[1], jobs[2], jobs[0]]
    assert asyncio.run(ledger.find_open("m")) == [jobs[1], jobs[0]]
    assert asyncio.run(ledger.find_open("other")) == []
    asyncio.run(ledger.keep(replace(jobs[1], state="collected")))
    assert asyncio.run(ledger.find_open("m")) == [jobs[0]]
    assert isinstance(ledger, StoreLedger)


async def test_a_cancelled_keep_is_durable(store: Store, new_run: NewRun):
    ledger = store.batches(new_run().id)
    task = asyncio.create_task(ledger.keep(KeptBatch("a", "m", 1.0, ())))
    await asyncio.sleep(0)  # it has begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(100):
        if ledger.all_open():
            break
        await asyncio.sleep(0.01)
    assert [job.mark for job in ledger.all_open()] == ["a"]


# Writing


async def test_nothing_is_put_into_a_closed_store(path: Path, make_entry: MakeEntry):
    async with open_store(path) as store:
        run = store.create_run({}, "f")
        stored_journal = store.journal(run.id)
        await stored_journal.append(make_entry(1))
    store.writer.close()  # a second time does nothing
    with pytest.raises(StoreAwayError, match="is closed; open it again"):
        await stored_journal.append(make_entry(2))
    with pytest.raises(StoreAwayError, match="is closed"):
        store.writer.submit_reuse(run.id, 1)


def note_groups(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the number of calls in each transaction from now on."""
    groups: list[int] = []
    insert = store.database.insert

    def note(make):
        def counted(sweeps: int):
            rows = make(sweeps)
            groups.append(len(rows.calls))
            return rows

        return insert(counted)

    monkeypatch.setattr(store.database, "insert", note)
    return groups


async def test_groups_have_a_size(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "GROUP_SIZE", 4)
    monkeypatch.setattr(writer, "GROUP_SECONDS", 0.1)
    stored_journal = store.journal(new_run().id)
    await stored_journal.append(make_entry(0))
    groups = note_groups(store, monkeypatch)
    await asyncio.gather(*[stored_journal.append(make_entry(number)) for number in range(1, 10)])
    assert groups == [4, 4, 1]


async def test_commits_wait_for_more(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "GROUP_SECONDS", 0.3)
    stored_journal = store.journal(new_run().id)
    await stored_journal.append(make_entry(0))
    groups = note_groups(store, monkeypatch)
    first_task = asyncio.create_task(stored_journal.append(make_entry(1)))
    await asyncio.sleep(0.05)  # within the time between two commits
    await asyncio.gather(first_task, stored_journal.append(make_entry(2)))
    assert groups == [2]


def known(store: Store) -> int:
    return len(store.writer._known)


def test_texts_are_written_once(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    run = new_run()
    append_all(store, run.id, make_entry(1), make_entry(2))
    # A schema, the system's message, the beginning of the question, and two numbers.
    assert count(store, "texts") == known(store) == 5
    packed: list[bytes] = []
    pack = writer.pack
    monkeypatch.setattr(writer, "pack", lambda body: packed.append(body) or pack(body))
    append_all(store, run.id, make_entry(3))
    assert packed == [b"3"]
    assert known(store) == 6


def test_known_texts_are_bounded(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "KNOWN_TEXTS", 5)
    run = new_run()
    append_all(store, run.id, make_entry(1), make_entry(2))
    assert known(store) == 5
    append_all(store, run.id, make_entry(3))  # 6 texts: one too many at the next call
    append_all(store, run.id, make_entry(4))
    assert known(store) == 1
    append_all(store, run.id, make_entry(5))
    assert count(store, "texts") == 8


def test_swept_texts_are_written_again(store: Store, new_run: NewRun, make_entry: MakeEntry):
    first_run, second_run = new_run(), new_run("second")
    append_all(store, first_run.id, make_entry(1))
    store.delete_run(first_run.id)
    assert count(store, "texts") == 0
    append_all(store, second_run.id, make_entry(1))
    (call,) = store.calls(second_run.id)
    assert store.read_request(call) == make_entry(1).request


async def test_a_bad_row_leaves_reuses(
    store: Store, new_run: NewRun, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "GROUP_SECONDS", 0.2)
    first_run, second_run = new_run(), new_run("second")
    await store.journal(first_run.id).append(make_entry(1))
    stored_journal = store.journal(second_run.id)
    assert await stored_journal.find(make_entry(1).key)
    bad = stored_journal.append(make_entry(2, prompt_tokens=2**70))
    outcomes = await asyncio.gather(
        bad, stored_journal.append(make_entry(3)), return_exceptions=True
    )
    assert "a call cannot be kept" in str(outcomes[0])
    assert outcomes[1] is None
    await stored_journal.append(make_entry(4))  # after the rest of the group
    assert count(store, "reuses") == 1


def test_changes_raise_in_their_caller(store: Store, new_run: NewRun):
    run = new_run()

    def fail(_connection: object, *, reason: str) -> None:
        raise StoreError(reason)

    with pytest.raises(StoreError, match="odd"):
        store.writer.run(run.id, fail, reason="odd")
    assert store.writer.run(None, lambda _connection, value: value, 7) == 7


# Leases


def beat_of(store: Store) -> float | None:
    query = text("SELECT lease_heartbeat FROM runs")
    return store.read(lambda connection: connection.execute(query).scalar_one())


def beat_until(store: Store, condition: Callable[[], bool]) -> None:
    """Write until a heartbeat after it has had an effect."""
    for _ in range(200):
        store.writer.run(None, lambda _connection: None)
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("no heartbeat has come")


def test_an_owed_lease_is_released(store: Store, new_run: NewRun, monkeypatch: pytest.MonkeyPatch):
    run = new_run()
    change = store.database.change

    def fail(*_arguments: object) -> None:
        raise StoreError("away")

    # The lease is given back within the block, so that its end finds none.
    with suppress(KeyError), store.lease(run.id):
        monkeypatch.setattr(store.database, "change", fail)
        with pytest.raises(StoreError, match="away"):
            store.writer.give_lease_back(run.id)
        assert beat_of(store) is not None
        assert store.writer.leases == {}
        monkeypatch.setattr(store.database, "change", change)
        monkeypatch.setattr(lease, "BEAT_SECONDS", 0.0)
        beat_until(store, lambda: beat_of(store) is None)


def test_beats_renew_leases(store: Store, new_run: NewRun, monkeypatch: pytest.MonkeyPatch):
    run = new_run()
    with store.lease(run.id):
        execute(store, "UPDATE runs SET lease_heartbeat = 1.0")
        store.writer.run(None, lambda _connection: None)
        time.sleep(0.05)
        assert beat_of(store) == 1.0  # no beat is due yet
        monkeypatch.setattr(lease, "BEAT_SECONDS", 0.0)
        beat_until(store, lambda: (beat_of(store) or 0.0) > 1.0)
        store.writer.check_lease(run.id)
    assert beat_of(store) is None


def test_beats_without_leases_write_nothing(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.0)
    changes: list[object] = []
    change = store.database.change

    def note(run_id: str | None, wanted: Callable[..., object], *arguments: object):
        changes.append(wanted)
        return change(run_id, wanted, *arguments)

    def do_nothing(_connection: object) -> None:
        return None

    monkeypatch.setattr(store.database, "change", note)
    for _ in range(3):
        store.writer.run(None, do_nothing)
    store.writer.close()  # after the last beat
    assert changes == [do_nothing] * 3
