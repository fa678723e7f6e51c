"""`calibrate`, async and sync: a better prompt template, by rows of values for its placeholders."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict, Unpack

from textevolve.engine import sync
from textevolve.events import Listener, silence
from textevolve.loops.calibration import Plan
from textevolve.loops.grading import Metric
from textevolve.loops.search_tree import CalibrationResult
from textevolve.loops.trials import JudgedInput
from textevolve.runs.calibrating import (
    VALIDATION,
    Rows,
    begin_calibration,
    choose_scorers,
    do_calibration,
    read_material,
    specify_calibration,
)
from textevolve.runs.optimization import Judge
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


class Calibrating(TypedDict, total=False):
    """How the search goes; see `Plan` for ranges and meaning."""

    beam: int
    depth: int
    minibatch: int
    selection_minibatch: int
    final_minibatch: int
    gradient_depth: int
    successors: int
    selection: Literal["fast", "ucb"]
    judged: JudgedInput
    seed: int
    temperature: float | None
    max_output_tokens: int


async def acalibrate(
    template: str,
    data: Rows,
    *,
    evaluator: Judge | None = None,
    metric: str | Metric | None = None,
    label: str | None = None,
    second_judge: Judge | None = None,
    model: str | None = None,
    judge_model: str | None = None,
    validation: float = VALIDATION,
    seconds: float | None = None,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
    **plan: Unpack[Calibrating],
) -> CalibrationResult:
    """Search for a better template; `.template` is the one to use, which is the original unless
    another has a significant gain on rows held out.

    `data`: rows, or a file of them. With neither `evaluator` nor `metric` a single judge scores.
    The same call again is answered from the store, but for what is not asked of a model.

    Raises:
        InputError: template, data, a judge, the metric or a number cannot be used.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    chosen = Plan(**plan)
    scorers = choose_scorers(evaluator, metric, second_judge, label, judge_model)
    material = read_material(template, data, scorers, validation)
    settings = settings or read_settings({"model": model, "store": store})[0]
    spec = await specify_calibration(settings, material, chosen, scorers, model, validation)
    async with open_store(Path(store or settings.store)) as opened:
        run = begin_calibration(opened, spec, material, name=name, source="Python")
        return await do_calibration(
            opened, run, material, chosen, scorers, settings, limits, listener, seconds
        )


def calibrate(
    template: str,
    data: Rows,
    *,
    evaluator: Judge | None = None,
    metric: str | Metric | None = None,
    label: str | None = None,
    second_judge: Judge | None = None,
    model: str | None = None,
    judge_model: str | None = None,
    validation: float = VALIDATION,
    seconds: float | None = None,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
    **plan: Unpack[Calibrating],
) -> CalibrationResult:
    """`acalibrate`, waited for; also where an event loop runs."""
    return sync.run(
        acalibrate(
            template,
            data,
            evaluator=evaluator,
            metric=metric,
            label=label,
            second_judge=second_judge,
            model=model,
            judge_model=judge_model,
            validation=validation,
            seconds=seconds,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            name=name,
            **plan,
        )
    )
