"""One process at a time works on a run; a dead one keeps nobody out."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from subprocess import Popen
from typing import Any

import pytest
from postgres_server import address_of
from sqlalchemy import text
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.llm.journal import JournalEntry
from textevolve.settings import StoreLocation
from textevolve.store import RunRecord, Store, lease, open_store
from textevolve.store.records import Kept

NewRun = Callable[..., RunRecord]
Python = Callable[..., Popen[str]]

HOLD = """
import sys
from textevolve.store import open_store
with open_store(sys.argv[1]) as store, store.lease(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_is_running_while_it_is_held(store: Store, new_run: NewRun) -> None:
    run = new_run()
    with store.lease(run.id):
        assert store.get_run(run.id).status == "running"
        with (
            pytest.raises(StoreError, match=f"in work by process {os.getpid()} on"),
            store.lease(run.id),
        ):
            pass
        assert store.get_run(run.id).status == "running"
    assert store.get_run(run.id).status == "interrupted"
    with store.lease(run.id):
        store.finish_run(run.id, "finished")
    assert store.get_run(run.id).status == "finished"


def test_an_error_passes_through_and_frees_the_run(store: Store, new_run: NewRun) -> None:
    run = new_run()
    with pytest.raises(ZeroDivisionError), store.lease(run.id):
        raise ZeroDivisionError
    assert store.get_run(run.id).status == "interrupted"
    with store.lease(run.id):
        pass


def test_a_missing_run_cannot_be_held(store: Store) -> None:
    with pytest.raises(StoreError, match="is not in this store"), store.lease("nobody"):
        pass


@pytest.mark.slow
def test_another_process_is_named_and_a_killed_one_is_replaced(
    store: Store, location: StoreLocation, new_run: NewRun, python: Python
) -> None:
    run = new_run()
    holder = python(HOLD, address_of(location), run.id)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert store.get_run(run.id).status == "running"
    named = f"in work by process {holder.pid} on {socket.gethostname()}"
    with pytest.raises(StoreError, match=named), store.lease(run.id):
        pass
    with pytest.raises(StoreError, match=named):
        store.delete_run(run.id)
    other = new_run()
    with store.lease(other.id):  # another run of the same store is free
        pass

    holder.kill()
    wait_until(lambda: store.get_run(run.id).status == "interrupted")  # not yet reaped: a zombie
    with store.lease(run.id):
        assert store.get_run(run.id).status == "running"


def test_a_process_that_ends_well_gives_its_lease_back(
    location: StoreLocation, store: Store, new_run: NewRun, python: Python
) -> None:
    run = new_run()
    holder = python(HOLD, address_of(location), run.id)
    _, errors = holder.communicate("go on\n")
    assert errors == ""
    (row,) = ask(store, "SELECT status, lease_token, lease_pid FROM runs")
    assert row == ("interrupted", None, None)


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


def test_without_proc_a_missing_process_is_dead(store: Store, python: Python) -> None:
    gone = python("")
    gone.communicate()
    assert not is_held(store, socket.gethostname(), gone.pid, None, time.time())
    assert is_held(store, socket.gethostname(), os.getpid(), None, time.time())


def test_the_heartbeat_is_renewed(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.02)
    with open_store(location) as store:
        run = store.create_run({}, "f")
        with store.lease(run.id):
            ask(store, "UPDATE runs SET lease_heartbeat = 0")
            wait_until(lambda: ask(store, "SELECT lease_heartbeat FROM runs")[0][0] > 0)


def kept(key: str) -> Kept:
    return Kept(key=key, position=0, case="c", score=None, status="", reason="", body=b"{}")


def move_elsewhere(store: Store, run: RunRecord) -> None:
    """As if the holder were on another machine and had not been heard of for a while."""
    ask(
        store,
        "UPDATE runs SET lease_host = 'elsewhere', lease_process = 'other-boot pid:[1] 5',"
        " lease_heartbeat = :beat WHERE id = :id",
        beat=time.time() - 2 * lease.STALE_SECONDS,
        id=run.id,
    )


@pytest.mark.parametrize("ended", [False, True])
def test_who_slept_too_long_changes_nothing_of_a_run_that_another_has(
    store: Store, location: StoreLocation, new_run: NewRun, ended: bool
) -> None:
    run, other = new_run(), new_run()
    with open_store(location) as awake, store.lease(run.id), store.lease(other.id):
        store.keep_records(run.id, [kept("before")])
        move_elsewhere(store, run)
        with ExitStack() as taken:
            taken.enter_context(awake.lease(run.id))
            awake.keep_records(run.id, [kept("theirs")])
            awake.finish_run(run.id, "finished")
            if ended:
                taken.close()
            said = "and is finished now" if ended else f"by process {os.getpid()} on"
            with pytest.raises(StoreError, match=f"{said}.*Every answer so far is kept"):
                store.keep_records(run.id, [kept("mine")])
            with pytest.raises(StoreError, match=said):
                store.finish_run(run.id, "interrupted")
            store.keep_records(other.id, [kept("mine")])  # what it still has goes on
            assert {one.key for one in store.iterate_records(run.id)} == {"before", "theirs"}
            assert store.get_run(run.id).status == "finished"
            if not ended:
                with pytest.raises(StoreError, match="is in work"), store.lease(run.id):
                    pass
    assert store.get_run(run.id).status == "finished"


async def test_a_heartbeat_tells_that_the_run_is_lost_and_nothing_more_is_asked(
    store: Store,
    location: StoreLocation,
    new_run: NewRun,
    make_entry: Callable[..., JournalEntry],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, other, entry = new_run(), new_run(), make_entry(1)
    with open_store(location) as awake, store.lease(run.id):
        journal = store.journal(run.id)
        assert await journal.find(entry.key) is None
        move_elsewhere(store, run)
        with awake.lease(run.id):
            monkeypatch.setattr(lease, "BEAT_SECONDS", 0.0)
            await journal.append(entry)  # it was paid for
            store.keep_records(other.id, [kept("a write")])  # behind which a heartbeat is due
            store.keep_records(other.id, [kept("another")])
            with pytest.raises(StoreError, match="which works on it now"):
                await journal.find(entry.key)
            found = await awake.journal(run.id).find(entry.key)
            assert found is not None
    with store.lease(run.id):
        assert await store.journal(run.id).find(entry.key) is not None


def test_a_finished_run_that_is_repeated_stays_finished(
    location: StoreLocation, store: Store, new_run: NewRun, python: Python
) -> None:
    run = new_run()
    with store.lease(run.id):
        store.finish_run(run.id, "finished")
    holder = python(HOLD, address_of(location), run.id)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert store.get_run(run.id).status == "finished"
    holder.kill()
    holder.wait()
    assert store.get_run(run.id).status == "finished"


def is_held(store: Store, *holder: Any) -> bool:
    return store.look(lambda connection: lease.is_held(connection, *holder))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def ask(store: Store, statement: str, **values: float | str) -> list[tuple[Any, ...]]:
    """Without any code of ours."""

    def run(connection: Connection) -> list[tuple[Any, ...]]:
        done = connection.execute(text(statement), values)
        return [tuple(row) for row in done] if done.returns_rows else []

    if statement.startswith("SELECT"):
        return store.look(run)
    return store._writer.run(run)  # pyright: ignore[reportPrivateUsage]
