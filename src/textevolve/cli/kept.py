"""What is done with a study's run from the store: shown, gone on with, written, compared."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from textevolve.cli.results import check_outputs, print_json, write_line, write_outputs
from textevolve.cli.study import RunOptions, execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table
from textevolve.report.terminal import open_console, print_report
from textevolve.settings import Settings
from textevolve.store.records import Found, Kept, Order
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies import driver
from textevolve.studies.comparison import compare_runs, report_comparison
from textevolve.studies.kinds import find_study
from textevolve.studies.study import Row
from textevolve.wiring import Limits

if TYPE_CHECKING:
    pass

ORDERS = ("score", "-score")
SHOWN = 200


def is_study(run: RunRecord) -> bool:
    """Whether a run was made as a study, and not by a version that had none."""
    return "version" in run.spec


@dataclass(frozen=True)
class Wanted:
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
    def order(self) -> Order:
        return cast(Order, self.sort or "position")


def show(
    store: Store, run: RunRecord, settings: Settings, wanted: Wanted, *, as_json: bool
) -> None:
    """The report of a run, or those of its records that are wanted."""
    study = find_study(driver.read_stored(run).kind)
    sync.run(driver.restore_records(store, run, settings))
    if as_json and (study.streams or not wanted.all):
        for record in driver.read_records(store, run, wanted.found, wanted.order)():
            print(write_line(study, record))
        return
    records = driver.read_records(store, run)
    if as_json:
        print_json(study, run, records)
    elif wanted.all:
        print_report(driver.make_report(study, store, run, records), open_console())
    else:
        print_report(_list(store, run, wanted), open_console())


def _list(store: Store, run: RunRecord, wanted: Wanted) -> Report:
    """The records that are wanted, a line each."""
    columns = (Column("case"), Column("score", "score", 3), Column("state"), Column("reason"))
    rows: list[tuple[str, float | None, str, str]] = []
    left = 0
    for kept in store.iterate_records(run.id, wanted.found, wanted.order):
        if len(rows) == SHOWN:
            left += 1
            continue
        name = kept.case or kept.key
        rows.append((name, kept.score, kept.status, wording.shorten(kept.reason, 200)))
    note = f"{wording.count(left, 'more record')} left out; see all with --json" if left else ""
    found = wording.count(len(rows) + left, "record")
    return Report(f"Run {run.id}", found, [Table("Records", columns, rows, note=note)])


def resume(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    outputs: list[str] | None,
    *,
    as_json: bool,
) -> int:
    """Do what is missing of a run; the exit code."""
    check_outputs(find_study(driver.read_stored(run).kind), outputs or ())
    wanted = RunOptions(output=outputs, as_json=as_json)
    return execute(store, run, settings, driver.Launch(limits=limits), wanted)


def export(store: Store, run: RunRecord, settings: Settings, output: str) -> None:
    """Write a run to a file, by its ending."""
    study = find_study(driver.read_stored(run).kind)
    check_outputs(study, [output])
    sync.run(driver.restore_records(store, run, settings))
    write_outputs(study, store, run, driver.read_records(store, run), [output])


def compare(
    store: Store, runs: tuple[RunRecord, RunRecord], settings: Settings, *, as_json: bool
) -> None:
    """Two runs side by side, by the scores of their cases.

    Raises:
        InputError: they are over different cases.
    """
    for run in runs:
        driver.read_stored(run)
        sync.run(driver.restore_records(store, run, settings))
    _refuse_other_cases(store, *runs)
    first, second = ([_row(kept) for kept in store.iterate_records(run.id)] for run in runs)
    found = compare_runs(first, second)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        names = cast("tuple[str, str]", tuple(run.name or run.id for run in runs))
        print_report(report_comparison(found, names), open_console())


def _row(kept: Kept) -> Row:
    return Row(kept.key, kept.position, kept.case, kept.score)


def _refuse_other_cases(store: Store, one: RunRecord, other: RunRecord) -> None:
    inputs = {case.id: case.input for case in store.iterate_cases(one.id)}
    for case in store.iterate_cases(other.id):
        if inputs.get(case.id, case.input) != case.input:
            raise InputError(
                f"runs {one.id} and {other.id}: case '{case.id}' is not the same in both, so their"
                " scores cannot be compared"
            )
