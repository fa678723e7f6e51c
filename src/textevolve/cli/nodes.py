"""`textevolve nodes show|export`: what `textevolve runs` cannot do: traces that are no run, nodes
with their states, rewards with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from textevolve.cli import PARTLY, options, say
from textevolve.cli.drawing import open_console
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.events import StepFinished
from textevolve.node_eval.episodes import Reading
from textevolve.node_eval.rewards import check_weights, collect_names, write_rewards
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.files import open_target
from textevolve.report.terminal import print_report
from textevolve.settings import read_settings
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord
from textevolve.studies import driver
from textevolve.studies.node_checks import read_weights
from textevolve.studies.node_records import JudgedNode, Record, encode
from textevolve.studies.nodes import (
    READ,
    STUDY,
    NodesSpec,
    note,
    recorded,
    report,
    summarise,
)
from textevolve.studies.reporting import make_report
from textevolve.studies.stored import read_records

FAULTS_SAID = 5

From = Annotated[
    str, typer.Argument(metavar="TRACE|RUN", help="A trace, - for standard input, or a run.")
]
NodeTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--instruction",
        metavar="NAME=TYPE",
        help="What nodes of a name do, such as plan=DECOMPOSE. Repeatable.",
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs",
        metavar="FILE",
        help="A file of OTLP logs, where messages stand apart from the spans. Repeatable.",
    ),
]


@dataclass(frozen=True)
class NodeSource:
    """A trace, or a run: `records` gives its nodes, anew each time; `reading` is what was met while
    a trace was read. `store` and `run`: of a run alone."""

    spec: NodesSpec
    records: Callable[[], Iterator[Record]]
    reading: Reading
    store: Store | None = None
    run: RunRecord | None = None

    def nodes(self) -> Iterator[JudgedNode]:
        return (record for record in self.records() if isinstance(record, JudgedNode))

    def report(self, most: int, *, states: bool = False) -> Report:
        """`most`: so many nodes are shown."""
        study = replace(
            STUDY,
            summarise=partial(summarise, most=most),
            report=partial(report, most=most, states=states),
        )
        if self.store is not None and self.run is not None:
            return make_report(study, self.store, self.run, self.records)
        return study.report(self.spec, study.summarise(self.spec, self.records()))


def open_source(
    stack: ExitStack,
    source: str,
    instruction: list[str] | None,
    logs: list[str] | None,
    store: str | None,
) -> NodeSource:
    """What was named on the command line.

    Raises:
        InputError: an option cannot be used, or the run holds no nodes. StoreError: there is no
            such run.
    """
    reading = Reading()
    spec = NodesSpec(trace=source, instruction=tuple(instruction or ()), logs=tuple(logs or ()))
    which = spec.earlier_run
    if which is None:
        if "-" in (source, *spec.logs):  # cannot be read twice
            held = list(recorded(spec, reading))
            return NodeSource(spec, lambda: iter(held), reading)
        return NodeSource(spec, lambda: recorded(spec, reading), reading)
    settings, _ = read_settings({"store": store})
    opened = stack.enter_context(open_store(settings.store))
    run = opened.get_run(which)
    if run.spec.get("kind") != STUDY.kind:
        raise InputError(f"run {run.id}: holds no nodes of agents; see textevolve runs list")
    sync.run(driver.restore_records(opened, run, settings))
    records = read_records(opened, run)
    return NodeSource(spec, records, reading, opened, run)


def show(
    source: From = "last",
    states: Annotated[
        bool, typer.Option("--states", help="With the beginning of inputs and outputs.")
    ] = False,
    limit: Annotated[int, typer.Option(help="How many nodes are drawn at most.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Each node as a JSON line.")] = False,
    instruction: NodeTypes = None,
    logs: Logs = None,
    store: options.StoreFile = None,
) -> None:
    """Show the nodes of a trace or of a run as a tree, without a model call."""
    with ExitStack() as stack:
        opened = open_source(stack, source, instruction, logs, store)
        if not as_json:
            print_report(opened.report(max(0, limit), states=states), open_console())
        else:
            for record in opened.records():
                print(encode(record).decode())
    raise typer.Exit(say_faults(opened.reading))


def export(
    source: From,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file of rewards, as .jsonl, or -.")
    ] = "-",
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER", help="What an evaluator counts in a total. Repeatable."
        ),
    ] = None,
    instruction: NodeTypes = None,
    logs: Logs = None,
    store: options.StoreFile = None,
) -> None:
    """Write a reward for each node and evaluator, for training."""
    weights = read_weights("--weight", weight or [])
    if output != "-" and not output.lower().endswith(".jsonl"):
        raise InputError(f"{output}: must end in .jsonl; `textevolve runs export` writes the rest")
    with ExitStack() as stack:
        opened = open_source(stack, source, instruction, logs, store)
        names = collect_names(opened.nodes())
        check_weights(weights, names)
        with open_target(output) as target:
            number = write_rewards(opened.nodes(), names, target, weights)
        if output != "-":
            say(f"{number} rewards written to {output}")
    raise typer.Exit(say_faults(opened.reading))


def say_faults(reading: Reading) -> int:
    """Say what of a trace could not be used; the exit code."""
    for fault in reading.faults[:FAULTS_SAID]:
        say(f"not used: {wording.shorten(fault, 300)}")
    if reading.n_faults > FAULTS_SAID:
        say(f"not used: {reading.n_faults - FAULTS_SAID:,} more lines or spans")
    if said := note(StepFinished(STUDY.kind, READ, reading)):
        say(said)
    return PARTLY if reading.n_faults else 0
