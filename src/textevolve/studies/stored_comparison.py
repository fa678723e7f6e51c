"""Two runs of the store side by side, and what their kind has to tell of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textevolve.report.blocks import Report
from textevolve.studies.baseline import refuse_other_cases
from textevolve.studies.comparison import RunComparison, compare_runs, report_comparison
from textevolve.studies.keeping import read_records
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import read_spec, read_stored
from textevolve.studies.study import Beside, Row

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


@dataclass(frozen=True, slots=True)
class StoredComparison:
    found: RunComparison
    beside: Beside
    report: Report


def compare_stored(store: Store, one: RunRecord, other: RunRecord) -> StoredComparison:
    """
    Raises:
        InputError: they are not of the same cases, or share none with a score.
    """
    refuse_other_cases(store, one, other)
    found = compare_runs(_read_rows(store, one), _read_rows(store, other))
    names = one.name or one.id, other.name or other.id
    beside = _compare_kind(store, one, other, names)
    made = report_comparison(found, names)
    return StoredComparison(found, beside, replace(made, blocks=[*made.blocks, *beside.blocks]))


def _compare_kind(store: Store, one: RunRecord, other: RunRecord, names: tuple[str, str]) -> Beside:
    """What the kind of both runs has to tell of the two, where they are of one kind."""
    stored = [read_stored(run) for run in (one, other)]
    study = find_study(stored[0].kind)
    if stored[0].kind != stored[1].kind or study.compare is None:
        return Beside((), {})
    specs = [read_spec(study, one) for one in stored]
    first, second = (
        study.summarise(spec, read_records(store, run)())
        for spec, run in zip(specs, (one, other), strict=True)
    )
    return study.compare(specs[0], first, second, names)


def _read_rows(store: Store, run: RunRecord) -> Iterator[Row]:
    kept = store.iterate_records(run.id)
    return (Row(one.key, one.position, one.case, one.score, variant=one.variant) for one in kept)
