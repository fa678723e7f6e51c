"""Runs as a person knows them: their data set, what was compared or judged, the main figure, and
how it changed since the last run of the same study.

Runs are of one study where kind, data set and judges are the same; prompts, models and rows may
have changed since then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from textevolve.report import wording
from textevolve.report.charts import IntervalChart
from textevolve.store import records
from textevolve.store.records import Standing, VariantScore
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.aggregates import Aggregates
from textevolve.studies.results import read_figures

ROWS_FROM = ("data", "cases", "items", "labelled", "documents", "trace", "source")
"""Fields of specifications that name files of rows."""
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
JUDGES = ("metric", "judge", "judges", "profile")
SHOWN = 60
HISTORY = 12
"""Of so many runs of a study the history is drawn."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """`subject`: prompts, models or agents, and who judges. `result`: the pass rate, or the mean
    score, of the best variant; `results`: of each. `change`: of the same figure since the run
    `earlier`."""

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
    store: Store, shown: Sequence[RunRecord], every: Sequence[RunRecord]
) -> list[ListedRun]:
    """Describe the runs that are shown, each compared with the one before it among all runs, which
    are given with the newest first."""
    earlier = {run.id: _find_earlier(run, every) for run in shown}
    ids = {run.id for run in (*shown, *filter(None, earlier.values()))}
    standings = store.read(records.count_standing, sorted(ids))
    return [_describe(run, earlier[run.id], standings) for run in shown]


def _describe(
    run: RunRecord, earlier: RunRecord | None, standings: Mapping[str, Standing]
) -> ListedRun:
    standing, tags = standings[run.id], cast(Sequence[str], run.spec.get("tags", ()))
    scores = {name: one for name, one in standing.scores.items() if one.mean is not None}
    best = max(scores, key=lambda name: _key(scores[name]), default="")
    named = {
        name: f"{_short_name(name)} {_say_figure(one)}".lstrip() for name, one in scores.items()
    }
    change = ""
    if scores and earlier and (before := standings[earlier.id].scores.get(best)):
        change = _say_change(scores[best], before)
    data = wording.shorten(PurePath(data_of(run)).name or data_of(run), SHOWN)
    subject = wording.shorten(wording.shorten_models(subject_of(run)), SHOWN)
    result, before_id = named.get(best, ""), earlier.id if earlier else ""
    results = "; ".join(named.values())
    return ListedRun(run, standing, data, subject, result, results, change, before_id, tags)


def _short_name(variant: str) -> str:
    return wording.shorten(wording.shorten_models(variant).partition(" at ")[0], 20)


def _key(one: VariantScore) -> tuple[float, float]:
    return (-1.0 if one.passed is None else one.passed, one.mean or 0.0)


def _say_figure(one: VariantScore) -> str:
    if one.passed is not None:
        return wording.percent(one.passed, 1)
    return f"mean {wording.number(one.mean, 3)}"


def _say_change(now: VariantScore, before: VariantScore) -> str:
    if now.passed is not None and before.passed is not None:
        return f"{100 * (now.passed - before.passed):+.1f} points"
    if now.passed is None and before.mean is not None and now.mean is not None:
        return f"{now.mean - before.mean:+.3f}"
    return ""


def _find_earlier(run: RunRecord, every: Sequence[RunRecord]) -> RunRecord | None:
    same = (one for one in find_history(run, every) if one.created < run.created)
    return next(same, None)


def find_history(run: RunRecord, every: Sequence[RunRecord]) -> list[RunRecord]:
    """Find the finished runs of the same study, the newest first."""
    key = study_key(run)
    return [one for one in every if key and one.status == "finished" and study_key(one) == key]


def read_history(
    store: Store, runs: Sequence[RunRecord], variants: Iterable[str]
) -> list[IntervalChart]:
    """Read the pass rate of each variant in the last of these runs, or the mean score where nothing
    says what passed: a chart for each, whose rows are the runs, the oldest first. `runs`: the
    newest first."""
    figures = {run.id: read_figures(store, run.id) for run in runs[:HISTORY][::-1]}
    judged = all(one.verdicts for own in figures.values() for one in own.values() if one.scored)
    charts: list[IntervalChart] = []
    for name in variants:
        known = {id: own.get(name, Aggregates()) for id, own in figures.items()}
        rows = [(id, one.pass_rate if judged else one.mean) for id, one in known.items()]
        charts.append(IntervalChart(name, rows, "percent" if judged else "number"))
    return charts


def study_key(run: RunRecord) -> tuple[str, ...]:
    """What runs of one study share; empty where a run has no data set of its own."""
    spec = _spec(run)
    judges = [str(spec.get(name)) for name in ("metric", "judge", "judges")]
    return (str(run.spec.get("kind")), data, *judges) if (data := data_of(run)) else ()


def data_of(run: RunRecord) -> str:
    """The files of rows that a run reads, or the beginning of its only case."""
    for name in ROWS_FROM:
        if names := field_names(_spec(run).get(name)):
            return ", ".join(names) if name != "cases" else names[0]
    return ""


def subject_of(run: RunRecord) -> str:
    spec = _spec(run)
    told = {name: ", ".join(field_names(spec.get(name))) for name in (*SUBJECTS, *JUDGES)}
    subject = next((told[name] for name in SUBJECTS if told[name]), "")
    judges = ", ".join(told[name] for name in JUDGES if told[name])
    return " by ".join(filter(None, (subject, judges)))


def _spec(run: RunRecord) -> Mapping[str, Any]:
    spec = run.spec.get("spec")
    return cast(Mapping[str, Any], spec) if isinstance(spec, Mapping) else {}


def field_names(value: Any) -> list[str]:
    """The names in a field: itself, its `name`, or those of its members."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        return field_names(fields.get("name") or fields.get("target"))
    if isinstance(value, list | tuple):
        return [name for one in cast(Sequence[Any], value) for name in field_names(one)]
    return [value] if isinstance(value, str) and value else []
