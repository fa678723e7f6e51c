"""Assemble a run: create its models and judges from the settings.

A model's client is wrapped by a concurrency limit, then retries, the budget, and the journal, which
stores answers and is the outermost. A model is opened at its first call that the journal cannot
answer, so a finished run starts no server and needs no key.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, TypeAlias, cast

from textevolve.debate.profile import Profile
from textevolve.debate.protocol import Debate
from textevolve.errors import BudgetError, InputError, SettingsError
from textevolve.evaluation import Evaluator, Usage, empty_default
from textevolve.events import Listener, listener_of_steps, silence
from textevolve.judges.judge import Judge
from textevolve.judges.opening import Judges, keep_whole
from textevolve.llm.batches.ledger import (
    BatchedModel,
    BatchLedger,
    BatchMeans,
    batch_price,
    takes_batches,
)
from textevolve.llm.catalogue import embedder_of, locate
from textevolve.llm.chains.scope import ChainContext
from textevolve.llm.discovery import discover_model
from textevolve.llm.limiting import RateBucket
from textevolve.llm.mapreduce import compress
from textevolve.llm.model import Journal, Model, Request, Response
from textevolve.llm.prices import find_price
from textevolve.llm.providers import FORMS, Endpoint, resolve
from textevolve.llm.refusals import check_request_fits
from textevolve.llm.target_calls import open_target_model
from textevolve.llm.targets import Target
from textevolve.llm.verdicts import let_decide
from textevolve.llm.wrappers import Allowance, Budget, Budgeted, Journaled, Retrying, Salted
from textevolve.memory.cue import Recall, nothing
from textevolve.memory.ranking import MemoryModels
from textevolve.memory_snapshots import (
    PinnedAgent,
    read_agent,
    recall_for_debater,
    with_stored_agents,
)
from textevolve.metrics.label_metrics import Grader, open_metric, reads_trajectory
from textevolve.metrics.plain import check_metric
from textevolve.settings import Price, Settings
from textevolve.spans import NO_SPAN, Span
from textevolve.store.repository import Store, open_resources
from textevolve.tracing.opening import open_tracing
from textevolve.user_code import OWN, FirstResults, load_user_object

ModelOf: TypeAlias = Callable[[str], Model]
"""A function that returns the model of a spec, the text that names a provider and a model."""

Mode: TypeAlias = Literal["live", "replay", "rehearsed"]
"""How a study runs: `live` calls models for answers that its journal does not hold, `replay` uses
the journal alone, and `rehearsed` estimates the cost with made-up answers of typical lengths."""

CALLS_IN_FLIGHT = 32
"""The default number of cases to run at once, for models of other machines."""
FREE = Price(input=0, output=0)
"""The price of a call to a target, the application under test: limits of cost and tokens apply to
models and judges alone."""

Halt: TypeAlias = Callable[[], Awaitable[str]]
"""A function that is called before each model call. It returns the reason why no more calls may be
made, for example because a server shuts down; empty: continue."""


async def never() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The budget of a run: `cost` in US dollars, `tokens` of prompts and answers, number of
    `calls`; None: no limit. `spent`: earlier usage, which counts against the limits.

    Raises:
        InputError: a limit is below 0, infinite, or no number.
    """

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    spent: Usage = Usage()

    def __post_init__(self) -> None:
        for name in ("cost", "tokens", "calls"):
            limit = getattr(self, name)
            if limit is None:
                continue
            is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if not is_number or not 0 <= limit < math.inf:
                raise InputError(
                    f"the limit of {name} must be a finite number, 0 or more, not {limit!r:.40}"
                )


def take_limits(limits: Limits | None) -> Limits:
    """Return the limits, or `Limits()` for None.

    Raises:
        InputError: the value is of another type.
    """
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"limits must be a Limits or None, not {type(limits).__name__}")
    return limits or Limits()


def make_budget(limits: Limits | Budget | None) -> Budget:
    if isinstance(limits, Budget):
        return limits
    limits = take_limits(limits)
    return Budget(cost=limits.cost, tokens=limits.tokens, calls=limits.calls, spent=limits.spent)


def allow_calls(spec: str, settings: Settings, budget: Budget) -> Allowance:
    """Return the allowance that charges calls of this model to the budget, for calls that do not go
    through `Workbench.model_of`."""
    endpoint = resolve(spec, settings, asks=False)
    return Allowance(spec, budget, find_price(endpoint), reports_cost=endpoint.reports_cost)


