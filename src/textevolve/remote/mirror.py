"""A store for the time of a command, which holds what is known here of runs at a server: so they
are shown, summarised and written by what does that for runs of this machine.

It has records and no journal, so nothing can be made anew from it, or asked on.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from textevolve.evaluation import Usage
from textevolve.remote.wire import RunDetail, WireRecord, WireUsage
from textevolve.store.records import Kept
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, RunStatus, RunTotals
from textevolve.studies.stored import VERSION

STATUSES: dict[str, RunStatus] = {
    "finished": "finished",
    "failed": "failed",
    "running": "running",
    "queued": "running",
}
"""As runs of this machine have them; all others are such that can be gone on with."""


class MirrorStore(Store):
    """`place`: the address of the server.

    Raises:
        StoreError: no file can be written for it.
    """

    has_journal = False

    def __init__(self, address: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="textevolve-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name) / "mirror.db")
        self._address = address
        self._totals = dict[str, RunTotals]()

    @property
    def place(self) -> str:
        return self._address

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def run_totals(self, run_id: str) -> RunTotals:
        return self._totals[run_id]

    def take_run(self, told: RunDetail) -> RunRecord:
        """Note a run of the server, or what is new of it."""
        run = record_of(told, self._address)
        self._totals[told.id] = totals_of(told)
        self.copy_run(run)
        return run


def record_of(told: RunDetail, address: str) -> RunRecord:
    """A run of a server, as a store has runs: its source is the server."""
    spec: dict[str, Any] = {"version": VERSION, "kind": told.kind, "spec": dict(told.spec)}
    spec |= {"model": told.model, "why": told.why, "prices": list(told.prices)}
    spec["answers"] = dict(told.answers)
    spec["described"] = dict(told.described)
    return RunRecord(
        id=told.id,
        name=told.name,
        fingerprint=f"{address}/{told.id}",
        created=told.created,
        updated=told.updated,
        status=STATUSES.get(told.status, "interrupted"),
        source=address,
        n_cases=told.cases,
        spec=spec,
    )


def told_usage(told: WireUsage) -> Usage:
    return Usage(**told.model_dump())


def totals_of(told: RunDetail) -> RunTotals:
    return RunTotals(told_usage(told.spent), told_usage(told.reused), told.failed_calls)


def kept_of(told: WireRecord) -> Kept:
    """A record as the store keeps it."""
    fields = told.model_dump(exclude={"record"})
    return Kept(**fields, body=json.dumps(told.record).encode())
