"""`textevolve innovate`: a better input for a model, without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import INTERRUPTED, PARTLY, options, say

if TYPE_CHECKING:
    from textevolve.events import Event
    from textevolve.loops.attempt import Attempt
    from textevolve.loops.innovation import Plan
    from textevolve.runs.innovating import Innovated
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.statistics.intervals import Figure
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

ENDINGS = (".txt", ".json")
INPUT_SHOWN = 160


def innovate(
    input: Annotated[
        str,
        typer.Argument(help="The input to refine; @FILE reads it from a file, - standard input."),
    ],
    evaluator: Annotated[
        str,
        typer.Option(
            "--evaluator", "-e", help="The judge: debate, probe+rules, rules:FILE.yaml, ..."
        ),
    ] = "debate",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Writes, and judges if the judge has none.")
    ] = None,
    outputs: Annotated[int, typer.Option(help="Drawn and judged for each input.")] = 4,
    fresh: Annotated[
        int, typer.Option(help="Drawn anew for the first and the best input; 0: none.")
    ] = 8,
    rounds: Annotated[int, typer.Option(help="Refinements at most.")] = 3,
    min_gain: Annotated[
        float, typer.Option(help="By which the mean score must rise in a round.")
    ] = 0.01,
    patience: Annotated[int, typer.Option(help="Rounds in a row that may bring no gain.")] = 1,
    threshold: Annotated[
        float | None, typer.Option(help="The mean score, 0 to 1, that is good enough.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the outputs, above 0.")] = 0.7,
    max_answer_tokens: Annotated[int, typer.Option(help="Of an output.")] = 800,
    seed: Annotated[int, typer.Option(help="Another seed draws other outputs.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Outputs in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time.")] = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", help="The refined input to .txt, all of it to .json; repeatable."
        ),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Refine an input by what judges say of its outputs, for as long as their scores rise.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 a limit was reached, or nothing has a score; 130
    interrupted.
    """
    from textevolve.cli import measuring
    from textevolve.cli.options import read_argument
    from textevolve.engine import sync
    from textevolve.loops.innovation import Plan
    from textevolve.runs.innovating import begin_innovation, specify_innovation
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    plan = Plan(
        outputs=outputs,
        fresh=fresh,
        rounds=rounds,
        min_gain=min_gain,
        patience=patience,
        threshold=threshold,
        temperature=temperature,
        max_answer_tokens=max_answer_tokens,
        seconds=max_seconds,
        seed=seed,
    )
    limits = Limits(max_cost, max_tokens, max_calls)
    measuring.check_outputs(output or [], ENDINGS)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    text = read_argument(input)
    spec = sync.run(specify_innovation(settings, evaluator, plan, model))
    if dry_run:
        _show_estimate(text, spec, plan, settings, as_json=as_json)
        return
    with open_store(settings.store) as opened:
        run = begin_innovation(opened, spec, text, name=name or "", source="command line")
        heard: list[Attempt] = []
        try:
            found = _do(opened, run, evaluator, plan, settings, limits, heard, quiet=as_json)
            code = PARTLY if found.innovation.status in ("budget", "failed") else 0
        except KeyboardInterrupt:
            found, code = _so_far(run, text, heard, plan), INTERRUPTED
        _hand_over(found, opened, output or [], as_json=as_json)
    raise typer.Exit(code)


def _show_estimate(
    text: str, spec: MeasurementSpec, plan: Plan, settings: Settings, *, as_json: bool
) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.runs.innovating import estimate_innovation
    from textevolve.wiring import price_of

    found = estimate_innovation(text, spec, plan, lambda name: price_of(name, settings))
    print_estimate(found, spec.model, spec.why, noun="inputs", as_json=as_json)


def _do(
    store: Store,
    run: RunRecord,
    evaluator: str,
    plan: Plan,
    settings: Settings,
    limits: Limits,
    heard: list[Attempt],
    *,
    quiet: bool,
) -> Innovated:
    """The innovation; `heard` gets the attempts as they end, for whoever interrupts it."""
    from textevolve.cli.execution import calm_collector, fetch_models
    from textevolve.cli.loop_status import LoopStatus
    from textevolve.engine import sync
    from textevolve.events import StepFinished
    from textevolve.loops.innovation import ATTEMPT
    from textevolve.runs.improving import models_used
    from textevolve.runs.innovating import do_innovation
    from textevolve.runs.spec import read_measurement

    spec = read_measurement(run)
    calm_collector()
    fetch_models(models_used(spec), run, settings)
    if not quiet:
        say(f"run {run.id}: {evaluator} judges; {spec.model} ({spec.why}) writes")
    with LoopStatus(_describe, quiet=quiet) as status:

        def hear(event: Event) -> None:
            if isinstance(event, StepFinished) and event.step == ATTEMPT:
                heard.append(event.value)
            status(event)

        return sync.run(do_innovation(store, run, evaluator, plan, settings, limits, hear))


