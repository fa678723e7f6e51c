"""`calibrate`, async and sync: a better prompt template, by rows of values for its placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.errors import InputError
from textevolve.evaluation import Evaluator
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.chain_texts import write_prompts
from textevolve.loops.calibration.tree import CalibrationResult
from textevolve.metrics.shapes import LabelMetric
from textevolve.studies.calibrate import CalibrateSpec, cases_of, read_cases

Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
"""A file of rows, or the rows themselves."""


@takes_fields(CalibrateSpec)
async def acalibrate(
    template: str | Chain | Callable[..., Any] | Any = "",
    data: Rows = (),
    *,
    templates: Mapping[str, str] | None = None,
    model: str | Chain | Callable[..., Any] | None = None,
    judge: str | Evaluator | None = None,
    metric: str | LabelMetric | None = None,
    second_judge: str | Evaluator | None = None,
    **fields: Any,
) -> CalibrationResult:
    """Search for a better template; `.template` is the one to use, which is the original unless
    another has a significant gain on rows held out.

        calibrate("How many letters has {word}?", rows, label="letters", metric="numeric")
        calibrate(chain, "rows.csv", label="label", metric="exact")
        calibrate(program, rows, templates={"draft": "...", "check": "..."}, metric=right)

    `template`: a prompt; or a program in its place: a chain, all of whose templates are improved,
    or that of the `step`; a function of prompts and a row, a LangGraph graph, each with its
    `templates`; a DSPy module. `templates`: texts by name to begin with, or a `PromptSet`. `model`:
    a model's spec; or a chain, as `template`. `data`: rows, or a file of them. With neither `judge`
    nor `metric` a single judge scores. The other names are those of `CalibrateSpec` and
    `RunKeywords`. The same call again is answered from the store, but for what is not asked of a
    model.

    Raises:
        InputError: template, data, a judge, the metric or a number cannot be used.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    objects = Objects()
    own, keywords = split_keywords(CalibrateSpec, fields)
    if not isinstance(template, str):
        own["program"], template = objects.name(template), ""
    if templates is not None:
        if template:
            raise InputError("give a template, or a program with templates, and not both")
        template = write_prompts(templates)
    spec = CalibrateSpec(
        template=template,
        data=str(data) if isinstance(data, str | Path) else "",
        judge=objects.name(judge),
        metric=objects.name(metric),
        second_judge=objects.name(second_judge),
        model=objects.name(model),
        **own,
    )
    if isinstance(data, str | Path):
        cases = read_cases(spec, objects.found) if objects.found else None
    else:
        cases = cases_of(spec, ((f"row {n}", row) for n, row in enumerate(data, 1)), objects.found)
    return await arun(spec, cases=cases, objects=objects, **keywords)


calibrate = in_sync(acalibrate)
