"""`textevolve nodes`: judges the nodes (steps of an agent) of a trace file, or of a folder in which
traces are written, and draws them.
"""

from __future__ import annotations

import inspect
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.cli import GATED, INTERRUPTED, PARTLY, say
from textevolve.cli.results import fetch_weights, show_report
from textevolve.cli.spec_options import give_parameters, parameters_of, read_given
from textevolve.cli.study import RunOptions, make_command, take_launch, telling_warnings
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.events import StepFinished
from textevolve.mappings import omit, pick
from textevolve.node_eval.judging import Reading
from textevolve.report import wording
from textevolve.runs.gates import Gates
from textevolve.settings import read_settings
from textevolve.store.repository import open_store
from textevolve.studies.following import FollowSpec, PassRateWatch, WatchedLook, follow_traces
from textevolve.studies.node_report import report, summarise_nodes, write_node
from textevolve.studies.nodes import READ, NodesSpec, note, recorded

FOLLOWING = ("name", "concurrency", "max_cost", "max_tokens", "max_calls", "time_limit", "store")
"""The options of runs that a watch has, too."""


def _shape_evaluate() -> Any:
    """Return the command that judges a trace, or with `--follow` a folder while it is written."""
    run_study = make_command(NodesSpec.kind)

    def evaluate(**values: Any) -> None:
        follow_options = FollowSpec(**read_given(FollowSpec, values))
        others = omit(values, FollowSpec.model_fields)
        if follow_options.follow:
            raise typer.Exit(_follow(follow_options, others))
        for name in FollowSpec.model_fields:
            if values[name] is not None:
                raise InputError(f"--{name}: is for --follow alone; add --follow or leave it out")
        run_study(**others)

    evaluate.__doc__ = run_study.__doc__
    parameters = [*inspect.signature(run_study).parameters.values(), *parameters_of(FollowSpec)]

    return give_parameters(evaluate, parameters)


evaluate = _shape_evaluate()


@telling_warnings()
def _follow(options: FollowSpec, values: dict[str, Any]) -> int:
    """Judge the traces of a folder while they are written, with a line for each look that has
    judged some; return the exit code."""
    spec = NodesSpec(**read_given(NodesSpec, values))
    if not spec.trace:
        raise InputError("--follow: name the folder, or the file, in which traces are written")
    for name in (*(field.name for field in fields(RunOptions)), *Gates.model_fields):
        if name not in FOLLOWING and values.get(name) not in (None, False, []):
            option = "json" if name == "as_json" else name.replace("_", "-")
            raise InputError(
                f"--{option}: does not go with --follow; each look is a run, for `textevolve runs`"
            )

    run_options = RunOptions(**pick(values, FOLLOWING))
    settings = read_settings(
        model=spec.plain_model, store=run_options.store, concurrency=run_options.concurrency
    )
    if settings.server is not None:
        raise InputError("--follow reads files of this machine; unset the server of the settings")
    launch = take_launch(run_options, "command line")
    if not launch.name:
        launch = replace(launch, name=f"follow {Path(spec.trace).resolve().name}")
    watch = PassRateWatch(options.expected)
    fetch_weights(filter(None, [settings.model]), settings)
    code = 0

    with open_store(settings.store) as store:
        looks = follow_traces(spec, options, watch, store, settings, launch)
        try:
            with closing(sync.iterate(looks)) as following:
                for look in following:
                    _print_look(look, watch)
                    code = PARTLY if look.look.reading.n_faults else code
                    if look.is_alarm:
                        recent = wording.percent(sum(watch.recent) / len(watch.recent))
                        print(
                            f"ALARM: the pass rate has fallen below {options.expected:g}: of the"
                            f" last {len(watch.recent)} traces {recent} passed. The same command"
                            " continues, with new evidence.",
                            flush=True,
                        )
                        return GATED
                    if look.is_limited:
                        say("a limit is reached. The same command continues with new limits.")
                        return PARTLY
        except KeyboardInterrupt:
            say(
                "stopped; every answer so far is kept. The same command continues: it finishes the"
                " run that was started, and judges no trace twice"
            )
            return INTERRUPTED

    return code


def _print_look(watched: WatchedLook, watch: PassRateWatch) -> None:
    """Print the judged traces of a look, and report the traces and lines that are left out."""
    look = watched.look
    missing = [reason for reason in watched.verdicts if isinstance(reason, str)]
    judged = [passed for passed in watched.verdicts if not isinstance(passed, str)]
    parts: list[str] = []
    if watched.verdicts:
        parts.append(f"{wording.count(len(judged), 'trace')} judged, {sum(judged)} passed")
    if missing:
        reason = wording.shorten(missing[0], 100)
        parts.append(f"{len(missing):,} without a verdict, which are no evidence ({reason})")
    total = look.unused.total() + len(look.episodes)
    for reason, number in (+look.unused).items():
        parts.append(f"{number:,} of {total:,} ({wording.percent(number / total)}) {reason}")
    if watched.verdicts:
        share = wording.percent(watch.passed / watch.judged, 1) if watch.judged else "none"
        parts.append(f"{share} of all {watch.judged:,} passed; run {watched.run}")
    if parts:
        print("; ".join(parts), flush=True)

    for text in look.notes:
        say(text)
    if look.late:
        say(f"{wording.count(look.late, 'span')} came after their trace was judged; see --every")
    for fault in look.reading.faults[:FAULTS_SHOWN]:
        say(f"not read: {fault}")
    if look.reading.n_faults > FAULTS_SHOWN:
        say(f"not read: {look.reading.n_faults - FAULTS_SHOWN:,} more")


FAULTS_SHOWN = 5
"""The number of faults of a look that are printed."""


def show(
    source: Annotated[
        str, typer.Argument(metavar="TRACE", help="The file of a trace; - is standard input.")
    ] = "",
    states: Annotated[
        bool, typer.Option("--states", help="Show the beginning of each node's input and output.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="The most nodes to show.")] = 200,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each node as a JSON line.")
    ] = False,
    instruction: Annotated[
        list[str] | None,
        typer.Option(
            "--instruction",
            metavar="NAME=TYPE",
            help="The type of the nodes of one name, such as plan=DECOMPOSE. Repeatable.",
        ),
    ] = None,
) -> None:
    """Show the nodes of a trace as a tree, without a model call."""
    spec = NodesSpec(trace=source, instruction=tuple(instruction or ()))
    reading = Reading()
    records = recorded(spec, reading)

    if as_json:
        for record in records:
            print(write_node(record).decode())
    else:
        result = summarise_nodes(spec, records, limit)
        show_report(report(spec, result, most=None, states=states))

    if notice := note(StepFinished("nodes", READ, reading)):
        say(notice)
    raise typer.Exit(PARTLY if reading.n_faults else 0)
