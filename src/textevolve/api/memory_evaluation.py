"""`evaluate_memory`, async and sync: a memory system measured on a data set."""

from __future__ import annotations

from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any

from textevolve.api.running import Objects, astream, in_sync, split_keywords, takes_fields
from textevolve.evaluation import Evaluator
from textevolve.memory_eval.evaluation import CollectedEvaluation, MemoryEvaluation
from textevolve.report.data import write_rows
from textevolve.report.files import open_target
from textevolve.studies.memory_eval import MemoryEvaluationSpec, flatten


@takes_fields(MemoryEvaluationSpec)
async def aevaluate_memory(
    data: str | Path,
    system: str | object,
    *,
    judge: str | Evaluator | None = None,
    records: str | Path | None = None,
    **fields: Any,
) -> MemoryEvaluation:
    """Feed a memory system the sessions of a data set, and judge what it kept, made up, updated and
    answers.

    `system`: as on the command line (`context`, `http://...`, `mem0`, ...), or an object with `add`
    and `search`, sync or async. `records`: a file for a line of JSON for each judgement, with its
    texts and reason. The other names are those of `MemoryEvaluationSpec` and `RunKeywords`. The
    same call again goes on where it was stopped and asks nothing twice; an object is known by the
    name of its class, so where its code has changed, name another `fresh`.

    Raises:
        InputError: the data, the system or a number cannot be used.
        FatalModelError: no call can succeed, or the system fails again and again.
    """
    objects = Objects()
    own, keywords = split_keywords(MemoryEvaluationSpec, fields)
    named = objects.name(system) or ""
    spec = MemoryEvaluationSpec(data=str(data), system=named, judge=objects.name(judge), **own)
    collected = CollectedEvaluation()
    opened = nullcontext() if records is None else open_target(records)
    with opened as target:
        async with aclosing(astream(spec, objects=objects, **keywords)) as stream:
            async for record in stream:
                collected.take(record)
                if target is not None:
                    write_rows(lambda record=record: flatten(record), target, ".jsonl")
    return collected.conclude(spec.seed)


evaluate_memory = in_sync(aevaluate_memory)
