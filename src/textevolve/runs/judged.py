"""Judging cases by any judge that is not a debate, as a run: kept, resumed, never asked twice.

A debate has more to tell than scores, and runs of its own: `work.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Evaluator, failure_of
from textevolve.events import Listener, silence
from textevolve.judges.judged import JudgedCase
from textevolve.runs.measurement import cases_in_flight, open_judges
from textevolve.runs.spec import read_measurement
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits


async def do_judging(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[JudgedCase]:
    """The run's cases in order, each as soon as it and those before it are judged. A case that
    cannot be judged fails alone.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    spec = read_measurement(run)
    complete = True
    async with open_judges(store, run, settings, limits, listener, ends=False) as judges:
        (judge,) = judges.values()
        cases = enumerate(store.iterate_cases(run.id))
        in_flight = cases_in_flight(spec, settings)
        results = stream(cases, lambda numbered: _judge(judge, *numbered), in_flight)
        try:
            async for judged in results:
                complete = complete and not (judged.failure and judged.failure.kind == "skipped")
                yield judged
        finally:
            await results.aclose()
        if complete:
            store.finish_run(run.id, "finished")


async def _judge(judge: Evaluator, index: int, case: Case) -> JudgedCase:
    try:
        made = await judge(case)
    except FatalModelError:
        raise
    except (ModelError, BudgetError, InputError) as error:
        return JudgedCase(case, index, (failure_of(error),) * max(1, len(case.candidates)))
    return JudgedCase(case, index, tuple(made.result), made.usage)