@dataclass(frozen=True)
class Setting:
    """The facts of a run on which its workbench depends. `models`: all models that the run may
    call. `today`: the date in prompts, as YYYY-MM-DD. `objects`: the user's Python objects by their
    names in the specification. `time_limit`: in seconds; None: no limit. `run`: the name of the run
    for external systems. `described`: further inputs that the run depends on, such as the versions
    of its agents and memory collections. `ordered`: whether records come in the order of the cases,
    instead of the order in which they are finished. `draw`: the number of the rehearsal, if it is
    one."""

    default_model: str
    models: tuple[str, ...]
    today: str
    objects: Mapping[str, object] = empty_default(dict)
    time_limit: float | None = None
    run: str = ""
    described: Mapping[str, Any] = empty_default(dict)
    mode: Mode = "live"
    ordered: bool = True
    draw: int = 0

    @property
    def is_live(self) -> bool:
        """Tell whether the run may change memories and agents, and warn its user."""
        return self.mode == "live"

    @property
    def is_replay(self) -> bool:
        return self.mode == "replay"

    @property
    def is_rehearsal(self) -> bool:
        """Tell whether the run only estimates its cost: then its answers are made up, so nothing is
        kept of it, and no function or system of the user is called."""
        return self.mode == "rehearsed"


@dataclass(frozen=True, kw_only=True)
class Workbench(Setting):
    """The tools with which a study works.

    Attributes:
        target_of: Opens the application under test as a model.
        embed: Embeds a text with the embedder of a collection. In a cost estimate the embedders are
            called too, but the vectors are constants.
        judge_of: Opens a judge, with an optional rubric, once.
        fill: Puts stored agents, in the versions that the run pins, into a profile.
        resources: The store of namespaces, agents and memories.
        budget: Shared by all models.
        first_results: Returns the first results of a scorer or a program of the user, by its name.
        recall: Recalls memories for debaters, from the pinned versions of their collections if the
            run pins them.
        tracing: The root of spans.
        concurrency: The number of cases worth running at once.
        calls_per_case: The number of concurrent calls within a case.
        deadline: The end of the time limit, as `time.monotonic` counts; None: no limit.
        first: The position of the first case.
    """

    settings: Settings
    model_of: ModelOf
    target_of: Callable[[Target], Model]
    embed: MemoryModels
    judge_of: Callable[..., Evaluator]
    fill: Callable[[Profile], Profile]
    journal: Journal
    resources: Store
    budget: Budget = field(default_factory=Budget)
    first_results: Callable[[str], FirstResults] = FirstResults
    recall: Recall = nothing
    tracing: Span = NO_SPAN
    listener: Listener = silence
    concurrency: int = CALLS_IN_FLIGHT
    calls_per_case: int = 64
    deadline: float | None = None
    first: int = 0

    @property
    def model(self) -> Model:
        """The study's own model."""
        return self.model_of(self.default_model)

    def whole_judge_of(self, judge: Judge, rubric: str = "") -> Evaluator:
        """Open a judge like `judge_of`, but a debate that a limit cuts short raises BudgetError."""
        return keep_whole(self.judge_of(judge, rubric))

    def debate_of(self, profile: Profile, recall: str | None) -> Debate:
        """Open a debate by a profile. `recall`: the name of the user's own function that recalls
        memories."""
        recall_memories = self.recall
        if recall is not None:
            recall_memories = cast(Recall, load_user_object(recall, self.objects))

        return Debate(
            profile=self.fill(profile),
            model_of=lambda agent: self.model_of(agent.model or self.default_model),
            recall=recall_memories,
            recalls_all=recall is not None,
            put_agents=self.fill,
            listener=listener_of_steps(self.listener),
            concurrency=self.calls_per_case,
            today=self.today,
        )

    def require_time(self) -> None:
        """Raise BudgetError if the time limit is reached."""
        if self.seconds_left == 0:
            raise BudgetError("the time limit is reached; resume the run to continue")

    def metric_of(self, name: str) -> Grader:
        """Open a metric by its name, or the metric that the user's code passed under this name."""
        if name.startswith(OWN):
            metric = check_metric(load_user_object(name, self.objects), name)
        else:
            metric = open_metric(name)

        first_results = self.first_results(f"metric {name.removeprefix(OWN)}")
        # Rows without a record of tool calls may come first, and say nothing of the others.
        return Grader(metric, FirstResults(name) if reads_trajectory(name) else first_results)

    def chain_context(self, case: str = "") -> ChainContext:
        """Return the context in which chains run on this bench. `case`: the case that events
        name."""
        return ChainContext(
            model_of=self.model_of,
            default_model=self.default_model,
            listener=self.listener,
            case=case,
            rehearsed=self.is_rehearsal,
        )

    def keep(self, model: Model) -> Model:
        """Wrap a model of the study itself, such as a memory system, so that the journal stores its
        answers. In a replay the journal answers instead; in a cost estimate the model is returned
        unchanged."""
        if self.is_live:
            return Journaled(model, self.journal, self.listener)
        return self.model_of(model.name) if self.is_replay else model

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


