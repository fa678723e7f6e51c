"""`compare`, async and sync: prompts, models and outputs side by side on rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.api.calibration import Rows
from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.evaluation import Evaluator
from textevolve.llm.chains.chain import Chain
from textevolve.metrics.shapes import LabelMetric
from textevolve.studies.compare_cells import take_rows
from textevolve.studies.compare_report import Comparison
from textevolve.studies.compare_spec import CompareSpec

Prompts: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Templates by their names; or a list of templates, files (`Path`, or "@FILE") and fields. A list
of messages with `role` and `content` is a chat."""


@takes_fields(CompareSpec)
async def acompare(
    data: Rows,
    prompts: Prompts = (),
    *,
    models: str | Chain | Callable[..., Any] | Iterable[str | Chain | Callable[..., Any]] = (),
    metric: str | LabelMetric | Iterable[str | LabelMetric] = (),
    judge: str | Evaluator | Iterable[str | Evaluator] = (),
    **fields: Any,
) -> Comparison:
    """Run prompts and models over rows, score every output, and say which is better.

        found = compare("rows.csv", {"short": "Sum: {a} + {b}"}, models=["openai/gpt-6-luna"],
                        label="sum", metric="exact")
        found.sentence, found.variants[0].mean, found.to_frame()

    `models`: models by their specs; chains, by their files, import paths or themselves, whose
    inputs are columns. `data`: rows, or a file of them. `metric`, `judge`: one or several, by name
    or your own; with neither a single judge scores. The other names are those of `CompareSpec` and
    `RunKeywords`. The same call again is answered from the store.

    Raises:
        InputError: prompts, rows, a judge, a metric or a number cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    objects = Objects()
    own, keywords = split_keywords(CompareSpec, fields)
    from_file = isinstance(data, str | Path)
    spec = CompareSpec(
        prompts=cast(Any, prompts),
        models=_name_all(models, objects),
        data=str(data) if from_file else "",
        metric=_name_all(metric, objects),
        judge=_name_all(judge, objects),
        **own,
    )
    cases = None
    if not isinstance(data, str | Path):
        cases = take_rows(spec, data)
    return await arun(spec, cases=cases, objects=objects, **keywords)


def _name_all(given: object, objects: Objects) -> tuple[str, ...]:
    """What stands for each in a specification; one alone needs no list."""
    several = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        several = list(cast("Iterable[object]", given))
    return tuple(name for name in map(objects.name, several) if name is not None)


compare = in_sync(acompare)
