"""Who works on a run: one process at a time, and a dead one does not keep the others out.

On this machine a holder is asked for by its process id and start time, so that a run can be taken
up at once after a kill. Elsewhere (another host, another container) its heartbeat has to speak. A
process that slept for longer finds out at its next heartbeat or write of results that it has lost
the run, and ends; answers that it paid for are kept all the same.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import case, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.store.dialects import database_time
from textevolve.store.tables import runs

BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0


def take(connection: Connection, run_id: str) -> str:
    """Take the run for this process and mark it as running, if it is not finished already; returns
    the token of the lease.

    Raises:
        StoreError: there is no such run, or a living process has it; names pid and host.
    """
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        raise StoreError(f"run {run_id}: is not in this store; see `textevolve runs list`")
    if is_held(connection, row.lease_host, row.lease_pid, row.lease_process, row.lease_heartbeat):
        raise StoreError(
            f"run {run_id}: is in work by process {row.lease_pid} on {row.lease_host}; "
            "wait for it or stop it first"
        )
    token, now, pid = secrets.token_hex(16), database_time(connection), os.getpid()
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            # A whole run stays one while it is repeated, whatever becomes of that.
            status=case((runs.c.status == "finished", "finished"), else_="running"),
            updated=now,
            lease_token=token,
            lease_host=socket.gethostname(),
            lease_pid=pid,
            lease_process=process_identity(pid),
            lease_heartbeat=now,
        )
    )
    return token


def release(connection: Connection, token: str) -> None:
    """Give the lease back; a run that nobody has marked as finished or failed was interrupted."""
    mine = runs.c.lease_token == token
    connection.execute(
        update(runs).where(mine, runs.c.status == "running").values(status="interrupted")
    )
    connection.execute(
        update(runs)
        .where(mine)
        .values(
            updated=database_time(connection),
            lease_token=None,
            lease_host=None,
            lease_pid=None,
            lease_process=None,
            lease_heartbeat=None,
        )
    )


def renew(connection: Connection, held: Mapping[str, str]) -> dict[str, StoreError]:
    """Tell that this process still works on its runs, `held` by their tokens. Returned: of each
    that another process has taken up since the last heartbeat, who has it."""
    beat = update(runs).where(runs.c.lease_token.in_(held.values()))
    connection.execute(beat.values(lease_heartbeat=database_time(connection)))
    lost = dict[str, StoreError]()
    for run_id, token in held.items():
        try:
            check_held(connection, run_id, token)
        except StoreError as error:
            lost[run_id] = error
    return lost


def check_held(connection: Connection, run_id: str, token: str) -> None:
    """
    Raises:
        StoreError: the run is not this process's any more, which was asleep or cut off for so long
            that another one took it up; says who has it now.
    """
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is not None and row.lease_token == token:
        return
    said = "was deleted"
    if row is not None and row.lease_token is None:
        said = f"was taken up by another process, and is {row.status} now"
    elif row is not None:
        said = f"was taken up by process {row.lease_pid} on {row.lease_host}, which works on it now"
    raise StoreError(
        f"run {run_id}: {said}: nothing was heard of this process for over"
        f" {STALE_SECONDS:.0f} seconds. Every answer so far is kept"
    )


def is_held(
    connection: Connection,
    host: str | None,
    pid: int | None,
    process: str | None,
    heartbeat: float | None,
) -> bool:
    """Whether the process that took the lease still lives, as far as can be seen from here: by its
    heartbeat where it is on another machine, in the database's time."""
    if host is None or pid is None:
        return False
    seen = see_process(host, pid, process)
    if seen is not None:
        return seen
    return database_time(connection) - (heartbeat or 0.0) < STALE_SECONDS


def see_process(host: str, pid: int, process: str | None) -> bool | None:
    """Whether a process lives; None where that cannot be seen from here."""
    if process is not None and _same_machine(process, process_identity(os.getpid())):
        return process_identity(pid) == process
    if process is None and host == socket.gethostname() and not _exists(pid):
        return False
    return None


def process_identity(pid: int) -> str | None:
    """Boot, process namespace and start time: no two processes share it. None: gone, or unknown."""
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


def _same_machine(process: str, other: str | None) -> bool:
    return other is not None and process.split()[:2] == other.split()[:2]


def _exists(pid: int) -> bool:
    """Where there is no /proc; True where that cannot be asked either (Windows)."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
