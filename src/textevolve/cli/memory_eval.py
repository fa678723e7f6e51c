"""`textevolve memory-eval`: measure a memory system, compare two runs, make data to try it on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from textevolve.cli import PARTLY, options, say
from textevolve.cli.memory_files import RECORDS, REPORT, SUMMARY
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.events import Event
    from textevolve.memory_eval.system import MemorySystem
    from textevolve.runs.memory_evaluation import Plan, Survey
    from textevolve.runs.memory_records import Collection
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

MALFORMED_SHOWN = 10


class DefaultGroup(TyperGroup):
    """A group whose first command is meant where none is named: `memory-eval DATA.jsonl`."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(**options.PLAIN, cls=DefaultGroup)


@app.command()
def run(
    data: Annotated[str, typer.Argument(help="Users with sessions, a user a line: .jsonl.")],
    system: Annotated[
        str,
        typer.Option(
            "--system",
            "-s",
            help="none, context, recorded, http:URL, mem0, MODULE:ATTRIBUTE or an installed one.",
        ),
    ],
    judge: Annotated[
        str | None,
        typer.Option(help="debate:general, jury, ...; one structured call each unless set."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Judges, and answers questions.")
    ] = None,
    answer_model: Annotated[
        str | None, typer.Option(help="Answers questions in the place of --model.")
    ] = None,
    users: Annotated[int | None, typer.Option(help="Only the first so many users.")] = None,
    sessions: Annotated[
        int | None, typer.Option(help="Only the first so many sessions of each.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the judge and the intervals.")] = 0,
    fresh: Annotated[
        str, typer.Option(help="Any text; another one asks everything anew.", metavar="TEXT")
    ] = "",
    concurrency: Annotated[int | None, typer.Option(help="Judgements in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The summary as one JSON object.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"A folder for {RECORDS}, {SUMMARY} and {REPORT}."),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Feed a memory system dialogues, and judge what it kept, made up, updated and answers.

    The same command again goes on where it was stopped, and asks nothing twice. Limits bound what
    judging and answering use, not what a memory system spends itself. Exit codes: 0 done; 1 a
    model, the system or the store failed; 2 bad input; 3 some judgements are missing, or a user
    is malformed; 130 interrupted.
    """
    from textevolve.engine import sync
    from textevolve.runs.memory_evaluation import (
        Plan,
        close_system,
        find_system,
        specify_memory_evaluation,
    )
    from textevolve.settings import read_settings
    from textevolve.wiring import Limits

    plan = Plan(system, judge, answer_model, users, sessions, fresh, seed)
    limits = Limits(max_cost, max_tokens, max_calls)
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file; name a folder")
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    found = find_system(plan, settings)
    spec = sync.run(specify_memory_evaluation(settings, plan, model, found))
    task = _Task(data, plan, limits, output, as_json, name or "")
    if dry_run:
        if found is not None:
            sync.run(close_system(found))
        _show_estimate(task, spec, settings)
        return
    raise typer.Exit(_execute(task, spec, found, settings))


@dataclass(frozen=True, slots=True)
class _Task:
    data: str
    plan: Plan
    limits: Limits
    output: Path | None
    as_json: bool
    name: str


def _show_estimate(task: _Task, spec: MeasurementSpec, settings: Settings) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.runs.memory_estimate import estimate_memory_evaluation
    from textevolve.wiring import price_of

    found, survey = estimate_memory_evaluation(
        task.data, spec, task.plan, lambda name: price_of(name, settings)
    )
    _tell_malformed(task.data, survey)
    print_estimate(found, spec.model, spec.why, noun="users", as_json=task.as_json)
    if not task.as_json:
        print(
            "What a system extracts and finds is not known before: the least is nothing, the most"
            " twice as\nmany memories as there are points. What the system itself spends is not"
            " counted."
        )


def _execute(
    task: _Task, spec: MeasurementSpec, system: MemorySystem | None, settings: Settings
) -> int:
    """Measure, show and write what was found, and return the exit code."""
    from textevolve.cli.memory_files import open_records
    from textevolve.runs.memory_evaluation import begin_memory_evaluation
    from textevolve.runs.memory_records import Collection
    from textevolve.store.repository import open_store

    with open_store(settings.store) as store:
        begun, survey = begin_memory_evaluation(store, spec, task.data, task.plan, name=task.name)
        _tell_malformed(task.data, survey)
        with ExitStack() as stack:
            collected, interrupted = Collection(open_records(task.output, stack)), False
            try:
                asked = _work(task, store, begun, survey, system, settings, collected)
            except KeyboardInterrupt:
                asked, interrupted = True, True
        whole = not interrupted and not collected.skipped
        _hand_over(task, collected, survey, begun, store, whole=whole)
    code = _end(task, collected, asked=asked, interrupted=interrupted)
    return PARTLY if survey.malformed and not code else code


def _work(
    task: _Task,
    store: Store,
    begun: RunRecord,
    survey: Survey,
    system: MemorySystem | None,
    settings: Settings,
    collected: Collection,
) -> bool:
    """Take in what is judged, while a bar shows how far it is; whether anything was asked now."""
    from textevolve.cli.display import BatchProgress
    from textevolve.cli.execution import calm_collector, fetch_models
    from textevolve.engine import sync
    from textevolve.evaluation import Failure
    from textevolve.events import CallFinished, StepFinished, StepStarted
    from textevolve.export.wording import shorten
    from textevolve.memory_eval.feeding import FEEDING
    from textevolve.memory_eval.judgement import Judgement
    from textevolve.runs.memory_evaluation import do_memory_evaluation, models_asked
    from textevolve.runs.spec import read_measurement

    spec, plan = read_measurement(begun), task.plan
    calm_collector()
    fetch_models(models_asked(spec), begun, settings)
    if not task.as_json:
        judge = f"{plan.judge}; " if plan.judge else ""
        what = f"{plan.system} on {survey.users} users"
        say(f"run {begun.id}: {what}; {judge}{spec.model} ({spec.why})")
    asked = 0
    with BatchProgress(survey.planned(plan.system)) as progress:

        def hear(event: Event) -> None:
            nonlocal asked
            progress(event)
            if isinstance(event, CallFinished):
                asked += not event.replayed
            elif isinstance(event, StepStarted) and event.step == FEEDING:
                told = event.details
                who = shorten(event.case, 24)
                progress.doing = f"{who}: session {told['session']} of {told['sessions']}"
            elif isinstance(event, StepFinished) and event.step == FEEDING:
                progress.total = (progress.total or 0) + event.value

        found = do_memory_evaluation(
            store, begun, task.data, plan, survey, system, settings, task.limits, hear
        )
        with closing(sync.iterate(found)) as items:
            for item in items:
                collected.take(item)
                if isinstance(item, Judgement):
                    outcome = item.outcome
                    progress.count(outcome.kind if isinstance(outcome, Failure) else "scored")
    return asked > 0


def _hand_over(
    task: _Task,
    collected: Collection,
    survey: Survey,
    begun: RunRecord,
    store: Store,
    *,
    whole: bool,
) -> None:
    """Write what there is where it was asked for, and show it."""
    from textevolve.cli.figures import print_json
    from textevolve.cli.memory_files import write_folder
    from textevolve.cli.memory_tables import evaluation_facts, print_evaluation
    from textevolve.runs.memory_records import summarise

    figures = collected.figures(task.plan.seed)
    summary = summarise(collected, figures, begun, task.plan, survey, whole=whole)
    facts = evaluation_facts(collected, figures, survey, begun, store)
    if task.output is not None:  # before anything is printed: whoever reads that may close the pipe
        write_folder(
            task.output, f"Memory of {task.plan.system}", collected, figures, summary, facts
        )
    if task.as_json:
        print_json(summary)
    else:
        print_evaluation(collected, figures, facts)


def _end(task: _Task, collected: Collection, *, asked: bool, interrupted: bool) -> int:
    """Say what is missing and how to go on, or that nothing was asked; the exit code."""
    from textevolve.cli import measuring

    if interrupted:
        return measuring.stopped()
    if collected.skipped:
        say(f"not finished: {collected.skipped}. {measuring.go_on()}")
        return PARTLY
    if not asked:
        say("everything came from the journal, nothing was asked; to ask anew, add --fresh TEXT")
    if failed := sum(collected.failures.values()):
        again = "; the same command asks again what got no answer" if asked else ""
        say(f"judgements that are missing: {failed:,}{again}")
    return PARTLY if failed else 0


def _tell_malformed(path: str, survey: Survey) -> None:
    """A line for each line of the data that is no user; of very many, how many more there are."""
    from textevolve.export.wording import shorten

    for line in survey.malformed[:MALFORMED_SHOWN]:
        who = f" (user {shorten(line.id, 40)})" if line.id else ""
        say(f"{path}:{line.line}: skipped, not a user{who}: {shorten(line.reason, 300)}")
    left = len(survey.malformed) - MALFORMED_SHOWN
    if left > 0:
        say(f"{left} more skipped in the same way; the summary has them all")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="The folder of a run, or its records.jsonl.")],
    second: Annotated[str, typer.Argument(help="That of another on the same users.")],
    seed: Annotated[int, typer.Option(help="Of the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
) -> None:
    """Tell whether one run does better than another: differences, second less first, by user.

    Only users that are in both runs are compared. Exit codes: 0 done; 2 bad input, or no user is in
    both.
    """
    from textevolve.cli.figures import print_json
    from textevolve.cli.memory_tables import print_comparison
    from textevolve.memory_eval import comparison

    found = comparison.compare(_read_tally(first), _read_tally(second), seed=seed)
    if not found.users:
        raise InputError(f"{first} and {second} have no user in common, so nothing can be compared")
    if as_json:
        print_json({"first": first, "second": second, **comparison.to_json(found)})
        return
    print_comparison(
        found,
        {
            "First": first,
            "Second": second,
            "Users": f"{len(found.users):,} in both",
            "Not alike": _name_users(found.uneven, "; judged on other sessions, or fewer"),
            "Only first": _name_users(found.only_first),
            "Only second": _name_users(found.only_second),
        },
    )


def _read_tally(path: str) -> Any:
    import json

    from textevolve.memory_eval.tally import Tally
    from textevolve.runs.memory_records import read_records

    folder = Path(path)
    file = folder / RECORDS if folder.is_dir() else folder
    tally = Tally()
    for judgement in read_records(str(file)):
        tally.add(judgement)
    if not tally.users:
        raise InputError(f"{file}: has no judgements")
    try:
        whole = json.loads((file.parent / SUMMARY).read_text(encoding="utf-8"))["whole"]
    except (OSError, ValueError, KeyError, TypeError):
        return tally
    if not whole:
        say(f"{path}: is of a run that was not finished; its figures are of what was judged")
    return tally


def _name_users(users: Sequence[str], note: str = "") -> str:
    if not users:
        return ""
    from textevolve.export.wording import shorten

    shown = ", ".join(shorten(user, 40) for user in users[:5])
    return f"{len(users):,}: {shown}{', ...' if len(users) > 5 else ''}{note}"


@app.command()
def synth(
    output: Annotated[Path, typer.Argument(help="The file to write: .jsonl.")],
    users: Annotated[int, typer.Option(help="How many users.")] = 5,
    sessions: Annotated[int, typer.Option(help="Sessions of each.")] = 10,
    seed: Annotated[int, typer.Option(help="Another seed makes other users.")] = 0,
) -> None:
    """Make users with dialogues, facts, updates, things not to keep, and questions, by templates.

    No model is needed. It is for trying an adapter and for tests: what a system scores on it says
    little about real dialogues.
    """
    from textevolve.export.files import open_target
    from textevolve.memory_eval.dataset import user_to_line
    from textevolve.memory_eval.synthesis import synthesise

    made = synthesise(users, sessions, seed)
    with open_target(output) as target:
        for user in made:
            target.write(user_to_line(user).encode() + b"\n")
    say(f"written to {output}: {users} users with {sessions} sessions each")
