"""The results that every report and page of a run begins with: the verdict in a sentence, the
variants with their intervals, the rows to look at first, and two outputs that differ.

Figures come from the columns of the records, which are read without their bodies, so that a run of
any size opens at once; whole are read only the few that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from textevolve.bench.variants import compare_variants, say_differences
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluators import pass_threshold
from textevolve.report import matrices, wording
from textevolve.report.blocks import Block, MatrixRow
from textevolve.report.matrices import main_score
from textevolve.store import records
from textevolve.store.records import Found, Kept
from textevolve.studies.aggregates import Aggregates, aggregate, draw_aggregates, say_scores
from textevolve.studies.run_rows import name_entries, show_rows
from textevolve.studies.study import AnyStudy, RecordStatus, Row, StudySpec

if TYPE_CHECKING:
    from textevolve.store.repository import Store

FIRST = 5
"""Of the records without a score, and of those with the lowest, so many are shown."""


def read_columns(store: Store, run_id: str) -> Iterator[Row]:
    """Read the rows of a run's records, in their order, without their reasons."""
    for one in store.read(records.read_columns, run_id):
        status = cast(RecordStatus, one.status)
        row = Row(one.key, one.position, one.case, one.score, status)
        yield replace(row, variant=one.variant, passed=one.passed)


def read_figures(
    store: Store, run_id: str, threshold: float | None = None
) -> dict[str, Aggregates]:
    """Sum up the records of a run by variant; `threshold`: from which score one passes, whatever
    its verdict is."""
    return aggregate(read_columns(store, run_id), threshold)


def state_verdict(spec: StudySpec, figures: Mapping[str, Aggregates]) -> str:
    """The result in a sentence: which variant wins and by how much, or how many records passed."""
    if len(figures) < 2:
        name, one = next(iter(figures.items()), ("", Aggregates()))
        said = say_scores(one, "output" if name else "case")
        return f"{wording.shorten_models(name)}: {said}" if name else said
    scores = {
        name: {case: [mean] for case, mean in one.case_means().items()}
        for name, one in figures.items()
    }
    baseline, seed = baseline_name(spec, figures), getattr(spec, "seed", 0)
    said = say_differences(compare_variants(scores, baseline, seed=seed), baseline)
    missing = sum(one.unscored for one in figures.values())
    left = f" {wording.count(missing, 'output')} without a score left out." if missing else ""
    return wording.shorten_models(said) + left


def baseline_name(spec: StudySpec, variants: Mapping[str, object]) -> str:
    """The variant that others are compared with: the one that is named, or the first."""
    return getattr(spec, "baseline", None) or next(iter(variants), "")


def find_threshold(study: AnyStudy, spec: StudySpec) -> float | None:
    """Return the score from which records pass: the specification's own, the debate's or that of
    the judge that decides; None where a metric decides, or the judge's file has gone."""
    own, profile = getattr(spec, "threshold", None), getattr(spec, "profile", None)
    if isinstance(own, tuple):  # a limit of a number in a node's state each
        return None
    if own is not None:
        return own
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
    """The variants with their intervals, the cells to look at first, and the outputs of the case
    on which the two best variants differ most. `place`: the address below which cases stand by
    their numbers; without it they are rows of the report's matrix."""
    blocks = draw_aggregates(figures, find_threshold(study, spec))
    if not blocks:
        return []
    variants, cells = tuple(filter(None, figures)), study.rows is not None
    rows: list[MatrixRow] = []
    links: list[str] = []
    for kept in _find_first(store, run_id):
        shown = show_rows(study, run_id, variants, [kept])
        rows += shown if variants else [_only_best(row) for row in shown]
        links += [str(kept.position + 1) if place else row.id * cells for row in shown]
    if rows:
        heads = name_entries(rows, variants)
        blocks.append(matrices.draw_first(rows, heads, links, place or "#row-"))
    if cells and len(variants) > 1:
        blocks += _draw_difference(study, spec, store, run_id, figures)
    return blocks


def _find_first(store: Store, run_id: str) -> Iterator[Kept]:
    """Find the records without a score, then those with the lowest that are not full marks."""
    failed = Found(statuses=("failed",))
    keys = store.read(records.find_rows, run_id, failed, "key", "position", 0, FIRST)
    keys += store.read(records.find_rows, run_id, Found(below=1.0), "key", "score", 0, FIRST)
    for group in store.read(records.read_rows, run_id, "key", keys).values():
        yield from group


def _only_best(row: MatrixRow) -> MatrixRow:
    """The row with the entry alone whose score is that of the record."""
    entries = [one for one in row.entries if one is not None]
    return replace(row, entries=[max(entries, key=lambda one: main_score(one) or 0.0)])


def _draw_difference(
    study: AnyStudy,
    spec: StudySpec,
    store: Store,
    run_id: str,
    figures: Mapping[str, Aggregates],
) -> Sequence[Block]:
    base = baseline_name(spec, figures)
    others = {name: one.mean.value for name, one in figures.items() if name != base}
    best = max(others, key=lambda name: others[name] or 0.0)
    before, after = (figures[name].case_means() if name in figures else {} for name in (base, best))
    gaps = {case: abs(after[case] - before[case]) for case in before if case in after}
    case = max(gaps, key=lambda one: gaps[one], default=None)
    if case is None:
        return []
    variants: Sequence[str] = tuple(figures)
    kept = store.read_records(run_id, Found(case=case))
    pair = variants.index(base), variants.index(best)
    drawn = (
        matrices.draw_cell_difference(row, variants, pair)
        for row in show_rows(study, run_id, variants, kept)
    )
    return [block for block in drawn if block is not None][:1]
