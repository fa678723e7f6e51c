"""Removing a run: its cases, the calls that no other run uses, and the texts that nothing uses."""

from __future__ import annotations

from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.errors import BusyError, StoreError
from textevolve.store import lease
from textevolve.store.dialects import IMAGES, sweep_texts, used_bytes
from textevolve.store.runs import Freed

_REMOVE_CALLS = """
DELETE FROM calls WHERE id IN (
    SELECT id FROM calls WHERE run_id = :run
    UNION SELECT call_id FROM reuses WHERE run_id = :run
)
AND NOT EXISTS (SELECT 1 FROM reuses WHERE call_id = calls.id AND run_id <> :run)
AND (run_id = :run OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = calls.run_id))
"""


def delete_run(connection: Connection, run_id: str) -> Freed:
    """Remove the run. Raises BusyError while a living process works on it."""
    this = {"run": run_id}
    query = "SELECT lease_host, lease_pid, lease_process, lease_heartbeat FROM runs WHERE id = :run"
    row = connection.execute(sql(query), this).one_or_none()
    if row is None:
        raise StoreError(f"run {run_id}: is not in this store; see `textevolve runs list`")
    if lease.is_held(connection, *row):
        raise BusyError(f"run {run_id}: is in work by process {row[1]} on {row[0]}; stop it first")
    _refuse_paid(connection, run_id)
    before = used_bytes(connection)
    query = "SELECT 1 FROM cases WHERE run_id = :run AND substr(body, 1, 1) = :mark LIMIT 1"
    images = connection.execute(sql(query), {**this, "mark": IMAGES}).one_or_none()
    cases = _change(connection, "DELETE FROM cases WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM records WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM served_runs WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM batches WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM runs WHERE id = :run", run_id)
    calls = _change(connection, _REMOVE_CALLS, run_id)
    _change(connection, "DELETE FROM reuses WHERE run_id = :run", run_id)
    texts = 0
    if calls or images:
        texts = sweep_texts(connection)
        connection.exec_driver_sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'")
    return Freed(cases, calls, texts, before - used_bytes(connection))


def _refuse_paid(connection: Connection, run_id: str) -> None:
    """A batch job that goes on at its provider is paid for, and nobody would know of it."""
    query = "SELECT remote_id FROM batches WHERE run_id = :run AND state = 'submitted'"
    job = connection.execute(sql(query), {"run": run_id}).scalar()
    if job is not None:
        raise BusyError(
            f"run {run_id}: batch job {job} is still open at its provider; end it first with:"
            f" textevolve runs cancel-batch {run_id}"
        )


def _change(connection: Connection, statement: str, run_id: str) -> int:
    return connection.execute(sql(statement), {"run": run_id}).rowcount
