"""The list of runs: each with its data set, its subject (what was measured), its main figure, and
the change since the previous run of the same study.

Runs belong to the same study if their kind, data set and judges are the same; prompts, models and
rows may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from textevolve.json_texts import as_object
from textevolve.report import wording
from textevolve.report.charts import IntervalChart
from textevolve.store import records
from textevolve.store.records import Standing, VariantScore
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.aggregates import Aggregates
from textevolve.studies.results import read_figures

ROWS_FROM = ("data", "cases", "items", "labelled", "documents", "trace", "source")
"""The fields of specifications that name files of rows."""
# The fields of specifications that name what a run measures.
SUBJECTS = (
    "prompts",
    "outputs",
    "targets",
    "models",
    "system",
    "agent",
    "program",
    "template",
    "quants",
)
# The fields of specifications that name metrics and judges.
JUDGES = ("metric", "judge", "judges", "profile")
SHOWN = 60
HISTORY = 12
"""The number of runs in the history of a study."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run with its main figures, for a list.

    Attributes:
        standing: The counts and mean scores of its records so far.
        data: The names of its files of rows.
        subject: The measured prompts, models or agents, and the judges.
        result: The pass rate of the best variant, or its mean score if records have no verdicts.
        results: The same figure of each variant.
        change: The change of the best variant's figure since the earlier run.
        earlier: The id of the previous finished run of the same study; empty if there is none.
        tags: The labels that users gave the run.
    """

    run: RunRecord
    standing: Standing
    data: str
    subject: str
    result: str
    results: str
    change: str
    earlier: str
    tags: Sequence[str]


def list_studies(
    store: Store, visible_runs: Sequence[RunRecord], every: Sequence[RunRecord]
) -> list[ListedRun]:
    """Describe the visible runs, each compared with the previous finished run of its study.
    `every`: all runs, newest first, among which previous ones are searched."""
    earlier = {
        run.id: next((r for r in find_history(run, every) if r.created < run.created), None)
        for run in visible_runs
    }
    ids = {run.id for run in (*visible_runs, *filter(None, earlier.values()))}
    standings = store.read(records.count_standing, sorted(ids))
    return [_describe(run, earlier[run.id], standings) for run in visible_runs]


def _describe(
    run: RunRecord, earlier: RunRecord | None, standings: Mapping[str, Standing]
) -> ListedRun:
    standing, tags = standings[run.id], cast(Sequence[str], run.spec.get("tags", ()))
    scores = {name: score for name, score in standing.scores.items() if score.mean is not None}
    best = max(scores, key=lambda name: _key(scores[name]), default="")
    figures = {
        name: f"{wording.shorten(wording.shorten_models(name).partition(' at ')[0], 20)}"
        f" {_format_figure(score)}".lstrip()
        for name, score in scores.items()
    }
    change = ""
    if scores and earlier and (before := standings[earlier.id].scores.get(best)):
        change = _format_change(scores[best], before)
    data = wording.shorten(PurePath(data_of(run)).name or data_of(run), SHOWN)
    subject = wording.shorten(wording.shorten_models(subject_of(run)), SHOWN)
    result, before_id = figures.get(best, ""), earlier.id if earlier else ""
    results = "; ".join(figures.values())
    return ListedRun(run, standing, data, subject, result, results, change, before_id, tags)


def _key(score: VariantScore) -> tuple[float, float]:
    return (-1.0 if score.passed is None else score.passed, score.mean or 0.0)


def _format_figure(score: VariantScore) -> str:
    if score.passed is not None:
        return wording.percent(score.passed, 1)
    return f"mean {wording.number(score.mean, 3)}"


def _format_change(now: VariantScore, before: VariantScore) -> str:
    if now.passed is not None and before.passed is not None:
        return f"{100 * (now.passed - before.passed):+.1f} points"
    if now.passed is None and before.mean is not None and now.mean is not None:
        return f"{now.mean - before.mean:+.3f}"
    return ""


def find_history(run: RunRecord, every: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the finished runs of `every` that belong to the study of this run, which may be one of
    them, in the order of `every` (newest first); none for a run without a data set."""
    key = study_key(run)
    return [
        other for other in every if key and other.status == "finished" and study_key(other) == key
    ]


def read_history(
    store: Store, runs: Sequence[RunRecord], variants: Iterable[str]
) -> list[IntervalChart]:
    """Return for each variant a chart of its pass rate, or of its mean score if records have no
    verdicts, over at most the newest 12 of these runs (`HISTORY`), oldest first. `runs`: newest
    first."""
    figures = {run.id: read_figures(store, run.id) for run in runs[:HISTORY][::-1]}
    judged = all(
        aggregates.verdicts
        for by_variant in figures.values()
        for aggregates in by_variant.values()
        if aggregates.scored
    )
    charts: list[IntervalChart] = []
    for name in variants:
        run_figures = {id: by_variant.get(name, Aggregates()) for id, by_variant in figures.items()}
        rows = [
            (id, aggregates.pass_rate if judged else aggregates.mean)
            for id, aggregates in run_figures.items()
        ]
        charts.append(IntervalChart(name, rows, "percent" if judged else "number"))
    return charts


def study_key(run: RunRecord) -> tuple[str, ...]:
    """Return the key that all runs of a study share; empty for a run without a data set."""
    spec = _spec(run)
    judges = [str(spec.get(name)) for name in ("metric", "judge", "judges")]
    return (str(run.spec.get("kind")), data, *judges) if (data := data_of(run)) else ()


def data_of(run: RunRecord) -> str:
    """Describe the data of a run: the names of its files of rows, or the input of a run with a
    single case; empty if there is neither."""
    for name in ROWS_FROM:
        if names := field_names(_spec(run).get(name)):
            return ", ".join(names) if name != "cases" else names[0]
    return ""


def subject_of(run: RunRecord) -> str:
    spec = _spec(run)
    names = {name: ", ".join(field_names(spec.get(name))) for name in (*SUBJECTS, *JUDGES)}
    subject = next((names[name] for name in SUBJECTS if names[name]), "")
    judges = ", ".join(names[name] for name in JUDGES if names[name])
    return " by ".join(filter(None, (subject, judges)))


def _spec(run: RunRecord) -> Mapping[str, Any]:
    return as_object(run.spec.get("spec"))


def field_names(value: Any) -> list[str]:
    """Return the names in a field's value: the text itself, its `name`, or those of its members if
    it is a list."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        return field_names(fields.get("name") or fields.get("target"))
    if isinstance(value, list | tuple):
        return [name for member in cast(Sequence[Any], value) for name in field_names(member)]
    return [value] if isinstance(value, str) and value else []