@asynccontextmanager
async def open_workbench(
    setting: Setting,
    settings: Settings,
    journal: Journal,
    limits: Limits | Budget = Limits(),
    listener: Listener = silence,
    *,
    models: ModelOf | None = None,
    halt: Halt = never,
    batches: BatchLedger | None = None,
) -> AsyncGenerator[Workbench]:
    """Open the models and judges of a run. `models`: replaces the models of the settings. `halt`:
    called before each model call; a non-empty reason stops the calls. `batches`: the store of batch
    jobs; None: no batch jobs."""
    # A model that embeds has no slots and holds nothing up, so the others decide.
    chat_models = [name for name in setting.models if embedder_of(name) is None]
    local = bool(chat_models) and all(name.startswith("local/") for name in chat_models)
    concurrency = settings.concurrency or (settings.local.slots if local else CALLS_IN_FLIGHT)
    calls_per_case = 1 if local else 64
    if settings.batch and batches is not None:  # as many as may wait, so that jobs are large
        concurrency = calls_per_case = settings.batches.in_flight
    limit = setting.time_limit
    deadline = None if limit is None else time.monotonic() + limit

    async with AsyncExitStack() as stack:
        model_of = models
        budget = make_budget(limits)
        if model_of is None:
            addresses = setting.described.get("addresses", {})
            opened = open_models(
                settings, journal, budget, listener, halt, batches, deadline, addresses
            )
            model_of = await stack.enter_async_context(opened)
        model_of = let_decide(model_of, settings)
        targets: dict[str, Model] = {}
        callees: Mapping[str, str] = setting.described.get("callees", {})

        def target_of(target: Target) -> Model:
            content = callees.get(target.label, "")
            if models is not None:
                return models(target.journal_name + content)
            key = target.model_dump_json()
            if key not in targets:
                limited = open_target_model(
                    target, setting.objects, settings, listener, stack, content
                )
                model: Model = Retrying(
                    limited, settings.retries, settings.timeouts.deadline, listener
                )
                model = Budgeted(model, budget, FREE) if budget.limits else model
                targets[key] = _journaled(model, halt, journal, listener)

            return targets[key]

        resources = open_resources(settings)
        stack.callback(resources.close)
        tracing = open_tracing(settings) if setting.is_live else NO_SPAN
        first_results = cache(partial(FirstResults, stops=setting.is_live))

        async def model_of_memories(name: str) -> Model:
            return model_of(name)

        versions = setting.described.get("collections")
        rerank = settings.memory.rerank
        if versions is not None:
            rerank = setting.described.get("rerank", "auto")
        embed = MemoryModels(model_of_memories, rerank, made_up=setting.is_rehearsal)

        async def summarize(texts: Sequence[str], budget: int) -> str:
            return (await compress(model_of(setting.default_model), texts, budget)).text

        pinned: Mapping[str, Any] | None = setting.described.get("agents")

        def agent_of(name: str) -> PinnedAgent:
            if pinned is None:  # nothing is to be made again: the agent as it is now
                return read_agent(resources, name, settings.namespace)
            return PinnedAgent.model_validate(pinned[name])

        fill = partial(with_stored_agents, agent_of=agent_of)
        recall = partial(
            recall_for_debater, resources, settings.namespace, embed, versions, summarize
        )
        judges = Judges(
            setting.default_model,
            model_of,
            listener_of_steps(listener),
            calls_per_case,
            setting.today,
            setting.objects,
            recall=recall,
            fill=fill,
            tracing=tracing,
            first_results=first_results,
        )
        yield Workbench(
            **vars(setting),
            settings=settings,
            model_of=model_of,
            target_of=target_of,
            embed=embed,
            judge_of=cache(judges.open),
            fill=fill,
            tracing=tracing,
            journal=journal,
            resources=resources,
            budget=budget,
            first_results=first_results,
            recall=recall,
            listener=listener,
            concurrency=concurrency,
            calls_per_case=calls_per_case,
            deadline=deadline,
        )


