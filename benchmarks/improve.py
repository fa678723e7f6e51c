"""Does optimize make texts better than the same number of calls would without it?

    python benchmarks/improve.py [--judges single ...] [--limit N] [--model MODEL] [--store FILE]
        [--no-ask]

Short writing tasks whose success is checked by code (`improve_tasks.py`). Compared are one attempt,
the best of three by a judge, and three attempts of `optimize`, revising and in its mode auto, by
the same judge, which never sees the check.

Every call is journaled (`--store`), so it can be stopped at any time and started again; `--no-ask`
prints the figures of what is there. A call that another arm has made already is not made again, but
it is counted in each arm that needs it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from improve_tasks import TASKS, Task
from kept_run import add_options, keep_run, open_run, work_in_turn
from sitting import Spent, describe_machine, format_share
from textevolve.errors import AnswerError, BudgetError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, Usage
from textevolve.events import Event
from textevolve.llm.model import Model
from textevolve.loops.attempt import Attempt
from textevolve.loops.optimization import (
    ModelGenerator,
    OptimizationContext,
    OptimizationMode,
    OptimizationPlan,
    choose_best,
    optimize_text,
)
from textevolve.settings import Settings, read_settings
from textevolve.statistics.comparisons import difference_interval, sign_flip_test
from textevolve.store.repository import Store, open_store
from textevolve.wiring import Limits

ATTEMPTS = 3
MOST_TOKENS = 120
BLOCK = 12
"""Tasks that go side by side, so that calls of one kind follow each other and share a prefix."""

ONE, BEST, LOOP = "one attempt", "best of 3 by the judge", "optimize, 3 attempts"
AUTO = "optimize, auto"
ORACLE, RULED = "best of 3 by the check", "optimize by the check"
PAIRS = (
    *((BEST, ONE), (LOOP, ONE), (LOOP, BEST), (AUTO, ONE), (AUTO, LOOP), (AUTO, BEST)),
    *((RULED, ONE), (RULED, ORACLE)),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a task in one arm."""

    passed: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task in every arm. `scores`: of the sampled texts that have one, with whether each passes.
    `unwritten`: attempts that were cut or did not come; `unscored`: those that were written, but
    that the judge gave no score."""

    task: Task
    arms: Mapping[str, Tried]
    scores: tuple[tuple[float, bool], ...]
    unwritten: int
    unscored: int


async def try_task(task: Task, model: Model, judge: Evaluator) -> Outcome:
    """One task in all arms.

    Raises:
        BudgetError: something of it has not been asked yet. ModelError: an answer did not come.
    """
    sampled, sampling = await sample(task, model)
    judged = [await judge_one(task, text, judge) for text in sampled]
    scored = [(s, t) for (s, _), t in zip(judged, sampled, strict=True) if s is not None]
    best = max(scored, key=lambda pair: pair[0])[1] if scored else None
    judging = sum((usage for _, usage in judged), Usage())
    loop = await improve(task, model, judge)
    ruled = await improve(task, model, task.judge)
    auto = await improve(task, model, judge, "auto")
    arms = {
        ONE: Tried(task.passes(sampled[0]), sampling[0]),
        BEST: Tried(task.passes(best), sum(sampling, judging)),
        LOOP: _of_loop(task, loop),
        AUTO: _of_loop(task, auto),
        ORACLE: Tried(any(task.passes(text) for text in sampled), sum(sampling, Usage())),
        RULED: _of_loop(task, ruled),
    }
    marks = tuple((score, task.passes(text)) for score, text in scored)
    unwritten = sampled.count(None) + sum(a.output is None for a in (*loop, *auto, *ruled))
    unscored = ATTEMPTS - sampled.count(None) - len(scored)
    unscored += sum(a.output is not None and a.score is None for a in loop)
    return Outcome(task, arms, marks, unwritten, unscored)


async def sample(task: Task, model: Model) -> tuple[list[str | None], list[Usage]]:
    """Attempts that know nothing of each other; None for one that was cut or is empty.

    Raises:
        BudgetError: one has not been asked yet. ModelError: one did not come.
    """
    writer = ModelGenerator(model, OptimizationPlan(max_answer_tokens=MOST_TOKENS))
    texts, usages = list[str | None](), list[Usage]()
    for _ in range(ATTEMPTS):
        before = writer.usage
        try:
            text = await writer(task.text)
        except AnswerError:
            text = ""
        texts.append(text if text.strip() else None)
        usages.append(less(writer.usage, before))
    return texts, usages


def less(now: Usage, before: Usage) -> Usage:
    return Usage(
        now.calls - before.calls,
        now.prompt_tokens - before.prompt_tokens,
        now.cached_tokens - before.cached_tokens,
        now.completion_tokens - before.completion_tokens,
    )


async def judge_one(task: Task, text: str | None, judge: Evaluator) -> tuple[float | None, Usage]:
    """The score, None where there is none.

    Raises:
        BudgetError: it has not been asked yet.
    """
    if text is None:
        return None, Usage()
    evaluation = await judge(Case(task.text, (text,), task.id))
    (result,) = evaluation.result
    if isinstance(result, Failure) and result.kind == "skipped":
        raise BudgetError(result.reason)
    return (result.score if isinstance(result, EvaluationResult) else None), evaluation.usage


async def improve(
    task: Task, model: Model, judge: Evaluator, mode: OptimizationMode = "revise"
) -> tuple[Attempt, ...]:
    """All attempts of a loop that ends early only at the score 1."""
    plan = OptimizationPlan(
        mode=mode,
        threshold=1.0,
        max_iterations=ATTEMPTS,
        min_improvement=0.05 if mode == "auto" else 0.0,
        oscillation_limit=None,
    )
    writer = ModelGenerator(model, OptimizationPlan(max_answer_tokens=MOST_TOKENS))
    context = OptimizationContext(generator=writer, evaluator=judge)
    optimized = await optimize_text(task.text, plan, context, task.id)
    if optimized.status == "budget":
        raise BudgetError(optimized.reason)
    return optimized.attempts


def _of_loop(task: Task, attempts: Sequence[Attempt]) -> Tried:
    best = choose_best(attempts)
    usage = sum((attempt.usage for attempt in attempts), Usage())
    return Tried(task.passes(best.output if best else None), usage)


async def measure(
    store: Store,
    settings: Settings,
    judge: str,
    model: str,
    tasks: Sequence[Task],
    limits: Limits,
    listener: Callable[[Event], None],
) -> list[Outcome]:
    """The tasks that are done in every arm; the run holds all tasks, whatever is asked now."""
    parameters = {"benchmark": "improve", "attempts": ATTEMPTS, "max_tokens": MOST_TOKENS}
    cases = [Case(task.text, (), task.id) for task in TASKS]
    run = await keep_run(store, settings, model, parameters, cases, judge)
    done: list[Outcome] = []
    async with open_run(store, run, settings, limits, listener) as bench:
        for start in range(0, len(tasks), BLOCK):
            block = tasks[start : start + BLOCK]
            done += await work_in_turn(block, bench, judge, try_task)
            progress = f"{judge}: {start + len(block)} of {len(tasks)} tasks"
            print(progress, file=sys.stderr, flush=True)
    return done


def show(judge: str, outcomes: Sequence[Outcome], tasks: int) -> None:
    number = len(outcomes)
    print(f"\njudge {judge}: {number} of {tasks} tasks done; a passed task passes every check")
    if not number:
        return
    print(f"{'':28} {'passed':>28} {'calls':>6} {'prompt':>7} {'written':>8}   (a task)")
    passed: dict[str, list[float]] = {}
    for name in (ONE, BEST, LOOP, AUTO, ORACLE, RULED):
        tried = [outcome.arms[name] for outcome in outcomes]
        passed[name] = [float(attempt.passed) for attempt in tried]
        used = sum((attempt.usage for attempt in tried), Usage())
        print(
            f"{name:28} {format_share(passed[name]):>28} {used.calls / number:6.1f}"
            f" {used.prompt_tokens / number:7,.0f} {used.completion_tokens / number:8,.0f}"
        )
    print("The last two know the check: a ceiling for what a judge could do.")
    for arm, other in PAIRS:
        print(f"{arm} less {other}: {compare(passed[arm], passed[other])}")
    print(tell_pairs(outcomes))
    unwritten, unscored = (sum(o.unwritten for o in outcomes), sum(o.unscored for o in outcomes))
    print(f"attempts that were cut or empty: {unwritten}; that the judge gave no score: {unscored}")


def compare(scores: Sequence[float], baseline: Sequence[float]) -> str:
    """The paired difference in points, with a bootstrap interval and a sign-flip test."""
    test, interval = sign_flip_test(scores, baseline), difference_interval(scores, baseline)
    mean = 100 * (sum(scores) - sum(baseline)) / len(scores)
    ends = f"{100 * interval.low:+.0f} to {100 * interval.high:+.0f}"
    return (
        f"{mean:+.1f} points ({interval.reason or ends}); better on {test.first}, worse on"
        f" {test.second}, p {test.p:.3f}"
    )


def tell_pairs(outcomes: Sequence[Outcome]) -> str:
    """How often the judge tells a sampled text that passes from one of the same task that fails."""
    right = pairs = 0.0
    for outcome in outcomes:
        good = [score for score, passed in outcome.scores if passed]
        bad = [score for score, passed in outcome.scores if not passed]
        pairs += len(good) * len(bad)
        right += sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    share = f" ({right / pairs:.0%})" if pairs else ""
    return (
        f"the judge scores the text that passes above one that fails: {right:g} of {pairs:g}{share}"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, judges=["single"])
    parser.add_argument("--limit", type=int, help="the first N tasks")
    options = parser.parse_args()
    tasks = TASKS[: options.limit]
    print(describe_machine())
    print(f"{options.model}, {len(TASKS)} tasks")
    settings = read_settings(store=options.store or None)
    limits = Limits(calls=0) if options.no_ask else Limits()
    with open_store(settings.store) as store:
        for judge in options.judges:
            spent = Spent()
            done = await measure(store, settings, judge, options.model, tasks, limits, spent.hear)
            show(judge, done, len(tasks))
            print(spent)


if __name__ == "__main__":
    asyncio.run(main())
