"""Runs and their cases: found again, paged, summed, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from textevolve.errors import InputError, StoreError
from textevolve.evaluation import Case, Usage
from textevolve.llm.model import JournalEntry
from textevolve.settings import StoreLocation
from textevolve.store import runs
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import Freed, RunRecord

MakeEntry = Callable[..., JournalEntry]
NewRun = Callable[..., RunRecord]


def test_a_run_is_found_again(store: Store, location: StoreLocation) -> None:
    spec = {"profile": {"weights": {"accuracy": 1.0}}, "text": "ä\ud83d\0"}
    run = store.create_run(spec, "f", name="näme\ud83d", source="cases.jsonl")
    assert (run.spec, run.source, run.n_cases, run.status) == (
        spec,
        "cases.jsonl",
        None,
        "interrupted",
    )
    with open_store(location) as other:
        for found_run in (
            other.find_run("f"),
            other.get_run(run.id),
            other.get_run(run.id[:-1]),
            other.get_run("näme\ud83d"),
        ):
            assert found_run == run
        assert other.find_run("g") is None


def test_an_ambiguous_name_is_refused_with_the_ids(store: Store, new_run: NewRun) -> None:
    run, two = new_run("mine"), new_run("mine")
    with pytest.raises(StoreError, match="several runs have") as caught:
        store.get_run("mine")
    assert run.id in str(caught.value)
    assert two.id in str(caught.value)
    with pytest.raises(StoreError, match="several runs have"):
        store.get_run(run.id[:4])
    for missing in ("%", "nobody"):
        with pytest.raises(StoreError, match="is not in this store"):
            store.get_run(missing)
    with pytest.raises(StoreError, match="the name of the run is empty"):
        store.get_run("")


def test_settling_gives_the_fingerprint_or_the_earlier_run(store: Store, new_run: NewRun) -> None:
    first_run, second_run = new_run(), new_run()
    for run in (first_run, second_run):
        store.add_cases(run.id, [Case("x", ("y",))])
    assert store.settle_run(first_run.id, "settled").id == first_run.id
    assert store.settle_run(first_run.id, "settled").fingerprint == "settled"
    assert store.settle_run(second_run.id, "settled").id == first_run.id


def test_cases_come_back_in_order_from_anywhere(store: Store, new_run: NewRun) -> None:
    run = new_run()
    cases = [
        Case(f"input {n}", ("a", "b\ud83d\0"), f"id {n}", {"rounds": n} if n % 2 else {})
        for n in range(2 * runs.PAGE + 7)
    ]
    assert store.add_cases(run.id, iter(cases)) == len(cases)
    assert store.get_run(run.id).n_cases == len(cases)
    for start in (0, 1, runs.PAGE, len(cases) - 1, len(cases)):
        assert list(store.iterate_cases(run.id, start)) == cases[start:]


def test_cases_are_read_lazily_and_in_chunks(
    store: Store, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CHUNK", 10)
    monkeypatch.setattr(runs, "CHUNK_BYTES", 1000)
    run = new_run()
    seen: list[int] = []

    def source(size: int, count: int) -> Iterator[Case]:
        for number in range(count):
            seen.append(len(list(store.iterate_cases(run.id))))
            yield Case("x" * size, ("y",), str(number))

    store.add_cases(run.id, source(1, 35))
    assert seen == [number // 10 * 10 for number in range(35)]
    run = new_run()
    seen.clear()
    store.add_cases(run.id, source(600, 6))
    assert seen == [0, 0, 2, 2, 4, 4]


def test_cases_that_were_cut_short_start_over(store: Store, new_run: NewRun) -> None:
    run = new_run()

    def broken() -> Iterator[Case]:
        yield from (Case("old", ("y",)) for _ in range(runs.CHUNK + 1))
        raise InputError("line 1002 is not JSON")

    with pytest.raises(InputError):
        store.add_cases(run.id, broken())
    assert store.get_run(run.id).n_cases is None
    store.add_cases(run.id, [Case("new", ("y",))])
    assert [case.input for case in store.iterate_cases(run.id)] == ["new"]
    with pytest.raises(StoreError, match="has its cases already"):
        store.add_cases(run.id, [])


async def test_totals_tell_spent_from_reused(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    asking, reusing = new_run(), new_run()
    for number in range(3):
        await store.journal(asking.id).append(make_entry(number, cost=0.25, cached_tokens=4))
    await store.journal(asking.id).append(make_entry(7, error="timeout"))
    await store.journal(reusing.id).find(make_entry(1).key)
    await store.journal(reusing.id).append(make_entry(8, cost=None))
    totals = store.run_totals(asking.id)
    assert (totals.spent, totals.failed) == (Usage(3, 30, 12, 6, 0.75), 1)
    assert totals.reused == Usage()
    totals = store.run_totals(reusing.id)
    assert totals.spent == Usage(1, 10, 0, 2, None)
    assert totals.reused == Usage(1, 10, 4, 2, 0.25)
    assert store.run_totals("nobody").spent == Usage()


async def test_removal_spares_what_others_use(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    first_run, second_run, third = new_run(), new_run(), new_run()
    journals = {run.id: store.journal(run.id) for run in (first_run, second_run, third)}
    await asyncio.gather(*[journals[first_run.id].append(make_entry(n)) for n in range(10)])
    store.add_cases(first_run.id, [Case("x", ("y",))])
    for run in (second_run, third):
        assert await journals[run.id].find(make_entry(3).key)
    await journals[second_run.id].append(make_entry(20))

    # Nine questions of its own, and what tells them apart; the shared parts stay.
    freed = store.delete_run(first_run.id)
    assert freed == Freed(cases=1, calls=9, texts=9)
    assert [call.key for call in store.calls(second_run.id)] == [make_entry(n).key for n in (3, 20)]
    assert store.delete_run(second_run.id).calls == 1
    (stored_call,) = store.calls(third.id)
    assert store.read_request(stored_call) == make_entry(3).request

    # The texts that the sweep took are written again when they are needed.
    await journals[third.id].append(make_entry(5))
    assert [store.read_request(call) for call in store.calls(third.id)] == [
        make_entry(n).request for n in (3, 5)
    ]
    last = store.delete_run(third.id)
    assert (last.calls, last.texts) == (2, 5)
    assert store.list_runs() == []
    with pytest.raises(StoreError, match="is not in this store"):
        store.delete_run(third.id)


async def test_removal_of_who_reused_spares_who_asked(
    store: Store, new_run: NewRun, make_entry: MakeEntry
) -> None:
    asking, reusing = new_run(), new_run()
    await store.journal(asking.id).append(make_entry(1))
    assert await store.journal(reusing.id).find(make_entry(1).key)
    assert store.delete_run(reusing.id).calls == 0
    assert [call.key for call in store.calls(asking.id)] == [make_entry(1).key]
    assert store.delete_run(asking.id).calls == 1
