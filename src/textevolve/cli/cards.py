"""`textevolve bench card` and `bench rate`: what sways a judge, and what its rates are worth."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import INTERRUPTED, PARTLY, options, say
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.bench.card import Card
    from textevolve.bench.card_cases import CardCase
    from textevolve.bench.card_questions import Outcome
    from textevolve.events import Event
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

SEEDS, MARGIN = 3, 0.05  # as in `bench.card`, which is not imported for a mere --help


def card(
    judge: Annotated[
        str,
        typer.Option("--judge", help="Such as debate:general, jury, pairwise+rules, probe@MODEL."),
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Such as openai/gpt-5-mini, local/NAME.")
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Your own cases (YAML) in place of those in the package.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Samples of each consistency case, 2 or more.")] = (
        SEEDS
    ),
    margin: Annotated[
        float, typer.Option(help="From which rise of a score, 0 to 1, an attack has worked.")
    ] = MARGIN,
    concurrency: Annotated[int | None, typer.Option(help="Judgements in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="The card as one JSON object.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The card to a .json or .html file.")
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Measure what sways a judge that should not: order, length, seeds, empty texts, attacks.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 some judgements are missing; 130 interrupted.
    """
    from textevolve.bench.card import check_plan
    from textevolve.bench.card_cases import load_cases, shipped_cases
    from textevolve.bench.card_questions import plan_questions
    from textevolve.engine import sync
    from textevolve.runs.work import take_in
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    if output is not None and Path(output).suffix.lower() not in (".json", ".html"):
        raise InputError(f"{output}: a card is written as .json or .html")
    limits = Limits(max_cost, max_tokens, max_calls)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    chosen = shipped_cases() if cases is None else load_cases(cases)
    check_plan(chosen, seeds, margin)
    spec = sync.run(_specify(settings, judge, model, seeds))
    asked = [question.as_case() for question in plan_questions(chosen, seeds)]
    if dry_run:
        from textevolve.cli.estimates import print_estimate
        from textevolve.runs.judge_estimate import estimate_judge
        from textevolve.wiring import price_of

        found = estimate_judge(asked, judge, spec.model, lambda name: price_of(name, settings))
        print_estimate(found, spec.model, spec.why, noun="judgements", as_json=as_json)
        return
    plan = _Plan(chosen, seeds, margin)
    with open_store(settings.store) as opened:
        run = take_in(opened, spec, asked, name=name or "", source=cases or "the package's cases")
        raise typer.Exit(_execute(opened, run, settings, limits, plan, output, as_json=as_json))


def rate(
    judged: Annotated[
        str,
        typer.Argument(
            help="What a judge said of many texts: a result file of textevolve evaluate, or rows "
            "with id and judged (true, false or 0 to 1)."
        ),
    ],
    labelled: Annotated[
        str,
        typer.Argument(help="Some such texts with what people said of them: human, and judged."),
    ],
    field: Annotated[
        str | None,
        typer.Option(help="Where the judge's verdicts stand, such as score; judged or passed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Correct a judge's rate or mean over many texts by the few that people judged too.

    Reads .jsonl, .json, .csv and .parquet. Asks no model.
    """
    from textevolve.bench.judged import read_judged
    from textevolve.bench.rate_report import report_rate
    from textevolve.cli.rate_tables import print_rate

    print_rate(report_rate(read_judged(judged, labelled, field)), as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a card is made of."""

    cases: tuple[CardCase, ...]
    seeds: int
    margin: float


async def _specify(
    settings: Settings, judge: str, model: str | None, seeds: int
) -> MeasurementSpec:
    """The measurement's specification; a model is only looked for where the judge names none."""
    from textevolve.evaluators import parse_evaluator
    from textevolve.runs.spec import specify_measurement
    from textevolve.wiring import choose_model

    chosen, why = await choose_model(settings, parse_evaluator(judge).model or model)
    return specify_measurement("card", [judge], chosen, {"seeds": seeds}, why)


def _execute(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    plan: _Plan,
    output: str | None,
    *,
    as_json: bool,
) -> int:
    """Make the card, show and write it, and return the exit code."""
    from textevolve.cli.card_tables import card_facts, print_card

    try:
        made, skipped = _make(store, run, settings, limits, plan, quiet=as_json)
    except KeyboardInterrupt:
        say(f"\nstopped; every answer so far is kept. {_go_on()}")
        return INTERRUPTED
    facts = card_facts(made, {"Cases from": run.source, "Run": run.id})
    if output is not None:  # before anything is printed: whoever reads that may close the pipe
        _write(made, output, facts)
        say(f"card written to {output}")
    if as_json:
        print(made.to_json(), end="")
    else:
        print_card(made, facts)
    if skipped:
        say(f"{skipped} of {made.questions} judgements were not made within the limits. {_go_on()}")
    return PARTLY if made.failed else 0


def _make(
    store: Store, run: RunRecord, settings: Settings, limits: Limits, plan: _Plan, *, quiet: bool
) -> tuple[Card, int]:
    """The card, and how many judgements the limits kept from being made."""
    from textevolve.bench.card import make_card
    from textevolve.cli.display import BatchProgress
    from textevolve.cli.execution import calm_collector, fetch_weights
    from textevolve.engine import sync
    from textevolve.events import StepFinished
    from textevolve.runs.measurement import cases_in_flight, open_judges
    from textevolve.runs.spec import read_measurement

    spec = read_measurement(run)
    calm_collector()
    fetch_weights(spec, run, settings)
    (judge,) = spec.judges
    if not quiet:
        say(f"run {run.id}: {run.n_cases} judgements by {judge}, {spec.model} ({spec.why})")
    with BatchProgress(run.n_cases) as progress:

        def hear(event: Event) -> None:
            progress(event)
            if isinstance(event, StepFinished) and event.step == "question":
                progress.count(_status(event.value))

        async def measure() -> Card:
            async with open_judges(store, run, settings, limits, hear) as judges:
                made = await make_card(
                    judges[judge],
                    plan.cases,
                    seeds=plan.seeds,
                    margin=plan.margin,
                    in_flight=cases_in_flight(spec, settings),
                    listener=hear,
                    name=judge if "@" in judge else f"{judge}@{spec.model}",
                )
                if not progress.counts["skipped"]:
                    store.finish_run(run.id, "finished")
                return made

        made = sync.run(measure())
    return made, progress.counts["skipped"]


def _status(outcome: Outcome) -> str:
    """What progress counts an answer to a question of the card under."""
    from textevolve.bench.card_questions import Refusal
    from textevolve.evaluation import Failure

    if isinstance(outcome, Failure):
        return outcome.kind
    return "refused" if isinstance(outcome, Refusal) else "scored"


def _write(made: Card, output: str, facts: dict[str, str]) -> None:
    from textevolve.export.files import open_target

    if output.lower().endswith(".json"):
        with open_target(output) as target:
            target.write(made.to_json().encode())
        return
    from textevolve.bench.card_wording import explain_card, explain_check
    from textevolve.export.card_page import write_card_page

    said = {check.family: explain_check(check) for check in made.checks}
    write_card_page(made, output, explain_card(made), said, facts)


def _go_on() -> str:
    return f"Go on with the same command: {shlex.join(['textevolve', *sys.argv[1:]])}"
