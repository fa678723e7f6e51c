"""`textevolve calibrate`: a better prompt template, by rows of values for its placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import INTERRUPTED, PARTLY, options, say

if TYPE_CHECKING:
    from textevolve.events import Event
    from textevolve.loops.calibration import Plan
    from textevolve.loops.examples import Material
    from textevolve.loops.search_tree import CalibrationResult
    from textevolve.runs.calibrating import Scorers
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

ENDINGS = (".txt", ".json", ".html")


def calibrate(
    template: Annotated[
        str, typer.Argument(help="The file of the template, with {placeholders}; - is input.")
    ],
    data: Annotated[
        str, typer.Option("--data", "-d", help="Rows of values: .jsonl, .json, .csv, .parquet.")
    ],
    label: Annotated[
        str | None, typer.Option(help="The column with the right answer, for the metric.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="What scores an output: exact, regex:PATTERN, FILE.py:FUNCTION."),
    ] = None,
    evaluator: Annotated[
        str | None,
        typer.Option(
            "--evaluator", "-e", help="The judge, single unless set; beside a metric, for reasons."
        ),
    ] = None,
    second_judge: Annotated[
        str | None, typer.Option(help="A judge that only reports on the validation rows.")
    ] = None,
    judged: Annotated[
        str, typer.Option(help="What judges see as input: seed, filled or template.")
    ] = "seed",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Answers the prompts and rewrites them.")
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(help="For judges that name none; otherwise --model.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Templates kept after each round.")] = 4,
    depth: Annotated[int, typer.Option(help="Rounds at most.")] = 5,
    successors: Annotated[int, typer.Option(help="New templates for each one kept.")] = 5,
    gradient_depth: Annotated[int, typer.Option(help="Instructions for each at most.")] = 10,
    minibatch: Annotated[int, typer.Option(help="Rows on which faults are looked for.")] = 5,
    selection_minibatch: Annotated[int, typer.Option(help="Rows on which all compete.")] = 6,
    final_minibatch: Annotated[int, typer.Option(help="Training rows that name the best.")] = 20,
    selection: Annotated[
        str, typer.Option(help="fast: all on the same rows at once; ucb: bandits, at half the cost")
    ] = "fast",
    validation: Annotated[float, typer.Option(help="The share of rows held out, 0 to 1.")] = 0.3,
    output_temperature: Annotated[float, typer.Option(help="Of the outputs.")] = 0.0,
    max_output_tokens: Annotated[int, typer.Option(help="Of an output.")] = 512,
    seed: Annotated[int, typer.Option(help="Another seed draws other rows.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Calls in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time.")] = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            help="The template to use to .txt, the search to .json or .html; repeatable.",
        ),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Search for a better prompt template, and take it only if its gain on held-out rows is real.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 a limit was reached, or nothing has a score; 130
    interrupted.
    """
    from textevolve.cli import measuring
    from textevolve.engine import sync
    from textevolve.loops.calibration import Plan
    from textevolve.rows import read_text
    from textevolve.runs.calibrating import choose_scorers, read_material, specify_calibration
    from textevolve.runs.optimization import check_seconds
    from textevolve.settings import read_settings
    from textevolve.wiring import Limits

    measuring.check_outputs(output or [], ENDINGS)
    check_seconds(max_seconds)
    plan = Plan(
        beam=beam,
        depth=depth,
        minibatch=minibatch,
        selection_minibatch=selection_minibatch,
        final_minibatch=final_minibatch,
        gradient_depth=gradient_depth,
        successors=successors,
        selection=selection,  # pyright: ignore[reportArgumentType]  it checks that itself
        judged=judged,  # pyright: ignore[reportArgumentType]
        seed=seed,
        temperature=output_temperature,
        max_output_tokens=max_output_tokens,
    )
    limits = Limits(max_cost, max_tokens, max_calls)
    scorers = choose_scorers(evaluator, metric, second_judge, label, judge_model)
    material = read_material(read_text(template), data, scorers, validation)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    spec = sync.run(specify_calibration(settings, material, plan, scorers, model, validation))
    task = _Task(material, plan, scorers, limits, max_seconds, as_json, tuple(output or ()))
    if dry_run:
        _show_estimate(task, spec, settings)
        return
    raise typer.Exit(_execute(task, spec, settings, name or "", f"{template}, {data}"))


@dataclass(frozen=True, slots=True)
class _Task:
    material: Material
    plan: Plan
    scorers: Scorers
    limits: Limits
    seconds: float | None
    as_json: bool
    outputs: Sequence[str]


