"""What the loops share as runs: how one is specified, and the models and judges it works with.

A loop is kept like a measurement: the same one again is answered from the journal, and asks only
what is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textevolve.evaluation import Evaluator
from textevolve.evaluators import keep_whole, open_evaluator, parse_evaluator
from textevolve.events import Listener, silence
from textevolve.llm.journal import Journal
from textevolve.llm.model import Model
from textevolve.loops.attempt import prompts_version
from textevolve.runs.spec import MeasurementSpec, specify_measurement
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, ModelOf, choose_model, open_models

IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Means:
    """What a loop works with: the model that writes, the judges by their specs, how any other model
    is had, and how many calls are worth having in flight."""

    model: Model
    judges: Mapping[str, Evaluator]
    model_of: ModelOf
    in_flight: int


async def specify_loop(
    settings: Settings,
    kind: str,
    judges: Sequence[str],
    model: str | None,
    parameters: Mapping[str, Any],
) -> MeasurementSpec:
    """The specification of a loop, whose `model` writes, and judges where a judge names none.

    Raises:
        InputError: a judge's spec cannot be used. SettingsError: no model can be had as asked.
    """
    chosen, why = await choose_model(settings, model)
    prompts = {f"loops.{name}": version for name, version in prompts_version().items()}
    return specify_measurement(kind, judges, chosen, parameters, why, prompts)


def models_used(spec: MeasurementSpec) -> tuple[str, ...]:
    """Every model that a loop asks, each once; the one that writes first."""
    return tuple(dict.fromkeys((spec.model, *spec.models)))


@asynccontextmanager
async def open_means(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
    journal: Journal | None = None,
) -> AsyncGenerator[Means]:
    """The models and judges of a loop, working on its run, which is held meanwhile; `journal`
    stands in the place of the run's own. `ends`: see `hold`.

    Raises:
        InputError: a judge's spec, profile or parameter cannot be used.
        StoreError: another process works on this run.
    """
    spec = MeasurementSpec.model_validate(run.spec)
    local = all(name.startswith("local/") for name in models_used(spec))
    with store.lease(run.id):
        kept = journal or store.journal(run.id)
        async with open_models(settings, kept, limits, listener) as model_of:
            judges = {
                text: keep_whole(
                    open_evaluator(
                        parse_evaluator(text),
                        spec.model,
                        model_of,
                        listener=listener,
                        side_by_side=1 if local else 64,
                        today=spec.today,
                    )
                )
                for text in spec.judges
            }
            in_flight = settings.concurrency or (settings.local.slots if local else IN_FLIGHT)
            yield Means(model_of(spec.model), judges, model_of, in_flight)
