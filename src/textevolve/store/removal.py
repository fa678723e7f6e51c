"""Removing a run: its cases, the calls that no other run uses, and the texts that nothing uses."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.store import lease
from textevolve.store.runs import Freed

_REMOVE_CALLS = """
DELETE FROM calls WHERE id IN (
    SELECT id FROM calls WHERE run_id = :run
    UNION SELECT call_id FROM reuses WHERE run_id = :run
)
AND NOT EXISTS (SELECT 1 FROM reuses WHERE call_id = calls.id AND run_id <> :run)
AND (run_id = :run OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = calls.run_id))
"""

_IMAGES = "CAST(substr(body, 2, 5) AS INTEGER)"
"""How many images a case with images has: see `documents.IMAGES`."""

_REMOVE_TEXTS = f"""
WITH RECURSIVE place(i) AS (
    SELECT 0 UNION ALL SELECT i + 1 FROM place
    WHERE i + 1 < max(
        (SELECT coalesce(max(length(parts)), 0) / 32 FROM calls),
        (SELECT coalesce(max({_IMAGES}), 0) FROM cases WHERE substr(body, 1, 1) = x'01')
    )
)
DELETE FROM texts WHERE hash NOT IN (
    SELECT substr(parts, 1 + 32 * i, 32) FROM calls JOIN place ON 32 * i < length(parts)
    UNION ALL
    SELECT substr(body, 7 + 32 * i, 32) FROM cases JOIN place ON i < {_IMAGES}
    WHERE substr(body, 1, 1) = x'01'
)
"""


def delete_run(connection: Connection, run_id: str) -> Freed:
    """Remove the run. Raises StoreError while a living process works on it."""
    row = connection.exec_driver_sql(
        "SELECT lease_host, lease_pid, lease_process, lease_heartbeat FROM runs WHERE id = ?",
        (run_id,),
    ).one_or_none()
    if row is None:
        raise StoreError(f"run {run_id}: is not in this store; see `textevolve runs list`")
    if lease.is_held(*row):
        raise StoreError(f"run {run_id}: is in work by process {row[1]} on {row[0]}; stop it first")
    _refuse_paid(connection, run_id)
    before = _size(connection)
    images = connection.exec_driver_sql(
        "SELECT 1 FROM cases WHERE run_id = ? AND substr(body, 1, 1) = x'01' LIMIT 1", (run_id,)
    ).one_or_none()
    cases = _change(connection, "DELETE FROM cases WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM records WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM served_runs WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM batches WHERE run_id = :run", run_id)
    _change(connection, "DELETE FROM runs WHERE id = :run", run_id)
    calls = _change(connection, _REMOVE_CALLS, run_id)
    _change(connection, "DELETE FROM reuses WHERE run_id = :run", run_id)
    texts = 0
    if calls or images:
        connection.exec_driver_sql(_REMOVE_TEXTS)
        texts = connection.exec_driver_sql("SELECT changes()").scalar_one()
        connection.exec_driver_sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'")
    return Freed(cases, calls, texts, before - _size(connection))


def _refuse_paid(connection: Connection, run_id: str) -> None:
    """A batch job that goes on at its provider is paid for, and nobody would know of it."""
    query = "SELECT remote_id FROM batches WHERE run_id = ? AND state = 'submitted'"
    job = connection.exec_driver_sql(query, (run_id,)).scalar()
    if job is not None:
        raise StoreError(
            f"run {run_id}: batch job {job} is still open at its provider; end it first with:"
            f" textevolve runs cancel-batch {run_id}"
        )


def _change(connection: Connection, statement: str, run_id: str) -> int:
    return connection.exec_driver_sql(statement, {"run": run_id}).rowcount


def _size(connection: Connection) -> int:
    """Bytes of the pages in use."""
    pages, free, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
