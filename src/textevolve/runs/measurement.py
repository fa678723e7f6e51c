"""A measurement of judges as a run: kept in the store, so that it can be stopped and gone on with.

What is measured, and how figures are made of it, is the business of `textevolve.bench`. The same
measurement again asks only what is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from textevolve.bench.variance import (
    Array,
    VarianceShares,
    Votes,
    agent_votes,
    count_votes,
    places,
    share_variance,
)
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
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


@dataclass(frozen=True, slots=True)
class RunVariance:
    """`votes`: of the agents over the whole debate; `blind_votes`: in the first round alone. None
    where the cases have different agents, so that there is nothing to correlate."""

    shares: VarianceShares
    votes: Votes | None
    blind_votes: Votes | None


def measure_variance(results: Iterable[DebateResult]) -> RunVariance:
    """Where the variance of a run's scores comes from; cases without a score are left out.

    Raises:
        InputError: no case has a score.
    """
    scored = [result for result in results if result.scored]
    if not scored:
        raise InputError("no case of this run has a score, so there is no variance to share out")
    tensors = [result.tensor.values for result in scored]
    alike = len({result.agents for result in scored}) == 1
    return RunVariance(
        shares=share_variance(tensors, [_places(result) for result in scored]),
        votes=count_votes(agent_votes(tensors)) if alike else None,
        blind_votes=count_votes(agent_votes(tensors, 0)) if alike else None,
    )


def _places(result: DebateResult) -> Array:
    """The place of each candidate in each turn, (rounds, agents, candidates), NaN where there was
    no turn. A turn asked in both orders has no place."""
    shape = result.tensor.shape[:-1]
    found: Array = np.full(shape, np.nan)
    if result.profile.order != "swap":
        for turn in result.turns:
            if turn.scores is not None and turn.round < shape[0]:
                found[turn.round, turn.agent] = places(turn.order)
    return found