def _show_estimate(task: _Task, spec: MeasurementSpec, settings: Settings) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.runs.calibrating_estimate import count_most, estimate_calibration
    from textevolve.wiring import price_of

    found = estimate_calibration(
        task.material, spec, task.plan, task.scorers, lambda name: price_of(name, settings)
    )
    if not task.as_json:
        rows = len(task.material.training), len(task.material.validation)
        most = count_most(task.plan, *rows)
        print(
            f"at most {most.outputs:,} outputs ({most.explored:,} explored, {most.selected:,} in"
            f" selection, {most.finals:,} in the finals, {most.validated:,} in validation),"
            f" {most.instructions:,} lists of instructions and {most.successors:,} new templates"
        )
        print(f"rows               {rows[0]:,} for training, {rows[1]:,} for validation")
    print_estimate(found, spec.model, spec.why, noun="rows", as_json=task.as_json)


def _execute(task: _Task, spec: MeasurementSpec, settings: Settings, name: str, source: str) -> int:
    """Search, show and write what was found, and return the exit code."""
    from textevolve.cli import measuring
    from textevolve.runs.calibrating import begin_calibration
    from textevolve.store.repository import open_store

    with open_store(settings.store) as store:
        run = begin_calibration(store, spec, task.material, name=name, source=source)
        heard: list[CalibrationResult] = []
        try:
            found = _search(task, spec, store, run, settings, heard)
            code = PARTLY if found.stopped in ("budget", "failed") else 0
        except KeyboardInterrupt:
            found, code = (heard[-1] if heard else None), INTERRUPTED
        if found is not None:
            _hand_over(task, found, store, run)
    if code == INTERRUPTED:
        return measuring.stopped()
    if found is not None and found.stopped == "budget":
        say(f"not finished: {found.reason}. {measuring.go_on()}")
    return code


def _search(
    task: _Task,
    spec: MeasurementSpec,
    store: Store,
    run: RunRecord,
    settings: Settings,
    heard: list[CalibrationResult],
) -> CalibrationResult:
    """The search, drawn as it goes; `heard` gets what there is after each round."""
    from textevolve.cli.calibration_tables import describe_step
    from textevolve.cli.execution import calm_collector, fetch_models
    from textevolve.cli.loop_status import LoopStatus
    from textevolve.engine import sync
    from textevolve.events import StepFinished
    from textevolve.loops.calibration import ROUND
    from textevolve.runs.calibrating import do_calibration
    from textevolve.runs.improving import models_used

    calm_collector()
    fetch_models(models_used(spec), run, settings)
    if not task.as_json:
        scored = task.scorers.name()
        by = ", ".join(f"{k} {v}" for k, v in scored.items() if isinstance(v, str))
        say(f"run {run.id}: {run.n_cases} rows; {by}; {spec.model} ({spec.why}) writes")
    with LoopStatus(describe_step, quiet=task.as_json) as status:

        def hear(event: Event) -> None:
            if isinstance(event, StepFinished) and event.step == ROUND:
                heard.append(event.value)
            status(event)

        return sync.run(
            do_calibration(
                store,
                run,
                task.material,
                task.plan,
                task.scorers,
                settings,
                task.limits,
                hear,
                task.seconds,
            )
        )


def _hand_over(task: _Task, found: CalibrationResult, store: Store, run: RunRecord) -> None:
    """Show what there is, and write it where it was asked for."""
    from textevolve.bench.summary import to_json
    from textevolve.cli import measuring
    from textevolve.cli.calibration_tables import calibration_facts, print_calibration
    from textevolve.cli.figures import print_json
    from textevolve.export.calibration_page import write_calibration_page
    from textevolve.export.files import open_target
    from textevolve.loops.search_tree import describe_outcome
    from textevolve.runs.calibrating import to_data

    facts = calibration_facts(found, run, store)
    data = to_json(to_data(found, run))
    # Before anything is printed, since whoever reads that may close the pipe.
    for output in task.outputs:
        ending = Path(output).suffix.lower()
        if ending == ".html":
            write_calibration_page(found, output, describe_outcome(found), facts)
        elif ending == ".json":
            measuring.write_json(output, data)
        else:
            with open_target(output) as target:
                target.write((found.template.rstrip("\n") + "\n").encode())
        say(f"written to {output}")
    if task.as_json:
        print_json(data)
    else:
        print_calibration(found, facts)
