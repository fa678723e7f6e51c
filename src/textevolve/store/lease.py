"""Leases of runs: only one process at a time works on a run, and a dead process does not block it.

A lease is a token in the run's row. A process without a recent heartbeat may lose its lease, and
then cannot write any more: `require` is called in the transaction of each change. If the holder is
on this machine, it is checked by process id and start time, so a run can be resumed immediately
after a kill. For other hosts and containers the age of the heartbeat decides.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Table, exists, select, update
from sqlalchemy.engine import Connection, Row

from textevolve.errors import BusyError, StoreError
from textevolve.store.dialects import database_time
from textevolve.store.resource_rows import fetch_one, update_where
from textevolve.store.tables import records, runs
from textevolve.system import process_exists

BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
"""The interval of heartbeats, and the age from which a heartbeat is too old, both in seconds."""


def take(connection: Connection, run_id: str) -> str:
    """Take the lease of a run for this process, and mark the run as running; return the token of
    the lease. A finished run that has its records stays finished: it is only recomputed, and cannot
    lose anything.

    Raises:
        StoreError: the run does not exist. BusyError: a living process has the run; the message
            names its pid and host.
    """
    row = require_free(connection, run_id, "wait for it or stop it first")
    stored = select(exists().where(records.c.run_id == run_id))
    done = row.status == "finished" and connection.execute(stored).scalar_one()
    lease = new_lease()
    now = database_time(connection)
    values = {"status": "finished" if done else "running", "updated": now, "lease_heartbeat": now}
    update_where(connection, runs, {**values, **lease}, id=run_id)

    return lease["lease_token"]


def new_lease() -> dict[str, Any]:
    """Return the columns of a new lease of this process; its token is random."""
    pid = os.getpid()
    lease = {"lease_token": secrets.token_hex(16), "lease_host": socket.gethostname()}
    return {**lease, "lease_pid": pid, "lease_process": process_identity(pid)}


def no_lease(table: Table) -> dict[str, None]:
    """Return the columns of a row that nobody has leased."""
    return {column.name: None for column in table.c if column.name.startswith("lease_")}


def require_free(connection: Connection, run_id: str, advice: str) -> Row[Any]:
    """Check that no living process works on a run, and return its row.

    Raises:
        StoreError: the run does not exist. BusyError: a living process works on it; the message
            names its pid and host.
    """
    row = fetch_one(connection, runs, id=run_id)
    if row is None:
        raise StoreError(f"run {run_id}: is not in this store; see `textevolve runs list`")
    if is_held(connection, row):
        raise BusyError(
            f"run {row.id}: is run by process {row.lease_pid} on {row.lease_host}; {advice}"
        )

    return row


def release(connection: Connection, token: str) -> None:
    """Release a lease; a run that is not marked as finished or failed becomes interrupted."""
    update_where(connection, runs, {"status": "interrupted"}, lease_token=token, status="running")
    values = {**no_lease(runs), "updated": database_time(connection)}
    update_where(connection, runs, values, lease_token=token)


def renew(connection: Connection, tokens: Sequence[str]) -> set[str]:
    """Renew the leases of this process; return the tokens that are still valid."""
    leased = runs.c.lease_token.in_(tokens)
    connection.execute(update(runs).where(leased).values(lease_heartbeat=database_time(connection)))
    return set(connection.execute(select(runs.c.lease_token).where(leased)).scalars())


def require(connection: Connection, run_id: str, token: str) -> None:
    """Check that this process still holds the lease of a run.

    Raises:
        BusyError: another process has taken or removed the run; the message says which, if known.
    """
    row = fetch_one(connection, runs, id=run_id)
    if row is None or row.lease_token != token:
        raise BusyError(f"run {run_id}: {_describe_holder(row)}; this process stops")


def _describe_holder(row: Row[Any] | None) -> str:
    """Describe which process took a run from this one, whose heartbeat was late."""
    late = "while this process gave no sign of life"
    if row is None:
        return f"was removed {late}"
    if row.lease_token is not None:
        return (
            f"process {row.lease_pid} on {row.lease_host} works on it now, and took it over {late}"
        )

    status = "finished" if row.status == "finished" else "released"

    return f"was taken over and {status} by another process {late}"


def is_held(connection: Connection, row: Row[Any]) -> bool:
    """Check whether the process with the lease is still alive; on another machine or in another
    container, by the age of its heartbeat. False if nobody holds the lease."""
    if row.lease_host is None or row.lease_pid is None:
        return False
    alive = process_lives(row)
    if alive is not None:
        return alive
    return database_time(connection) - (row.lease_heartbeat or 0.0) < STALE_SECONDS


def process_lives(row: Row[Any]) -> bool | None:
    """Check whether the process with the lease of a row lives; None if this machine cannot tell."""
    pid = row.lease_pid
    process = row.lease_process
    this_process = process_identity(os.getpid())

    if (
        process is not None
        and this_process is not None
        and process.split()[:2] == this_process.split()[:2]
    ):
        return process_identity(pid) == process

    if process is None and row.lease_host == socket.gethostname() and not process_exists(pid):
        return False

    return None


def process_identity(pid: int) -> str | None:
    """Return a text that identifies a process: boot id, process namespace and start time. Return
    None if the process has ended, or if this system has no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None

    state, *fields = stat.rpartition(")")[2].split()
    # Killed, but its parent has not asked for its exit status yet.
    if state in "ZX":
        return None

    return f"{boot} {namespace} {fields[18]}"
