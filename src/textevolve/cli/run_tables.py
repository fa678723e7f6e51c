"""The tables of `textevolve runs`: a store's runs, and a run's records as they are asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table
from textevolve.store.records import Found, Kept, RecordOrder
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, RunTotals
from textevolve.studies.study import Row

ORDERS = ("score", "-score")
SHOWN = 200


def run_data(run: RunRecord, totals: RunTotals) -> dict[str, object]:
    """A run as JSON-ready data."""
    return {
        "id": run.id,
        "name": run.name,
        "kind": _kind(run),
        "status": run.status,
        "created": run.created,
        "updated": run.updated,
        "source": run.source,
        "cases": run.n_cases,
        "model": run.spec.get("model"),
        "calls": totals.spent.calls,
        "failed_calls": totals.failed,
        "reused_calls": totals.reused.calls,
        "tokens": totals.spent.tokens,
        "cost": totals.spent.cost,
        "cached_tokens": totals.spent.cached_tokens,
        "saved_by_caching": totals.spent.saved,
    }


def _kind(run: RunRecord) -> str:
    return str(run.spec.get("kind", "evaluate"))


def report_runs(rows: Sequence[tuple[RunRecord, RunTotals]]) -> Report:
    """The runs that a store keeps, with what they have used."""
    columns = (
        Column("run"),
        Column("begun"),
        Column("state"),
        Column("kind"),
        Column("cases", "count"),
        Column("calls", "count"),
        Column("tokens", "count"),
        Column("cost"),
        Column("name"),
        Column("model"),
    )
    cells = [
        (
            run.id,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created)),
            run.status,
            _kind(run),
            run.n_cases,
            totals.spent.calls,
            totals.spent.tokens,
            None if totals.spent.cost is None else wording.money(totals.spent.cost),
            wording.shorten(run.name or run.source, 40),
            wording.shorten(str(run.spec.get("model", "")), 40),
        )
        for run, totals in rows
    ]
    return Report("Runs", "", [Table("", columns, cells)])


@dataclass(frozen=True)
class WantedFormat:
    """Which records are asked for, and in which order."""

    failed: bool = False
    below: float | None = None
    sort: str | None = None

    def __post_init__(self) -> None:
        if self.sort is not None and self.sort not in ORDERS:
            raise InputError(f"--sort: give {' or '.join(ORDERS)}, not '{self.sort}'")

    @property
    def all(self) -> bool:
        return not self.failed and self.below is None and self.sort is None

    @property
    def found(self) -> Found:
        return Found(("failed", "skipped") if self.failed else (), self.below)

    @property
    def order(self) -> RecordOrder:
        return cast(RecordOrder, self.sort or "position")


def list_records(store: Store, run: RunRecord, wanted: WantedFormat) -> Report:
    """The records that are wanted, a line each."""
    columns = (Column("record"), Column("score", "score", 3), Column("state"), Column("reason"))
    rows: list[tuple[str, float | None, str, str]] = []
    left = 0
    for kept in store.iterate_records(run.id, wanted.found, wanted.order):
        if len(rows) == SHOWN:
            left += 1
            continue
        rows.append((row_of(kept).name, kept.score, kept.status, wording.shorten(kept.reason, 200)))
    note = f"{wording.count(left, 'more record')} left out; see all with --json" if left else ""
    found = wording.count(len(rows) + left, "record")
    return Report(f"Run {run.id}", found, [Table("Records", columns, rows, note=note)])


def row_of(kept: Kept) -> Row:
    return Row(kept.key, kept.position, kept.case, kept.score)
