"""The public functions: `evaluate` and its batch, async and sync forms.

They read the settings, choose a model where none is named, open the store, and do a run. The sync
forms also work where an event loop runs already, such as in a notebook.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from textevolve.debate.order import Order
from textevolve.debate.profile import Profile, Protocol, Readout, Selection, load_profile, override
from textevolve.debate.result import DebateResult
from textevolve.debate.tensor import Aggregation, ConvergenceMode
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.evaluation import Case, check_case
from textevolve.events import Listener, silence
from textevolve.memory.recall import Recall, nothing
from textevolve.runs.intake import CaseLike, Columns, take_cases
from textevolve.runs.spec import RunSpec, name_recall
from textevolve.runs.work import Work, begin, do_run
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits, choose_model, take_limits


class Parameters(TypedDict, total=False):
    """What may be set for a debate beside its profile; see `Profile` for ranges and meaning."""

    rounds: int
    convergence: float | None
    convergence_mode: ConvergenceMode
    history_rounds: int | None
    protocol: Protocol
    escalate_below: float
    readout: Readout
    argue: bool
    rules: bool
    order: Order
    weights: dict[str, float]
    aggregation: Aggregation
    select: Selection
    temperature: float
    sampling_temperature: float
    max_answer_tokens: int
    threshold: float
    seed: int


async def aevaluate(
    input: str,
    candidates: Iterable[str],
    *,
    profile: str | Path | Profile | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits | None = None,
    settings: Settings | None = None,
    **parameters: Unpack[Parameters],
) -> DebateResult:
    """A debate over the candidates. The same call again is answered from the store; at the same
    time in this process, once the first has ended.

    Raises:
        InputError: input, candidates, profile or a parameter cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: the model's endpoint refuses every call.
    """
    case = Case(input, _take_candidates(candidates), "1")
    check_case(case)
    settings = settings or read_settings({"model": model, "store": store})[0]
    spec = await specify(settings, profile, model, dict(parameters), recall)
    async with open_store(Path(store or settings.store)) as opened:
        run = begin(opened, spec, take_cases([case]), source="Python")
        work = Work(opened, settings, take_limits(limits), recall, listener, ends=True)
        async with aclosing(do_run(run, work)) as results:
            # To its end, so that the run is finished.
            (result,) = [result async for result in results]
    return result


def _take_candidates(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, Mapping | bytes):
        return tuple(cast("Iterable[str]", given))
    kind: str = type(cast(object, given)).__name__
    raise InputError(f"candidates must be a list of texts, or one text, not {kind}")


async def aevaluate_batch(
    cases: Iterable[CaseLike],
    *,
    profile: str | Path | Profile | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits | None = None,
    settings: Settings | None = None,
    ordered: bool = False,
    name: str = "",
    **parameters: Unpack[Parameters],
) -> AsyncGenerator[DebateResult]:
    """Debates over many cases, as they finish (`result.index` is the case's place) or `ordered`.

    Cases are read lazily, once. One that cannot be judged fails alone; its result says why. Cases
    may carry parameters of their own, which win over those given here.

    Raises:
        InputError: profile or a parameter cannot be used, or something given is no case.
        SettingsError, FatalModelError: as in `aevaluate`.
    """
    limits = take_limits(limits)
    settings = settings or read_settings({"model": model, "store": store})[0]
    spec = await specify(settings, profile, model, dict(parameters), recall)
    async with open_store(Path(store or settings.store)) as opened:
        columns = Columns()
        run = begin(opened, spec, take_cases(cases, columns), name=name, source="Python")
        if unread := columns.warning(reference=False):
            logging.getLogger("textevolve").warning(unread)
        work = Work(opened, settings, limits, recall, listener, ordered)
        results = do_run(run, work)
        try:
            async for result in results:
                yield result
        finally:
            await results.aclose()


async def specify(
    settings: Settings,
    profile: str | Path | Profile | None,
    model: str | None,
    parameters: dict[str, Any],
    recall: Recall = nothing,
) -> RunSpec:
    """A run's specification: the profile with parameters, and the model named or found."""
    named = settings.profile if profile is None else profile
    base = named if isinstance(named, Profile) else load_profile(named)
    complete = override(base, parameters)
    if all(agent.model for agent in complete.agents):
        model = model or complete.agents[0].model
    chosen, why = await choose_model(settings, model)
    for agent in complete.agents:
        if agent.model:
            await choose_model(settings, agent.model)
    return RunSpec(profile=complete, model=chosen, recall=name_recall(recall), why=why)


def evaluate(
    input: str,
    candidates: Iterable[str],
    *,
    profile: str | Path | Profile | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits | None = None,
    settings: Settings | None = None,
    **parameters: Unpack[Parameters],
) -> DebateResult:
    """`aevaluate`, waited for; also where an event loop runs."""
    return sync.run(
        aevaluate(
            input,
            candidates,
            profile=profile,
            model=model,
            recall=recall,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            **parameters,
        )
    )


def evaluate_batch(
    cases: Iterable[CaseLike],
    *,
    profile: str | Path | Profile | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits | None = None,
    settings: Settings | None = None,
    ordered: bool = False,
    name: str = "",
    **parameters: Unpack[Parameters],
) -> Iterator[DebateResult]:
    """`aevaluate_batch` as a plain iterator; also where an event loop runs."""
    return sync.iterate(
        aevaluate_batch(
            cases,
            profile=profile,
            model=model,
            recall=recall,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            ordered=ordered,
            name=name,
            **parameters,
        )
    )
