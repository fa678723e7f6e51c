"""`textevolve nodes`: judge every step of recorded agents, show them, export rewards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import options, say
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.node_eval.episodes import Episode

app = typer.Typer(**options.PLAIN)

ENDINGS = (".jsonl", ".html")

Source = Annotated[
    str,
    typer.Argument(
        metavar="TRACE|RUN",
        help="JSON lines of ours or OpenTelemetry spans as OTLP JSON, - reads them; or a run.",
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--instruction",
        metavar="NAME=TYPE",
        help="What nodes of this name do, such as plan=DECOMPOSE; repeatable.",
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs",
        metavar="FILE",
        help="OTLP logs, where messages stand in another file than spans; repeatable.",
    ),
]


@app.command()
def evaluate(
    source: Source,
    judge: Annotated[
        list[str] | None,
        typer.Option("--judge", "-j", help="Such as probe, debate:general+rounds=1; repeatable."),
    ] = None,
    rules: Annotated[str | None, typer.Option(help="A file of rules for the output.")] = None,
    least: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="KEY=NUMBER",
            help="A number that the output must reach; repeatable.",
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(metavar="MIN:MAX", help="Characters of the output; either may be left out."),
    ] = None,
    schema: Annotated[str | None, typer.Option(help="A file with a JSON schema.")] = None,
    latency: Annotated[float | None, typer.Option(help="Seconds that a node may take.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens that a node may use.")] = None,
    consistency: Annotated[
        bool, typer.Option("--consistency", help="Compare with earlier nodes of the type.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Judge nodes of this type only; repeatable."),
    ] = None,
    instruction: Types = None,
    logs: Logs = None,
    input_key: Annotated[str | None, typer.Option(help="The field of the input to judge.")] = None,
    output_key: Annotated[
        str | None, typer.Option(help="The field of the output to judge.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="For judges that name none.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Nodes in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Each node as a JSON line.")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", help="Nodes to .jsonl, a page to .html; repeatable."),
    ] = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Judge every node of a recorded run of an agent.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 a score is missing, or a line of the trace could
    not be used; 130 interrupted.
    """
    from textevolve.cli import measuring
    from textevolve.cli.node_options import read_length, read_number, read_type
    from textevolve.cli.node_sources import open_source, say_faults
    from textevolve.cli.node_work import judge_run, show_estimate
    from textevolve.engine import sync
    from textevolve.runs.node_checks import choose_checks
    from textevolve.runs.nodes import begin_nodes, specify_nodes
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    measuring.check_outputs(output or [], ENDINGS)
    wanted = [read_type("--only", one) for one in only or []]
    checks = choose_checks(
        rules=rules,
        thresholds=[read_number("--threshold", one) for one in least or []],
        length=read_length(length),
        schema=schema,
        latency=latency,
        tokens=tokens,
        consistency=consistency,
        input_key=input_key,
        output_key=output_key,
        only=wanted,
    )
    if not checks and not judge:
        raise InputError("nothing to judge by: give --judge, --rules, --threshold or another")
    limits = Limits(max_cost, max_tokens, max_calls)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    spec = sync.run(
        specify_nodes(
            settings, judge or [], model, input_key=input_key, output_key=output_key, only=wanted
        )
    )
    with ExitStack() as stack:
        trace = open_source(stack, source, instruction, logs, store)
        if dry_run:
            show_estimate(trace.read(), spec, settings, as_json=as_json)
            raise typer.Exit(say_faults(trace.reading))
        kept = stack.enter_context(open_store(settings.store))
        run = begin_nodes(kept, spec, trace.read(), checks, name=name or "", source=source)
        code = say_faults(trace.reading)
        try:
            ended = judge_run(kept, run, settings, limits, output or [], as_json=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(measuring.stopped()) from None
    raise typer.Exit(ended or code)


@app.command()
def show(
    source: Source = "last",
    states: Annotated[
        bool, typer.Option("--states", help="With the beginning of inputs and outputs.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Nodes that are drawn at most.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Each node as a JSON line.")] = False,
    instruction: Types = None,
    logs: Logs = None,
    store: options.StoreFile = None,
) -> None:
    """Show the nodes of a trace or of a run as a tree, without a model call."""
    from textevolve.cli.node_sources import open_source, print_lines, say_faults
    from textevolve.cli.node_tables import print_tallies, print_trees
    from textevolve.node_eval.statistics import Tallies

    tallies = Tallies()
    with ExitStack() as stack:
        opened = open_source(stack, source, instruction, logs, store)

        def counted() -> Iterator[Episode]:
            for episode in opened.read():
                tallies.add(episode)
                yield episode

        if as_json:
            print_lines(counted())
        else:
            print_trees(counted(), states=states, most=max(0, limit))
            print_tallies(tallies, opened.facts())
    raise typer.Exit(say_faults(opened.reading))


@app.command()
def export(
    source: Source,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Rewards to .jsonl or -, a page to .html.")
    ] = "-",
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Of an evaluator in a total; repeatable."),
    ] = None,
    instruction: Types = None,
    logs: Logs = None,
    store: options.StoreFile = None,
) -> None:
    """Write a reward for each node and evaluator, for training, or all of it as a page."""
    from textevolve.cli import measuring
    from textevolve.cli.node_options import read_number
    from textevolve.cli.node_sources import open_source, say_faults, write_page
    from textevolve.export.files import open_target
    from textevolve.node_eval.rewards import check_weights, collect_names, write_rewards

    if output != "-":
        measuring.check_outputs([output], ENDINGS)
    weights = dict(read_number("--weight", one) for one in weight or [])
    with ExitStack() as stack:
        opened = open_source(stack, source, instruction, logs, store)
        if output.lower().endswith(".html"):
            write_page(opened.read(), output, opened.facts)
            say(f"written to {output}")
        else:
            names = collect_names(opened.read())
            check_weights(weights, names)
            with open_target(output) as target:
                number = write_rewards(opened.read_again(), names, target, weights)
            if output != "-":
                say(f"{number} rewards written to {output}")
    raise typer.Exit(say_faults(opened.reading))
