"""`textevolve nodes show`: draws the nodes (steps of an agent) of a trace file, without a run."""

from __future__ import annotations

from typing import Annotated

import typer

from textevolve.cli import PARTLY, say
from textevolve.cli.results import show_report
from textevolve.events import StepFinished
from textevolve.node_eval.judging import Reading
from textevolve.studies.node_report import report, summarise_nodes, write_node
from textevolve.studies.nodes import READ, NodesSpec, note, recorded


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
