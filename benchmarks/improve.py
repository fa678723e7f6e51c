"""Does optimize, or calibrate, make texts better than the same number of calls would without it?

    python benchmarks/improve.py [--part tasks|calibrate] [--judges single ...] [--limit N]
        [--seeds 5] [--model MODEL] [--store FILE] [--no-ask] [--json FILE]

`tasks`: short writing tasks whose success is checked by code (`improve_tasks.py`). Compared are one
attempt, the best of three by a judge, and three attempts of `optimize`, revising and in its mode
auto, by the same judge, which never sees the check. `calibrate`: a template searched for from a
vague one, the best of paraphrases at as many calls, and the vague one itself, on rows held out
(`improve_templates.py`).

Every call is journaled (`--store`), so it can be stopped at any time and started again; `--no-ask`
prints the figures of what is there. A call that another arm has made already is not made again, but
it is counted in each arm that needs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from improve_tasks import TASKS, Task
from improve_templates import measure_templates
from kept_run import keep_run, open_run
from sitting import InTurn, Spent, describe_machine, format_share, judge_in_turn
from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, BudgetError, UnavailableError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, Usage
from textevolve.events import Event
from textevolve.judges.judge import parse_judge
from textevolve.llm.model import Model
from textevolve.loops.attempt import Attempt
from textevolve.loops.optimization import (
    ModelGenerator,
    OptimizationContext,
    OptimizationMode,
    OptimizationPlan,
    Stopping,
    choose_best,
    optimize_text,
)
from textevolve.settings import Settings, read_settings
from textevolve.statistics.comparisons import difference_interval, sign_flip_test
from textevolve.store.repository import Store, open_store
from textevolve.studies.optimize import DEFAULT_JUDGE
from textevolve.wiring import Limits, Workbench

ATTEMPTS = 3
MOST_TOKENS = 120
BLOCK = 12
"""Tasks that go side by side, so that calls of one kind follow each other and share a prefix."""

ONE, BEST, LOOP = "one attempt", "best of 3 by the judge", "optimize, 3 attempts"
SHIPPED = "optimize, may stop at 0.8"
AUTO = "optimize, auto"
ORACLE, RULED = "best of 3 by the check", "optimize by the check"
PAIRS = (
    *((BEST, ONE), (LOOP, ONE), (LOOP, BEST), (SHIPPED, ONE), (AUTO, ONE), (AUTO, LOOP)),
    *((AUTO, BEST), (RULED, ONE), (RULED, ORACLE)),
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
    shipped = stop_early(loop)
    auto = await improve(task, model, judge, "auto")
    arms = {
        ONE: Tried(task.passes(sampled[0]), sampling[0]),
        BEST: Tried(task.passes(best), sum(sampling, judging)),
        LOOP: _of_loop(task, loop),
        SHIPPED: _of_loop(task, shipped),
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


def stop_early(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The attempts that a loop makes that revises, with its defaults: the first of these."""
    stopping = Stopping(max_iterations=ATTEMPTS)
    for number in range(1, len(attempts)):
        scores = [a.score for a in attempts[:number] if a.score is not None]
        if stopping.decide(scores, number):
            return tuple(attempts[:number])
    return tuple(attempts)


def _of_loop(task: Task, attempts: Sequence[Attempt]) -> Tried:
    best = choose_best(attempts)
    usage = sum((attempt.usage for attempt in attempts), Usage())
    return Tried(task.passes(best.output if best else None), usage)


async def measure_tasks(
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
            outcomes = await try_block(block, bench, bench.whole_judge_of(parse_judge(judge)))
            done += [outcome for outcome in outcomes if outcome is not None]
            progress = f"{judge}: {start + len(block)} of {len(tasks)} tasks"
            print(progress, file=sys.stderr, flush=True)
    return done


async def try_block(
    tasks: Sequence[Task], bench: Workbench, judge: Evaluator
) -> list[Outcome | None]:
    """In the order of their steps: all first attempts, then all judgements of them, and so on."""
    queue = asyncio.Semaphore(bench.concurrency)
    model = InTurn(bench.model, queue)

    async def work(task: Task) -> Outcome | None:
        try:
            return await try_task(task, model, judge_in_turn(judge, queue))
        except BudgetError:
            return None
        except UnavailableError as error:
            print(f"{task.id}: not done, {error}", file=sys.stderr, flush=True)
            return None

    return await gather_bounded([lambda t=task: work(t) for task in tasks], len(tasks))


def show_tasks(judge: str, outcomes: Sequence[Outcome], tasks: int) -> dict[str, Any]:
    """Prints the figures, and gives them as data."""
    number = len(outcomes)
    print(f"\njudge {judge}: {number} of {tasks} tasks done; a passed task passes every check")
    if not number:
        return {"judge": judge, "tasks": 0}
    print(f"{'':28} {'passed':>28} {'calls':>6} {'prompt':>7} {'written':>8}   (a task)")
    passed: dict[str, list[float]] = {}
    for name in (ONE, BEST, LOOP, SHIPPED, AUTO, ORACLE, RULED):
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
    return {"judge": judge, "tasks": number, "passed": passed}


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


async def main(arguments: Sequence[str] | None = None) -> tuple[str | None, dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", choices=["tasks", "calibrate"], help="one of both alone")
    parser.add_argument("--judges", nargs="+", default=[DEFAULT_JUDGE])
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--limit", type=int, help="the first N tasks; N held-out rows of a seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-ask", action="store_true", help="figures of what is there")
    parser.add_argument("--store", help="the file that keeps runs")
    parser.add_argument("--json", help="figures to this file")
    options = parser.parse_args(arguments)
    print(describe_machine())
    print(f"{options.model}, {len(TASKS)} tasks, {options.seeds} seeds")
    settings = read_settings(store=options.store or None)
    limits = Limits(calls=0) if options.no_ask else Limits()
    figures: dict[str, Any] = {"model": options.model}
    with open_store(settings.store) as store:
        if options.part != "calibrate":
            tasks = TASKS[: options.limit]
            for judge in options.judges:
                spent = Spent()
                done = await measure_tasks(
                    store, settings, judge, options.model, tasks, limits, spent.hear
                )
                figures[f"tasks by {judge}"] = show_tasks(judge, done, len(tasks))
                print(spent)
        if options.part != "tasks":
            spent = Spent()
            figures["calibrate"] = await measure_templates(
                store,
                settings,
                options.model,
                range(options.seeds),
                options.limit,
                limits,
                spent.hear,
            )
            print(spent)
    return options.json, figures


if __name__ == "__main__":
    file, data = asyncio.run(main())
    if file:
        Path(file).write_text(json.dumps(data) + "\n", encoding="utf-8")
