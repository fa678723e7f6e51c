"""`textevolve guide`: an answer with a debate's reasoning in its prompt, beside one without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import PARTLY, options, say

if TYPE_CHECKING:
    from textevolve.debate.profile import Profile
    from textevolve.events import Event
    from textevolve.loops.guidance import Answer, Plan
    from textevolve.runs.guiding import GuidedAnswer
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

ENDINGS = (".txt", ".json")


def guide(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION [CANDIDATE...]",
            help="The question, and answers to be debated if there are any; @FILE reads one.",
        ),
    ],
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Who debates: a shipped one, or YAML.")
    ] = None,
    proposals: Annotated[
        int, typer.Option(help="Answers drawn for the debate where none are given.")
    ] = 3,
    evaluator: Annotated[
        str | None,
        typer.Option("--evaluator", "-e", help="Judges both answers: pairwise+rules, probe, ..."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Such as openai/gpt-5-mini, local/NAME.")
    ] = None,
    warmth: Annotated[float, typer.Option("--temperature", help="Of the two answers.")] = 0.0,
    max_answer_tokens: Annotated[int, typer.Option(help="Of an answer.")] = 800,
    seed: Annotated[int, typer.Option(help="Another seed draws other candidates.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Candidates in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time.")] = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", help="The guided answer to .txt, all of it to .json; repeatable."
        ),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Answer a question with a debate about possible answers as reasoning, and without.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 a limit was reached, or an answer did not come;
    130 interrupted.
    """
    from textevolve.cli import measuring
    from textevolve.cli.options import read_argument
    from textevolve.debate.profile import load_profile
    from textevolve.engine import sync
    from textevolve.loops.guidance import Plan
    from textevolve.runs.guiding import begin_guidance, specify_guidance
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    plan = Plan(
        proposals=proposals,
        temperature=warmth,
        max_answer_tokens=max_answer_tokens,
        seconds=max_seconds,
        seed=seed,
    )
    limits = Limits(max_cost, max_tokens, max_calls)
    measuring.check_outputs(output or [], ENDINGS)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    question, *candidates = (read_argument(text) for text in texts)
    chosen = load_profile(profile or settings.profile)
    spec = sync.run(specify_guidance(settings, chosen, evaluator, plan, model))
    if dry_run:
        _show_estimate(question, candidates, spec, chosen, plan, settings, as_json=as_json)
        return
    with open_store(settings.store) as opened:
        run = begin_guidance(
            opened, spec, question, candidates, name=name or "", source="command line"
        )
        try:
            found = _do(opened, run, chosen, evaluator, plan, settings, limits, quiet=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(measuring.stopped()) from None
        _hand_over(found, opened, output or [], as_json=as_json)
    raise typer.Exit(0 if found.made.status == "done" else PARTLY)


def _show_estimate(
    question: str,
    candidates: Sequence[str],
    spec: MeasurementSpec,
    profile: Profile,
    plan: Plan,
    settings: Settings,
    *,
    as_json: bool,
) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.evaluation import Case, check_case
    from textevolve.runs.guiding import estimate_guidance
    from textevolve.wiring import price_of

    case = Case(question, tuple(candidates), "1")
    check_case(Case(question, case.candidates or ("x",)))
    found = estimate_guidance(case, spec, profile, plan, lambda name: price_of(name, settings))
    print_estimate(found, spec.model, spec.why, noun="questions", as_json=as_json)


def _do(
    store: Store,
    run: RunRecord,
    profile: Profile,
    evaluator: str | None,
    plan: Plan,
    settings: Settings,
    limits: Limits,
    *,
    quiet: bool,
) -> GuidedAnswer:
    from textevolve.cli.execution import calm_collector, fetch_models
    from textevolve.cli.loop_status import LoopStatus
    from textevolve.engine import sync
    from textevolve.runs.guiding import do_guidance, models_guided
    from textevolve.runs.spec import read_measurement

    spec = read_measurement(run)
    calm_collector()
    fetch_models(models_guided(spec, profile), run, settings)
    if not quiet:
        say(f"run {run.id}: {profile.name} debates; {spec.model} ({spec.why}) answers")
    with LoopStatus(_describe, quiet=quiet) as status:
        return sync.run(do_guidance(store, run, evaluator, plan, settings, limits, status))


def _describe(event: Event) -> str | None:
    from textevolve.debate.result import Turn
    from textevolve.events import StepFinished, StepStarted
    from textevolve.export.wording import count, shorten

    if isinstance(event, StepStarted):
        texts = {
            "candidates": "candidate answers are drawn",
            "answers": f"the {event.details.get('of')} answer is written",
            "judgement": "the answers are judged",
            "turn": f"round {event.details.get('round', 0) + 1}, {event.details.get('agent')}",
        }
        return texts.get(event.step)
    if isinstance(event, StepFinished) and event.step == "candidates":
        return f"{count(len(event.value), 'candidate')} for the debate"
    if isinstance(event, StepFinished) and isinstance(event.value, Turn):
        said = event.value.argument or (event.value.failure and event.value.failure.reason) or ""
        return shorten(f"round {event.value.round + 1}: {said}", 160)
    return None


def _hand_over(found: GuidedAnswer, store: Store, outputs: Sequence[str], *, as_json: bool) -> None:
    """Write and show what there is, and say how to go on where it is not whole."""
    from textevolve.cli import measuring
    from textevolve.cli.figures import print_json
    from textevolve.export.files import open_target
    from textevolve.runs.guiding import to_data

    for output in outputs:  # before anything is printed: whoever reads that may close the pipe
        if output.lower().endswith(".json"):
            measuring.write_json(output, to_data(found))
        elif found.answer is None:
            say(f"{output}: is not written, since there is no guided answer")
            continue
        else:
            with open_target(output) as target:
                target.write(f"{found.answer}\n".encode("utf-8", "backslashreplace"))
        say(f"written to {output}")
    if as_json:
        print_json(to_data(found))
    else:
        _draw(found, store)
    if found.made.status == "budget":
        say(f"not finished: {found.made.reason}. {measuring.go_on()}")
    elif found.made.status == "failed":
        say(f"not finished: {found.made.reason}")


def _draw(found: GuidedAnswer, store: Store) -> None:
    """Both answers side by side, and where they come from."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from textevolve.cli.drawing import draw_facts, open_console, safe
    from textevolve.export.wording import count, spent

    made, console = found.made, open_console()
    answers = [("without the debate", made.plain), ("with the debate", made.guided)]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    for title, _ in answers:
        table.add_column(title, ratio=1, overflow="fold")
    table.add_row(*(safe(_shown(answer)) for _, answer in answers))
    if any(answer is not None and answer.judgement is not None for _, answer in answers):
        table.add_row("", "")
        table.add_row(*(safe(_judged(answer), "bold") for _, answer in answers))
    console.print(table)
    console.print()
    facts = [("Debate", f"about {count(len(made.candidates), 'candidate')}; {_debated(found)}")]
    if made.plain is not None and made.guided is not None and made.plain.text == made.guided.text:
        facts.append(("Note", "both answers are the same, word for word"))
    if found.evaluator:
        facts.append(("Judge", found.evaluator))
    facts += [
        ("Used", spent(found.usage)),
        ("Run", f"{found.run} in {store.path}; {found.model} answered"),
    ]
    console.print(draw_facts((name, safe(value)) for name, value in facts))


def _debated(found: GuidedAnswer) -> str:
    if found.debate is None:
        return "not held"
    turns = sum(turn.failure is None for turn in found.debate.turns)
    return f"{turns} of {len(found.debate.turns)} turns gave something to reason with"


def _shown(answer: Answer | None) -> str:
    if answer is None:
        return "(not come to)"
    return answer.text or f"(none: {answer.failure.reason if answer.failure else ''})"


def _judged(answer: Answer | None) -> str:
    from textevolve.evaluation import EvaluationResult
    from textevolve.export.wording import figure

    judged = answer.judgement if answer is not None else None
    return f"score {figure(judged.score if isinstance(judged, EvaluationResult) else None, 3)}"
