"""One process at a time works on a run; a dead one keeps nobody out."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from textevolve.errors import BusyError, StoreError
from textevolve.evaluation import Case
from textevolve.llm.model import JournalEntry, Response
from textevolve.settings import StoreLocation
from textevolve.store import lease
from textevolve.store.journal import StoreJournal
from textevolve.store.records import StoredRecord
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

NewRun = Callable[..., RunRecord]


def test_a_run_is_running_while_it_is_held(store: Store, new_run: NewRun) -> None:
    run = new_run()
    with store.lease(run.id):
        assert store.get_run(run.id).status == "running"
        with (
            pytest.raises(StoreError, match=f"is run by process {os.getpid()} on"),
            store.lease(run.id),
        ):
            pass
        assert store.get_run(run.id).status == "running"
    assert store.get_run(run.id).status == "interrupted"
    with store.lease(run.id):
        store.finish_run(run.id, "finished")
    assert store.get_run(run.id).status == "finished"


@pytest.mark.parametrize(("age", "held"), [(lease.STALE_SECONDS - 30, True), (120.0, False)])
def test_a_holder_elsewhere_is_judged_by_its_heartbeat(
    store: Store, new_run: NewRun, age: float, held: bool
) -> None:
    run = new_run()
    ask(
        store,
        "UPDATE runs SET status = 'running', lease_token = 't', lease_host = 'elsewhere', "
        "lease_pid = 1, lease_process = 'other-boot pid:[1] 5', lease_heartbeat = :beat",
        beat=time.time() - age,
    )
    assert store.get_run(run.id).status == ("running" if held else "interrupted")
    if held:
        with pytest.raises(StoreError, match="process 1 on elsewhere"), store.lease(run.id):
            pass
    else:
        with store.lease(run.id):
            pass


def test_a_reused_process_id_is_not_the_holder(store: Store) -> None:
    mine = lease.process_identity(os.getpid())
    if mine is None:
        pytest.skip("this system has no /proc")
    boot, namespace, start = mine.split()
    now = time.time()
    assert is_held(store, "here", os.getpid(), mine, now)
    assert not is_held(store, "here", os.getpid(), f"{boot} {namespace} {int(start) + 1}", now)


SCORED = StoredRecord("a", 0, "a", 0.5, "scored", "", b"{}")
SKIPPED = StoredRecord("b", 1, "b", None, "skipped", "the limit is reached", b"{}")
WRITES: dict[str, Callable[[Store, str], None]] = {
    "keep": lambda store, run: store.keep_records(run, [SCORED]),
    "append": lambda store, run: store.append(run, Case("?", ("1", "2"), "a"), SCORED),
}
LATE = """
UPDATE runs SET lease_host = 'elsewhere', lease_process = 'other-boot pid:[1] 5',
lease_heartbeat = 0
"""


def take_over(other: Store, run_id: str, stack: ExitStack, fate: str) -> str:
    """What another process makes of a run that it has taken; what is said of that."""
    with ExitStack() as own_exit_stack:
        own_exit_stack.enter_context(other.lease(run_id))
        if fate == "held":
            stack.push(own_exit_stack.pop_all())
            return f"process {os.getpid()} on {socket.gethostname()} works on it now"
        other.finish_run(run_id, "finished")
    return "was taken over and finished by another process"


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fate", ["held", "finished", "removed"])
def test_who_was_late_writes_nothing_into_a_run_that_another_took(
    location: StoreLocation, store: Store, new_run: NewRun, write: str, fate: str
) -> None:
    """A process that wakes up after its minute finds the token of the other, or none."""
    run = new_run()
    with open_store(location) as other, ExitStack() as stack, store.lease(run.id):
        store.keep_records(run.id, [SCORED])
        ask(store, LATE)
        if fate == "removed":
            other.delete_run(run.id)
        answer = "was removed" if fate == "removed" else take_over(other, run.id, stack, fate)
        before = other.list_runs(), other.read_changes(run.id, 0, 10)
        with pytest.raises(BusyError, match=f"run {run.id}: {answer}"):
            WRITES[write](store, run.id)
        assert (other.list_runs(), other.read_changes(run.id, 0, 10)) == before


def test_a_heartbeat_finds_that_a_run_is_lost(
    location: StoreLocation,
    monkeypatch: pytest.MonkeyPatch,
    make_entry: Callable[..., JournalEntry],
) -> None:
    """Then nothing more is asked for it; an answer that was paid for is kept all the same."""
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.02)

    def find(journal: StoreJournal, number: int) -> Response | None:
        return asyncio.run(journal.find(make_entry(number).key))

    with open_store(location) as store:
        lost, own_run = (store.create_run({}, name) for name in ("lost", "own"))
        with store.lease(lost.id), store.lease(own_run.id):
            journal = store.journal(lost.id)
            assert find(journal, 1) is None
            taken_text = (
                "UPDATE runs SET lease_token = 'theirs', lease_host = 'elsewhere', lease_pid = 7"
            )
            ask(store, f"{taken_text} WHERE id = '{lost.id}'")

            def is_refused() -> bool:
                try:
                    return find(journal, 1) is not None
                except BusyError as error:
                    return f"{lost.id}: process 7 on elsewhere works on it" in str(error)

            wait_until(is_refused)
            asyncio.run(journal.append(make_entry(1)))
            assert find(store.journal(own_run.id), 1) is not None
            ask(store, f"UPDATE runs SET lease_host = NULL WHERE id = '{lost.id}'")
        with store.lease(lost.id):  # it may be taken again
            assert find(journal, 1) is not None


def test_a_finished_run_stays_so_while_it_is_repeated(store: Store, new_run: NewRun) -> None:
    run = new_run()
    with store.lease(run.id):
        store.keep_records(run.id, [SCORED])
        store.finish_run(run.id, "finished")
    with store.lease(run.id):
        assert store.get_run(run.id).status == "finished"
        with pytest.raises(BusyError, match="is run by"), store.lease(run.id):
            pass
        with pytest.raises(BusyError, match="is run by"):
            store.delete_run(run.id)
        store.keep_records(run.id, [SCORED])
    assert store.get_run(run.id).status == "finished"
    with store.lease(run.id):
        store.keep_records(run.id, [SKIPPED])
        assert store.get_run(run.id).status == "running"
    assert store.get_run(run.id).status == "interrupted"


def is_held(store: Store, *holder: Any) -> bool:
    names = ("lease_host", "lease_pid", "lease_process", "lease_heartbeat")
    row = SimpleNamespace(**dict(zip(names, holder, strict=True)))
    return store.read(lambda connection: lease.is_held(connection, row))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def ask(store: Store, statement: str, **values: float) -> list[tuple[Any, ...]]:
    """Without any code of ours."""

    def run(connection: Connection) -> list[tuple[Any, ...]]:
        done = connection.execute(text(statement), values)
        return [tuple(row) for row in done] if done.returns_rows else []

    if statement.startswith("SELECT"):
        return store.read(run)
    return store.writer.run(None, run)
