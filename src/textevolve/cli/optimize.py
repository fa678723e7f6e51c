"""`textevolve optimize`: a text for a task, made better by a judge's measure; or for many tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import INTERRUPTED, PARTLY, options, say

if TYPE_CHECKING:
    from textevolve.evaluation import Case
    from textevolve.events import Event
    from textevolve.loops.attempt import Attempt
    from textevolve.loops.optimization import Optimization
    from textevolve.runs.optimization import Plan
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

ENDINGS = (".txt", ".jsonl", ".html")


def optimize(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK | TASKS",
            help="The task; @FILE reads it from a file, - from standard input. Or a file of tasks: "
            ".jsonl, .json, .csv or .parquet with the field task.",
        ),
    ],
    evaluator: Annotated[
        str | None,
        typer.Option(
            "--evaluator",
            "-e",
            help="The judge: single, debate:general, probe+rules, ...; rules:FILE.yaml; or "
            "hybrid:FILE.yaml:JUDGE. Default: single; with --rules the rules alone.",
        ),
    ] = None,
    rules_file: Annotated[
        str | None,
        typer.Option("--rules", help="A rules file that comes before the judge; it costs nothing."),
    ] = None,
    rules_weight: Annotated[
        float, typer.Option(help="Share of the rules in the score beside a judge, 0 to 1.")
    ] = 0.5,
    second_judge: Annotated[
        str | None, typer.Option(help="A judge that reports beside and is never optimised against.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="The score, 0 to 1, that is accepted.")] = 0.8,
    max_iterations: Annotated[int, typer.Option(help="Attempts at most.")] = 3,
    revise: Annotated[
        bool, typer.Option(help="Revise the attempt before, or write every attempt anew.")
    ] = True,
    min_improvement: Annotated[
        float, typer.Option(help="Gain below which the loop has converged.")
    ] = 0.05,
    convergence_window: Annotated[
        int, typer.Option(help="Over how many attempts that gain is wanted.")
    ] = 2,
    oscillation_limit: Annotated[
        float, typer.Option(help="Variance of three scores that turn back, above which it stops.")
    ] = 0.01,
    minimum_score: Annotated[
        float | None, typer.Option(help="The least that will do; exit code 3 where it is missed.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How often each attempt is judged.")] = 1,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Writes, and judges if nothing else does.")
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(help="Judges, where a judge names no model of its own.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the writing.")] = 0.7,
    max_answer_tokens: Annotated[int, typer.Option(help="Of an attempt.")] = 2000,
    seed: Annotated[int, typer.Option(help="Another seed writes other attempts.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Tasks in work at once.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time.")] = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line for each task, with its attempts.")
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            help="The best text to .txt, the history to .jsonl or .html; repeatable.",
        ),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Write a text, have it judged, revise it as the judge asks, and keep the best.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 a limit was reached, a task has no text with a
    score, or the minimum score was missed; 130 interrupted (the best so far is shown).
    """
    from textevolve.cli import measuring
    from textevolve.engine import sync
    from textevolve.runs.optimization import (
        Plan,
        begin_optimization,
        check_seconds,
        choose_judges,
        name_judge,
        specify_optimization,
    )
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    judge, found = choose_judges(evaluator, rules_file, judge_model)
    plan = Plan(
        evaluator=judge,
        rules=found,
        rules_weight=rules_weight,
        second_judge=name_judge(second_judge, judge_model) if second_judge else None,
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
    measuring.check_outputs(output or [], ENDINGS)
    check_seconds(max_seconds)
    limits = Limits(max_cost, max_tokens, max_calls)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    batch = _is_file(task)
    tasks = _read_tasks(task, batch)
    spec = sync.run(specify_optimization(settings, plan, model))
    if dry_run:
        _show_estimate(tasks, spec, plan, settings, as_json=as_json)
        return
    command = _Command(plan, settings, limits, max_seconds, output or [], as_json)
    with open_store(settings.store) as opened:
        source = task if batch else "command line"
        run = begin_optimization(opened, spec, tasks, name=name or "", source=source)
        raise typer.Exit(_execute(opened, run, spec, tasks, command))


@dataclass(frozen=True, slots=True)
class _Command:
    """What was asked for."""

    plan: Plan
    settings: Settings
    limits: Limits
    seconds: float | None
    outputs: Sequence[str]
    as_json: bool


@dataclass
class _Heard:
    """What has ended so far, for whoever interrupts it."""

    attempts: dict[str, list[Attempt]] = field(default_factory=dict[str, "list[Attempt]"])
    done: dict[str, Optimization] = field(default_factory=dict[str, "Optimization"])

    def __call__(self, event: Event) -> None:
        from textevolve.events import StepFinished
        from textevolve.loops.optimization import ATTEMPT, DONE

        if isinstance(event, StepFinished) and event.step == ATTEMPT:
            self.attempts.setdefault(event.case, []).append(event.value)
        elif isinstance(event, StepFinished) and event.step == DONE:
            self.done[event.case] = event.value

    def so_far(self, tasks: Sequence[Case], plan: Plan) -> list[Optimization]:
        """What there is of each task; of those that never began, nothing."""
        from textevolve.loops.optimization import Optimization

        return [
            self.done.get(task.id)
            or Optimization(
                task=task.input,
                status="stopped",
                reason="interrupted",
                attempts=tuple(self.attempts.get(task.id, ())),
                threshold=plan.threshold,
                minimum_score=plan.minimum_score,
                id=task.id,
            )
            for task in tasks
        ]


def _is_file(task: str) -> bool:
    """Whether a file of tasks is meant: a name that ends like one and has no space, or exists."""
    from textevolve.rows import SUFFIXES

    try:
        ends = Path(task).suffix.lower() in SUFFIXES
        return ends and (not any(map(str.isspace, task)) or Path(task).is_file())
    except (OSError, ValueError):
        return False


def _read_tasks(task: str, batch: bool) -> list[Case]:
    from textevolve.cli.options import read_argument
    from textevolve.errors import InputError
    from textevolve.runs.optimization import as_case, read_tasks

    if not batch:
        return [as_case(read_argument(task))]
    tasks = list(read_tasks(task))
    ids = [one.id for one in tasks]
    if double := next((id for id in ids if ids.count(id) > 1), None):
        raise InputError(f"{task}: two tasks have the id '{double}'; ids must differ")
    return tasks


def _show_estimate(
    tasks: Sequence[Case], spec: MeasurementSpec, plan: Plan, settings: Settings, *, as_json: bool
) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.runs.optimization import estimate_optimization
    from textevolve.wiring import price_of

    found = estimate_optimization(tasks, spec, plan, lambda name: price_of(name, settings))
    print_estimate(found, spec.model, spec.why, noun="tasks", as_json=as_json)


def _execute(
    store: Store,
    run: RunRecord,
    spec: MeasurementSpec,
    tasks: Sequence[Case],
    command: _Command,
) -> int:
    """Do what is missing, show and write what became of it, and return the exit code."""
    from textevolve.cli import measuring
    from textevolve.cli.optimize_view import print_results
    from textevolve.export.optimization_record import to_line

    heard = _Heard()
    interrupted = False
    try:
        results = _do(store, run, spec, command, heard)
    except KeyboardInterrupt:
        interrupted = True
        results = heard.so_far(tasks, command.plan)
    facts = {
        "Writes": f"{spec.model} ({spec.why})",
        "Judges": _name_judges(command.plan),
        "Run": f"{run.id} in {store.path}",
    }
    for path in command.outputs:  # before anything is printed: whoever reads may close the pipe
        if path.lower().endswith(".txt") and not any(made.output for made in results):
            say(f"{path}: is not written, since no text has a score")
            continue
        _write(results, path, facts)
        say(f"written to {path}")
    if command.as_json:
        for made in results:
            print(to_line(made))
    else:
        hint = _weigh_revising(results) if command.plan.revise else ""
        print_results(results, facts | ({"Revising": hint} if hint else {}))
    if interrupted:
        say(f"stopped; this is the best so far, and every answer is kept. {measuring.go_on()}")
        return INTERRUPTED
    if any(made.status == "budget" for made in results):
        say(f"A limit was reached; this is the best so far. {measuring.go_on()}")
    return 0 if all(_is_whole(made) for made in results) else PARTLY


def _weigh_revising(results: Sequence[Optimization]) -> str:
    """A sentence where no revision scored above its first attempt; else empty."""
    revised = [made for made in results if sum(a.score is not None for a in made.attempts) > 1]
    if not revised or any(made.best is not made.attempts[0] for made in revised):
        return ""
    return "no revision scored above the first attempt; --no-revise writes each attempt anew"


def _is_whole(made: Optimization) -> bool:
    reached = made.reached_minimum is not False
    return made.score is not None and made.status != "budget" and reached


def _do(
    store: Store, run: RunRecord, spec: MeasurementSpec, command: _Command, heard: _Heard
) -> list[Optimization]:
    """The optimisations, while each attempt is shown."""
    from textevolve.cli.execution import calm_collector, fetch_models
    from textevolve.cli.loop_status import LoopStatus
    from textevolve.cli.optimize_view import describe_step
    from textevolve.engine import sync
    from textevolve.runs.improving import models_used
    from textevolve.runs.optimization import do_optimization

    calm_collector()
    fetch_models(models_used(spec), run, command.settings)
    if not command.as_json:
        judges = _name_judges(command.plan)
        say(f"run {run.id}: {spec.model} ({spec.why}) writes, judged by {judges}")
    many = (run.n_cases or 0) > 1
    with LoopStatus(lambda step: describe_step(step, many), quiet=command.as_json) as status:

        def hear(event: Event) -> None:
            heard(event)
            status(event)

        return sync.run(
            do_optimization(
                store,
                run,
                command.plan,
                command.settings,
                command.limits,
                hear,
                seconds=command.seconds,
            )
        )


def _name_judges(plan: Plan) -> str:
    parts = [f"rules '{plan.rules.file.name}'"] if plan.rules is not None else []
    parts += [str(plan.evaluator)] if plan.evaluator is not None else []
    beside = f"; beside them {plan.second_judge}" if plan.second_judge is not None else ""
    return f"{', then '.join(parts)}{beside}"


def _write(results: Sequence[Optimization], path: str, facts: dict[str, str]) -> None:
    from textevolve.export.files import open_target
    from textevolve.export.optimization_page import write_optimization_page
    from textevolve.export.optimization_record import write_history

    if path.lower().endswith(".html"):
        write_optimization_page(results, path, facts)
    elif path.lower().endswith(".jsonl"):
        write_history(results, path)
    else:
        with open_target(path) as target:
            texts = [made.output.rstrip() for made in results if made.output]
            target.write(("\n\n".join(texts) + "\n").encode("utf-8", "backslashreplace"))
