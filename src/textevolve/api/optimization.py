"""`optimize`, async and sync: one text for a task, made better attempt by attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.evaluation import Evaluator
from textevolve.llm.chains.chain import Chain
from textevolve.loops.attempt import Generator
from textevolve.loops.optimization import Optimization
from textevolve.studies.optimize import DEFAULT_JUDGE, OptimizeSpec, task_case


@takes_fields(OptimizeSpec)
async def aoptimize(
    task: str,
    *,
    judge: str | Evaluator = DEFAULT_JUDGE,
    second_judge: str | Evaluator | None = None,
    generator: str | Generator | None = None,
    model: str | Chain | Callable[..., Any] | None = None,
    **fields: Any,
) -> Optimization:
    """The best text for a task by a judge's measure. The same call again is answered from the
    store.

    `judge`: a judge's spec such as `probe+rules`, or any `Evaluator`, `Rules` among them.
    `generator`: any `Generator`, in place of the model's. `model`: a model's spec, or a chain with
    one input, the prompt, by its file, its import path or itself. The other names are those of
    `OptimizeSpec` and `RunKeywords`.

    Raises:
        InputError: the task, a judge or a parameter cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: the model's endpoint refuses every call.
    """
    objects = Objects()
    own, keywords = split_keywords(OptimizeSpec, fields)
    spec = OptimizeSpec(
        task=task,
        judge=objects.name(judge) or DEFAULT_JUDGE,
        second_judge=objects.name(second_judge),
        generator=objects.name(generator),
        model=objects.name(model),
        **own,
    )
    (made,) = await arun(spec, cases=[task_case(task)], objects=objects, **keywords)
    return made


optimize = in_sync(aoptimize)
