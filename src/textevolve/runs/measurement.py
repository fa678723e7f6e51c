"""A measurement of judges as a run: kept in the store, so that it can be stopped and gone on with.

What is measured, and how figures are made of it, is the business of `textevolve.bench`. The same
measurement again asks only what is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from textevolve.evaluation import Evaluator
from textevolve.evaluators import keep_whole, open_evaluator, parse_evaluator
from textevolve.events import Listener, silence
from textevolve.runs.spec import MeasurementSpec
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, open_models


@asynccontextmanager
async def open_judges(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[dict[str, Evaluator]]:
    """The judges of a measurement by their specs, working on its run, which is leased meanwhile.

    Raises:
        InputError: a judge's spec, profile or parameter cannot be used.
        StoreError: another process works on this run.
    """
    spec = MeasurementSpec.model_validate(run.spec)
    with store.lease(run.id):
        async with open_models(settings, store.journal(run.id), limits, listener) as model_of:
            yield {
                text: keep_whole(
                    open_evaluator(
                        parse_evaluator(text),
                        spec.model,
                        model_of,
                        listener=listener,
                        side_by_side=1 if _all_local(spec.models) else 64,
                        today=spec.today,
                    )
                )
                for text in spec.judges
            }


def cases_in_flight(spec: MeasurementSpec, settings: Settings) -> int:
    """As many as the settings say; a local model is given no more than it has slots for."""
    local = _all_local(spec.models)
    return settings.concurrency or (settings.local.slots if local else 32)


def _all_local(models: Sequence[str]) -> bool:
    return all(name.startswith("local/") for name in models)
