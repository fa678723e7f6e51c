"""`calibrate`, async and sync: a better prompt template, by rows of values for its placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.evaluation import Evaluator
from textevolve.llm.chains.chain import Chain
from textevolve.loops.search_tree import CalibrationResult
from textevolve.metrics.label_metrics import LabelMetric
from textevolve.studies.calibrate import CalibrateSpec, cases_of

Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
"""A file of rows, or the rows themselves."""


@takes_fields(CalibrateSpec)
async def acalibrate(
    template: str = "",
    data: Rows = (),
    *,
    model: str | Chain | Callable[..., Any] | None = None,
    judge: str | Evaluator | None = None,
    metric: str | LabelMetric | None = None,
    second_judge: str | Evaluator | None = None,
    **fields: Any,
) -> CalibrationResult:
    """Search for a better template; `.template` is the one to use, which is the original unless
    another has a significant gain on rows held out.

        calibrate(data="rows.csv", model=chain, step="answer", label="label", metric="exact")

    `model`: a model's spec; or a chain, by its file, its import path or itself, of which the
    template of the `step` is improved: then no `template` is needed. `data`: rows, or a file of
    them. With neither `judge` nor `metric` a single judge scores. The
    other names are those of `CalibrateSpec` and `RunKeywords`. The same call again is answered from
    the store, but for what is not asked of a model.

    Raises:
        InputError: template, data, a judge, the metric or a number cannot be used.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    objects = Objects()
    own, keywords = split_keywords(CalibrateSpec, fields)
    spec = CalibrateSpec(
        template=template,
        data=str(data) if isinstance(data, str | Path) else "",
        judge=objects.name(judge),
        metric=objects.name(metric),
        second_judge=objects.name(second_judge),
        model=objects.name(model),
        **own,
    )
    cases = None
    if not isinstance(data, str | Path):
        cases = cases_of(spec, ((f"row {n}", row) for n, row in enumerate(data, 1)), objects.found)
    return await arun(spec, cases=cases, objects=objects, **keywords)


calibrate = in_sync(acalibrate)
