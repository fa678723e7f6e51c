"""Calibrating a template as a run: kept, gone on with, and its gain told with an interval.

How the search goes is in `textevolve.loops.calibration`; what it may take is in
`calibrating_estimate.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.bench.comparisons import difference_interval, sign_flip_test
from textevolve.errors import InputError
from textevolve.evaluation import Case, Evaluator
from textevolve.events import Listener, silence
from textevolve.loops.calibration import Means, Plan, search_template
from textevolve.loops.examples import Material, take_material
from textevolve.loops.grading import Metric, needs_label, open_metric
from textevolve.loops.search_tree import CalibrationResult, Gain, describe_outcome
from textevolve.rows import Placed, read_rows
from textevolve.runs.improving import open_means, specify_loop
from textevolve.runs.judging import Chosen, choose_judge
from textevolve.runs.optimization import Judge, check_seconds
from textevolve.runs.spec import MeasurementSpec, name_callable
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
"""A file of rows, or the rows themselves."""

DEFAULT_JUDGE = "single"
VALIDATION = 0.3


@dataclass(frozen=True, slots=True)
class Scorers:
    """What scores: judges, a metric by its text or as a function, and the column of the label that
    the metric compares with."""

    evaluator: Chosen | None = None
    metric: str | Metric | None = None
    second_judge: Chosen | None = None
    label: str | None = None

    @property
    def specs(self) -> tuple[str, ...]:
        """The specs of the judges that models are asked for, each once."""
        chosen = [judge for judge in (self.evaluator, self.second_judge) if judge is not None]
        return tuple(dict.fromkeys(spec for judge in chosen for spec in judge.specs))

    def name(self) -> dict[str, Any]:
        """What each is called, where it has to be told apart from others."""
        metric = self.metric
        if metric is not None and not isinstance(metric, str):
            metric = name_callable(metric)
        evaluator = self.evaluator.parameters if self.evaluator else {"evaluator": None}
        second = self.second_judge.parameters if self.second_judge else {"evaluator": None}
        return {
            **evaluator,
            "metric": metric,
            "second_judge": second.pop("evaluator"),
            **{f"second_{name}": value for name, value in second.items()},
            "label": self.label,
        }


def choose_scorers(
    evaluator: Judge | None = None,
    metric: str | Metric | None = None,
    second_judge: Judge | None = None,
    label: str | None = None,
    judge_model: str | None = None,
) -> Scorers:
    """As given; with neither an evaluator nor a metric a single judge scores. `judge_model` serves
    the judges that name none.

    Raises:
        InputError: a judge or the metric cannot be used.
    """
    if evaluator is None and metric is None:
        evaluator = DEFAULT_JUDGE
    if evaluator is not None and evaluator == second_judge:
        raise InputError("the second judge is the first: name another, or another model")
    if isinstance(metric, str):
        open_metric(metric)
        if needs_label(metric) and label is None:
            raise InputError(f"metric {metric}: name the column of the label, too")
    first, second = (
        None if judge is None else choose_judge(_on_model(judge, judge_model))
        for judge in (evaluator, second_judge)
    )
    return Scorers(first, metric, second, label)


def _on_model(judge: Judge, model: str | None) -> Judge:
    """The judge with the model in its spec, where it has a spec that names none."""
    if not isinstance(judge, str) or model is None or "@" in judge or judge.startswith("rules:"):
        return judge
    return f"{judge}@{model}"


def read_material(
    template: str, data: Rows, scorers: Scorers, validation: float = VALIDATION
) -> Material:
    """The template with its rows, parted into training and validation.

    Raises:
        InputError: the rows cannot be read, or do not fit the template.
    """
    rows: Iterable[Placed]
    if isinstance(data, str | Path):
        rows = read_rows(str(data), "row", lambda _: True)  # a value is filled in as it stands
    else:
        rows = ((f"row {n}", row) for n, row in enumerate(data, 1))
    return take_material(template, rows, label=scorers.label, validation=validation)


async def specify_calibration(
    settings: Settings,
    material: Material,
    plan: Plan,
    scorers: Scorers,
    model: str | None = None,
    validation: float = VALIDATION,
) -> MeasurementSpec:
    """The specification of a calibration, whose `model` answers, writes, and judges where a judge
    names no model.

    Raises:
        InputError: a judge cannot be used. SettingsError: no model can be had as asked.
    """
    parameters = {
        "template": material.template,
        "validation": validation,
        **asdict(plan),
        **scorers.name(),
    }
    return await specify_loop(settings, "calibrate", scorers.specs, model, parameters)


def begin_calibration(
    store: Store, spec: MeasurementSpec, material: Material, *, name: str = "", source: str = ""
) -> RunRecord:
    """The run of a calibration: a new one, or the one that is kept already, whatever the order of
    the rows."""
    cases = (
        Case(
            json.dumps(e.values, ensure_ascii=False), (str(e.label),) * (e.label is not None), e.id
        )
        for e in sorted(material.examples, key=lambda example: example.id)
    )
    return take_in(store, spec, cases, name=name, source=source)


async def do_calibration(
    store: Store,
    run: RunRecord,
    material: Material,
    plan: Plan,
    scorers: Scorers,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
    seconds: float | None = None,
) -> CalibrationResult:
    """Ask what is missing of a calibration.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    check_seconds(seconds)
    async with open_means(store, run, settings, limits, listener) as opened:

        def judge(chosen: Chosen | None) -> Evaluator | None:
            return None if chosen is None else chosen.open(opened)

        metric = scorers.metric
        found = await search_template(
            material,
            plan,
            Means(
                generator=opened.model,
                editor=opened.model,
                compare=lambda first, second: compare_scores(first, second, plan.seed),
                evaluator=judge(scorers.evaluator),
                metric=open_metric(metric) if isinstance(metric, str) else metric,
                second_judge=judge(scorers.second_judge),
                in_flight=opened.in_flight,
                seconds=seconds,
                listener=listener,
            ),
        )
        if found.stopped != "budget":
            store.finish_run(run.id, "finished")
    return found


def compare_scores(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Gain:
    """The paired bootstrap interval of the mean difference, and a sign-flip test beside it."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not math.isnan(a + b)]
    if not pairs:
        none = math.nan
        return Gain(none, none, none, none, none, none, 0, len(first))
    ours, theirs = zip(*pairs, strict=True)
    interval = difference_interval(ours, theirs, seed=seed)
    means = sum(ours) / len(ours), sum(theirs) / len(theirs)
    test = sign_flip_test(ours, theirs, seed=seed)
    return Gain(
        *means, means[0] - means[1], interval.low, interval.high, test.p, len(pairs), len(first)
    )


def to_data(found: CalibrationResult, run: RunRecord) -> dict[str, Any]:
    """Everything of a calibration as JSON-ready data; a figure that does not exist may be NaN."""
    return {
        "kind": "calibrate",
        "run": run.id,
        "model": run.spec.get("model"),
        "parameters": run.spec.get("parameters"),
        "accepted": found.accepted,
        "template": found.template,
        "sentence": describe_outcome(found),
        **asdict(found),
    }