def _describe(event: Event) -> str | None:
    from textevolve.events import StepFinished, StepStarted
    from textevolve.loops.innovation import ATTEMPT, FRESH

    if isinstance(event, StepFinished) and event.step == ATTEMPT:
        return _attempt_line(event.value)
    if isinstance(event, StepStarted) and event.step == "refine":
        return f"the input is refined for round {event.details['iteration'] - 1}"
    if isinstance(event, StepStarted) and event.step in ("outputs", FRESH):
        what = "fresh outputs" if event.step == FRESH else "outputs"
        return f"{event.details['number']} {what} are drawn and judged"
    return None


def _attempt_line(attempt: Attempt) -> str:
    from textevolve.export.wording import figure, shorten

    which = "input as given" if attempt.iteration == 1 else f"round {attempt.iteration - 1}"
    if attempt.score is None:
        reason = getattr(attempt.evaluation, "reason", "")
        return shorten(f"{which}: no score ({reason})", 300)
    notes = "".join(f"; {note}" for note in attempt.notes)
    shown = f": {shorten(attempt.output or '', INPUT_SHOWN)}" if attempt.iteration > 1 else ""
    return f"{which}: {figure(attempt.score, 3)}{shorten(notes, 200)}{shown}"


def _so_far(run: RunRecord, text: str, heard: Sequence[Attempt], plan: Plan) -> Innovated:
    """What there is of an innovation that was interrupted."""
    from textevolve.evaluation import Usage
    from textevolve.loops.innovation import Innovation, samples_of
    from textevolve.runs.innovating import sum_up

    made = Innovation(
        text,
        tuple(heard),
        "stopped",
        reason="interrupted",
        min_gain=plan.min_gain,
        usage=sum((sample.usage for a in heard for sample in samples_of(a)), Usage()),
    )
    return sum_up(made, run, plan.seed)


def _hand_over(found: Innovated, store: Store, outputs: Sequence[str], *, as_json: bool) -> None:
    """Show and write what there is, and say how to go on where it is not whole."""
    from textevolve.cli import measuring
    from textevolve.cli.figures import print_json
    from textevolve.export.files import open_target
    from textevolve.runs.innovating import to_data

    for output in outputs:
        if output.lower().endswith(".txt"):
            with open_target(output) as target:
                target.write((found.input.rstrip("\n") + "\n").encode())
        else:
            measuring.write_json(output, to_data(found))
        say(f"written to {output}")
    if as_json:
        print_json(to_data(found))
    else:
        _draw(found, store)
    if found.innovation.status == "stopped":
        measuring.stopped()
    elif found.innovation.status == "budget":
        say(f"not finished: {found.innovation.reason}. {measuring.go_on()}")


def _draw(found: Innovated, store: Store) -> None:
    from textevolve.cli.drawing import draw_facts, open_console, safe
    from textevolve.export.wording import figure, spent

    made, console = found.innovation, open_console()
    title = "The refined input"
    if not made.improved:
        why = "No refinement scored higher" if made.best is not None else "Nothing has a score"
        title = f"{why}; the input stands"
    console.print(safe(title, "bold"))
    console.print(safe(made.refined))
    console.print()
    facts = [("Ended", f"{made.status}: {made.reason}")]
    if made.best is not None:
        scores = ", ".join(figure(attempt.score, 3) for attempt in made.attempts)
        facts.append(("Tuned on", f"{scores} (means over the outputs that each was tuned on)"))
    if made.before and made.after:
        facts += [
            ("Before", _with_interval(found.before, f"{len(made.before)} fresh outputs")),
            ("After", _with_interval(found.after, f"{len(made.after)} fresh outputs")),
            ("Gain", _with_interval(found.gain, _gain_said(found.gain))),
        ]
        if found.repeated:
            said = f"{found.repeated} of the fresh outputs are ones that it was tuned on"
            facts.append(("Note", f"{said}: does the model heed seed and temperature?"))
    elif made.improved:
        facts.append(("Gain", "not known: no fresh outputs were judged"))
    facts += [
        ("Used", spent(made.usage)),
        ("Run", f"{found.run} in {store.path}; {found.evaluator} judged, {found.model} wrote"),
    ]
    console.print(draw_facts((name, safe(value)) for name, value in facts))


def _with_interval(figure: Figure, note: str) -> str:
    from textevolve.export import wording

    low, high = figure.interval.low, figure.interval.high
    ends = f"95 %: {low:.3f} to {high:.3f}" if not math.isnan(low) else figure.interval.reason
    return f"{wording.figure(figure.value, 3)} ({ends}; {note})"


def _gain_said(gain: Figure) -> str:
    low, high = gain.interval.low, gain.interval.high
    if math.isnan(low):
        return "how far chance explains it cannot be told"
    if low > 0:
        return "more than chance explains"
    if high < 0:
        return "on fresh outputs it is worse"
    return "chance alone may explain it"
