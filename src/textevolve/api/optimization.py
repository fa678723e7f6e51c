"""`optimize` and `aoptimize`: one answer, improved attempt by attempt."""

from __future__ import annotations

from pathlib import Path

from textevolve.engine import sync
from textevolve.events import Listener, silence
from textevolve.loops.attempt import Generator
from textevolve.loops.controller import OSCILLATION_LIMIT
from textevolve.loops.generation import MOST_TOKENS, TEMPERATURE
from textevolve.loops.optimization import Optimization
from textevolve.loops.rules import Rules
from textevolve.runs.optimization import (
    Judge,
    Plan,
    as_case,
    begin_optimization,
    choose_judges,
    do_optimization,
    name_judge,
    specify_optimization,
)
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


async def aoptimize(
    task: str,
    *,
    evaluator: Judge | None = None,
    generator: Generator | None = None,
    rules: str | Path | Rules | None = None,
    rules_weight: float = 0.5,
    second_judge: Judge | None = None,
    threshold: float = 0.8,
    max_iterations: int = 3,
    revise: bool = True,
    min_improvement: float = 0.05,
    convergence_window: int = 2,
    oscillation_limit: float | None = OSCILLATION_LIMIT,
    minimum_score: float | None = None,
    samples: int = 1,
    model: str | None = None,
    judge_model: str | None = None,
    temperature: float = TEMPERATURE,
    max_answer_tokens: int = MOST_TOKENS,
    seed: int = 0,
    seconds: float | None = None,
    limits: Limits = Limits(),
    listener: Listener = silence,
    store: str | Path | None = None,
    settings: Settings | None = None,
    name: str = "",
) -> Optimization:
    """The best text for a task by a judge's measure. The same call again is answered from the
    store.

    `evaluator`: a judge's spec such as `probe+rules`, or any `Evaluator`; where it is not given, a
    single judge, or `rules` alone where those are. `generator`: any `Generator`, in place of the
    model's. `seconds` is a limit of time.

    Raises:
        InputError: the task, a judge, rules or a parameter cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: the model's endpoint refuses every call.
    """
    judge, found = choose_judges(evaluator, rules, judge_model)
    plan = Plan(
        evaluator=judge,
        rules=found,
        rules_weight=rules_weight,
        second_judge=(
            name_judge(second_judge, judge_model) if isinstance(second_judge, str) else second_judge
        ),
        generator=generator,
        threshold=threshold,
        max_iterations=max_iterations,
        revise=revise,
        min_improvement=min_improvement,
        convergence_window=convergence_window,
        oscillation_limit=oscillation_limit,
        minimum_score=minimum_score,
        samples=samples,
        temperature=temperature,
        max_answer_tokens=max_answer_tokens,
        seed=seed,
    )
    case = as_case(task)
    settings = settings or read_settings({"model": model, "store": store})[0]
    spec = await specify_optimization(settings, plan, model)
    async with open_store(Path(store or settings.store)) as opened:
        run = begin_optimization(opened, spec, [case], name=name, source="Python")
        (made,) = await do_optimization(
            opened, run, plan, settings, limits, listener, seconds=seconds
        )
        return made


def optimize(
    task: str,
    *,
    evaluator: Judge | None = None,
    generator: Generator | None = None,
    rules: str | Path | Rules | None = None,
    rules_weight: float = 0.5,
    second_judge: Judge | None = None,
    threshold: float = 0.8,
    max_iterations: int = 3,
    revise: bool = True,
    min_improvement: float = 0.05,
    convergence_window: int = 2,
    oscillation_limit: float | None = OSCILLATION_LIMIT,
    minimum_score: float | None = None,
    samples: int = 1,
    model: str | None = None,
    judge_model: str | None = None,
    temperature: float = TEMPERATURE,
    max_answer_tokens: int = MOST_TOKENS,
    seed: int = 0,
    seconds: float | None = None,
    limits: Limits = Limits(),
    listener: Listener = silence,
    store: str | Path | None = None,
    settings: Settings | None = None,
    name: str = "",
) -> Optimization:
    """`aoptimize`, waited for; also where an event loop runs."""
    return sync.run(
        aoptimize(
            task,
            evaluator=evaluator,
            generator=generator,
            rules=rules,
            rules_weight=rules_weight,
            second_judge=second_judge,
            threshold=threshold,
            max_iterations=max_iterations,
            revise=revise,
            min_improvement=min_improvement,
            convergence_window=convergence_window,
            oscillation_limit=oscillation_limit,
            minimum_score=minimum_score,
            samples=samples,
            model=model,
            judge_model=judge_model,
            temperature=temperature,
            max_answer_tokens=max_answer_tokens,
            seed=seed,
            seconds=seconds,
            limits=limits,
            listener=listener,
            store=store,
            settings=settings,
            name=name,
        )
    )
