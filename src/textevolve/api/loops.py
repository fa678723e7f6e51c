"""Generate a profile, innovate, guide, async and sync; and judges as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from textevolve.debate.profile import Profile, load_profile, override
from textevolve.engine import sync
from textevolve.events import Listener, silence
from textevolve.loops.callables import as_evaluator
from textevolve.loops.guidance import Plan as GuidePlan
from textevolve.loops.innovation import Plan
from textevolve.loops.metrics import Metric, Pick
from textevolve.memory.recall import Recall, nothing
from textevolve.runs.guiding import (
    GuidedAnswer,
    begin_guidance,
    do_guidance,
    specify_guidance,
)
from textevolve.runs.innovating import (
    Innovated,
    begin_innovation,
    do_innovation,
    specify_innovation,
)
from textevolve.runs.optimization import Judge
from textevolve.runs.profiles import GeneratedProfile, begin_profile, write_kept_profile
from textevolve.runs.standing import StandingJudge
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


class Innovating(TypedDict, total=False):
    """How an input is refined; see `Plan` for ranges and meaning."""

    outputs: int
    fresh: int
    rounds: int
    min_gain: float
    patience: int
    threshold: float | None
    temperature: float
    max_answer_tokens: int
    seconds: float | None
    seed: int


async def ainnovate(
    input: str,
    evaluator: Judge = "debate",
    *,
    model: str | None = None,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
    **plan: Unpack[Innovating],
) -> Innovated:
    """Refine an input by what a judge says of its outputs, for as long as their scores rise.

    `evaluator`: a judge's spec, or an evaluator. The same call again is answered from the store,
    but for what an evaluator of your own does.

    Raises:
        InputError: the input, the judge or a number cannot be used.
        FatalModelError: no call can succeed.
    """
    chosen = Plan(**plan)
    settings = settings or read_settings({"model": model, "store": store})[0]
    spec = await specify_innovation(settings, evaluator, chosen, model)
    async with open_store(Path(store or settings.store)) as opened:
        run = begin_innovation(opened, spec, input, name=name)
        return await do_innovation(opened, run, evaluator, chosen, settings, limits, listener)


def innovate(
    input: str,
    evaluator: Judge = "debate",
    *,
    model: str | None = None,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
    **plan: Unpack[Innovating],
) -> Innovated:
    """`ainnovate`, waited for; also where an event loop runs."""
    return sync.run(
        ainnovate(
            input,
            evaluator,
            model=model,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            name=name,
            **plan,
        )
    )


async def aguide(
    question: str,
    *,
    candidates: Iterable[str] = (),
    profile: str | Path | Profile | None = None,
    evaluator: Judge | None = None,
    debate: Mapping[str, Any] | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    proposals: int = 3,
    temperature: float = 0.0,
    max_answer_tokens: int = 800,
    seconds: float | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GuidedAnswer:
    """Answer a question with a debate about `candidates` as reasoning in the prompt, and without.

    So many `proposals` are drawn where no candidates are given. `debate` sets parameters of the
    profile, `evaluator` judges both answers. The same call again is answered from the store.

    Raises:
        InputError: the question, a candidate, the profile or a number cannot be used.
        FatalModelError: no call can succeed.
    """
    plan = GuidePlan(
        proposals=proposals,
        temperature=temperature,
        max_answer_tokens=max_answer_tokens,
        seconds=seconds,
        seed=seed,
    )
    settings = settings or read_settings({"model": model, "store": store})[0]
    base = profile if isinstance(profile, Profile) else load_profile(profile or settings.profile)
    whole = override(base, dict(debate or {}))
    spec = await specify_guidance(settings, whole, evaluator, plan, model, recall)
    async with open_store(Path(store or settings.store)) as opened:
        run = begin_guidance(opened, spec, question, tuple(candidates), name=name)
        return await do_guidance(opened, run, evaluator, plan, settings, limits, listener, recall)


def guide(
    question: str,
    *,
    candidates: Iterable[str] = (),
    profile: str | Path | Profile | None = None,
    evaluator: Judge | None = None,
    debate: Mapping[str, Any] | None = None,
    model: str | None = None,
    recall: Recall = nothing,
    proposals: int = 3,
    temperature: float = 0.0,
    max_answer_tokens: int = 800,
    seconds: float | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GuidedAnswer:
    """`aguide`, waited for; also where an event loop runs."""
    return sync.run(
        aguide(
            question,
            candidates=candidates,
            profile=profile,
            evaluator=evaluator,
            debate=debate,
            model=model,
            recall=recall,
            proposals=proposals,
            temperature=temperature,
            max_answer_tokens=max_answer_tokens,
            seconds=seconds,
            seed=seed,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            name=name,
        )
    )


async def agenerate_profile(
    subject: str,
    *,
    agents: int = 3,
    model: str | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GeneratedProfile:
    """A profile for judging `subject`, written by a model. The same call again is answered from
    the store.

    Raises:
        InputError: nothing is to be judged, or the number of agents is not 2 to 12.
        AnswerError: no usable profile came in two attempts; says what was wrong.
        BudgetError: a limit was reached before.
    """
    settings = settings or read_settings({"model": model, "store": store})[0]
    async with open_store(Path(store or settings.store)) as opened:
        run = await begin_profile(opened, settings, subject, agents, model, seed, name)
        return await write_kept_profile(opened, run, settings, limits, listener)


def generate_profile(
    subject: str,
    *,
    agents: int = 3,
    model: str | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GeneratedProfile:
    """`agenerate_profile`, waited for; also where an event loop runs."""
    return sync.run(
        agenerate_profile(
            subject,
            agents=agents,
            model=model,
            seed=seed,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            name=name,
        )
    )


def as_metric(
    evaluator: Judge,
    *,
    input: Pick = None,
    output: Pick = None,
    threshold: float | None = None,
    missing: float | None = None,
    model: str | None = None,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
) -> Metric:
    """A judge as a metric for DSPy, GEPA and plain Python; see `Metric`.

    `evaluator`: a judge's spec, such as "probe+rules", or an evaluator. One that is named by its
    spec stays open until the metric is closed: use `with`, or leave it to the end of the program.

    Raises:
        InputError: the judge, or a number, cannot be used.
    """
    if not isinstance(evaluator, str):
        return Metric(as_evaluator(evaluator), input, output, threshold, missing)
    settings = settings or read_settings({"model": model, "store": store})[0]
    judge = StandingJudge(
        evaluator, settings, Path(store or settings.store), model=model, limits=limits
    )
    return Metric(judge, input, output, threshold, missing, judge.close)