@asynccontextmanager
async def open_models(
    settings: Settings,
    journal: Journal,
    limits: Limits | Budget | None = None,
    listener: Listener = silence,
    halt: Halt = never,
    batches: BatchLedger | None = None,
    deadline: float | None = None,
    addresses: Mapping[str, str] = {},
) -> AsyncGenerator[ModelOf]:
    """Yield a function that returns the model of a spec; all models share one budget. With
    `batches`, calls are sent as batch jobs if the settings say so, and the call waits for open jobs
    until the `deadline` (as `time.monotonic` counts). `addresses`: what is added to the keys of the
    calls of models whose address is another than before, since it gives other answers."""
    budget = make_budget(limits)
    models: dict[str, Model] = {}
    limits_of: dict[str, tuple[RateBucket, ...]] = {}

    async with AsyncExitStack() as stack:

        async def open_one(spec: str, ledger: BatchLedger | None = None) -> Model:
            from textevolve.llm import opening

            if ledger is not None:
                journal_of_address = Salted(journal, addresses.get(spec, ""))
                means = BatchMeans(settings, ledger, journal_of_address, stack, listener, deadline)
                return await opening.open_gatherer(spec, means)
            model = await opening.open_model(spec, settings, stack, listener, limits_of)
            return Retrying(model, settings.retries, settings.timeouts.deadline, listener)

        def bound(model: Model, price_of: Callable[[Endpoint], Price | None]) -> Model:
            if not budget.limits:
                return model
            endpoint = resolve(model.name, settings, asks=False)
            return Budgeted(model, budget, price_of(endpoint), reports_cost=endpoint.reports_cost)

        def model_of(spec: str) -> Model:
            if spec not in models:
                model = bound(_Opening(spec, settings, open_one), find_price)
                if batches is not None and takes_batches(resolve(spec, settings, asks=False)):
                    gatherer = _Opening(spec, settings, partial(open_one, ledger=batches))
                    model = BatchedModel(model, bound(gatherer, batch_price))
                # Another server under a known name gives other answers.
                moved_to = addresses.get(spec, "")
                journal_of_address = Salted(journal, moved_to) if moved_to else journal
                models[spec] = _journaled(model, halt, journal_of_address, listener)

            return models[spec]

        yield model_of


def _journaled(model: Model, halt: Halt, journal: Journal, listener: Listener) -> Model:
    """Wrap a model in the journal. If the run is halted, stored answers are still returned, and new
    calls raise BudgetError."""
    return Journaled(model if halt is never else _Haltable(model, halt), journal, listener)


@dataclass(frozen=True, slots=True)
class _Haltable:
    """A model that makes no new calls once the run is halted; calls in flight are completed."""

    model: Model
    halt: Halt

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        if reason := await self.halt():
            raise BudgetError(reason)
        return await self.model(request)


@dataclass(slots=True)
class _Opening:
    """A model that is opened by `open` at its first call."""

    name: str
    settings: Settings
    open: Callable[[str], Awaitable[Model]]
    _model: Model | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, request: Request, /) -> Response:
        if self._model is None:
            async with self._lock:
                if self._model is None:
                    endpoint = resolve(self.name, self.settings)
                    check_request_fits(endpoint, request)  # before weights are fetched
                    self._model = await self.open(self.name)

        return await self._model(request)


async def choose_model(
    settings: Settings, model: str | None, *, asks: bool = True
) -> tuple[str, str]:
    """Return the full spec of the model to use, and the reason for the choice: `model`, or the
    model of the settings, or else one that is discovered. `asks`: the model will be called, so its
    key must be available.

    Raises:
        SettingsError: there is no such provider, key or local weights.
    """
    if model is not None and not model.strip():
        raise SettingsError(f"the model's name is empty; write {FORMS}, or leave the model out")
    name = model or settings.model

    if name:
        endpoint = resolve(name, settings, asks=asks)
        if endpoint.is_local:
            locate(endpoint.model, settings.weights_folder)
        return endpoint.spec, "named" if model else "configured"

    choice = await discover_model(settings)

    return choice.spec, choice.reason
