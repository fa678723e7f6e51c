"""The results at the beginning of every report and page of a run: the verdict in a sentence, the
variants with their intervals, the rows to look at first, and two outputs that differ most.

Figures come from the columns of the records in the store. The records' bodies are read only for the
few that are shown, so that a run of any size opens at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from textevolve.bench.variants import compare_variants
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluators import pass_threshold
from textevolve.report import matrices, wording
from textevolve.report.blocks import Block, MatrixRow
from textevolve.report.matrices import main_score
from textevolve.store import records
from textevolve.store.records import RecordFilter, StoredRecord
from textevolve.studies.aggregates import Aggregates, aggregate, describe_variants, draw_aggregates
from textevolve.studies.run_rows import name_entries, show_rows
from textevolve.studies.study import AnyStudy, RecordStatus, Row, StudySpec

if TYPE_CHECKING:
    from textevolve.store.repository import Store

FIRST = 5
"""The number of shown records without a score, and of those with the lowest scores."""


def read_columns(store: Store, run_id: str) -> Iterator[Row]:
    """Read the rows of a run's records, in their order, without the reasons for missing scores."""
    for record in store.read(records.read_columns, run_id):
        yield Row(
            record.key,
            record.position,
            record.case,
            record.score,
            cast(RecordStatus, record.status),
            variant=record.variant,
            passed=record.passed,
        )


def read_figures(store: Store, run_id: str) -> dict[str, Aggregates]:
    """Aggregate the records of a run by variant; their own verdicts count."""
    return aggregate(read_columns(store, run_id))


def state_verdict(spec: StudySpec, figures: Mapping[str, Aggregates]) -> str:
    """Describe the result in a sentence: which variant is best and by how much, or the pass
    rate."""
    baseline, seed = baseline_name(spec, figures), getattr(spec, "seed", 0)
    means = {name: aggregates.case_means() for name, aggregates in figures.items()}
    differences = compare_variants(means, baseline, seed=seed)
    return wording.shorten_models(describe_variants(figures, differences, baseline))


def baseline_name(spec: StudySpec, variants: Mapping[str, object]) -> str:
    """Return the variant that the others are compared with: the one that the specification names,
    or else the first."""
    return getattr(spec, "baseline", None) or next(iter(variants), "")


def find_threshold(study: AnyStudy, spec: StudySpec) -> float | None:
    """Return the score from which records pass: that of the specification, of the debate, or of the
    judge that decides; None if a metric decides, or if the judge's file is missing."""
    threshold, profile = getattr(spec, "threshold", None), getattr(spec, "profile", None)
    if isinstance(threshold, tuple):  # a limit of a number in a node's state each
        return None
    if threshold is not None:
        return threshold
    if isinstance(profile, Profile):
        return profile.threshold
    try:
        judges = study.asks(spec).judges
        by_metric = getattr(spec, "metric", None) or getattr(spec, "score_by", None)
        return pass_threshold(judges[0]) if judges and not by_metric else None
    except InputError:
        return None


def draw_results(
    study: AnyStudy,
    spec: StudySpec,
    store: Store,
    run_id: str,
    figures: Mapping[str, Aggregates],
    place: str = "",
) -> list[Block]:
    """Return the variants with their intervals, the records to look at first, and the outputs of
    the case on which the baseline and the best other variant differ most. There is nothing to draw
    for a single record. `place`: the address of the pages of cases, to which links append a case's
    number; if it is empty, links lead to rows of the matrix in the same report."""
    blocks = draw_aggregates(figures, find_threshold(study, spec))
    if not blocks:
        return []
    variants, cells = tuple(filter(None, figures)), study.rows is not None
    rows: list[MatrixRow] = []
    links: list[str] = []
    for record in _find_first(store, run_id):
        matrix_rows = show_rows(study, run_id, variants, [record])
        rows += matrix_rows if variants else [_only_best(row) for row in matrix_rows]
        links += [str(record.position + 1) if place else row.id * cells for row in matrix_rows]
    if rows:
        heads = name_entries(rows, variants)
        blocks.append(matrices.draw_first(rows, heads, links, place or "#row-"))
    if cells and len(variants) > 1:
        blocks += _draw_difference(study, spec, store, run_id, figures)
    return blocks


def _find_first(store: Store, run_id: str) -> Iterable[StoredRecord]:
    """Return the records to look at first: at most five that failed, then at most five with the
    lowest scores below 1."""
    failed = RecordFilter(statuses=("failed",))
    first_records = store.read_records(run_id, failed, limit=FIRST)
    first_records += store.read_records(run_id, RecordFilter(below=1.0), "score", limit=FIRST)
    return {record.key: record for record in first_records}.values()


def _only_best(row: MatrixRow) -> MatrixRow:
    """Return the row with its best entry alone, whose score is the record's score."""
    entries = [entry for entry in row.entries if entry is not None]
    return replace(row, entries=[max(entries, key=lambda entry: main_score(entry) or 0.0)])


def _draw_difference(
    study: AnyStudy,
    spec: StudySpec,
    store: Store,
    run_id: str,
    figures: Mapping[str, Aggregates],
) -> Sequence[Block]:
    base = baseline_name(spec, figures)
    means = {name: aggregates.mean.value for name, aggregates in figures.items() if name != base}
    best = max(means, key=lambda name: means[name] or 0.0)
    before, after = (figures[name].case_means() if name in figures else {} for name in (base, best))
    gaps = {case: abs(after[case] - before[case]) for case in before if case in after}
    case = max(gaps, key=lambda name: gaps[name], default=None)
    if case is None:
        return []
    variants: Sequence[str] = tuple(figures)
    stored_records = store.read_records(run_id, RecordFilter(case=case))
    pair = variants.index(base), variants.index(best)
    drawn = (
        matrices.draw_cell_difference(row, variants, pair)
        for row in show_rows(study, run_id, variants, stored_records)
    )
    return [block for block in drawn if block is not None][:1]
