"""`textevolve runs`: what the store keeps, and what can be made of it without asking again."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textevolve.cli import PARTLY, options, say
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.debate.result import DebateResult
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.store.salvage import Findings

app = typer.Typer(**options.PLAIN)

Run = Annotated[str, typer.Argument(help="The run's id, the start of it, its name, or 'last'.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON lines.")]


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(help="How many, the newest first.")] = 20,
    as_json: Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the runs that are kept."""
    from textevolve.cli.tables import print_runs

    settings, opened = _open(store)
    with opened:
        rows = [(run, opened.run_totals(run.id)) for run in opened.list_runs(limit)]
    if not rows and not as_json:
        typer.echo(f"no runs in {settings.store}; make one with: textevolve evaluate")
        return
    print_runs(rows, as_json=as_json)


@app.command()
def show(
    run: Run = "last",
    failed: Annotated[
        bool, typer.Option("--failed", help="Only records that have no score, with the reason.")
    ] = False,
    below: Annotated[
        float | None, typer.Option(help="Only records with a score below this, from 0 to 1.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="By score, the lowest first, or -score, the highest first.")
    ] = None,
    as_json: Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show a run's results, without a model call."""
    from textevolve.cli import kept
    from textevolve.cli.tables import show_run

    settings, opened = _open(store)
    with opened:
        record = _get_whole(opened, run)
        if kept.is_study(record):
            wanted = kept.Wanted(failed=failed, below=below, sort=sort)
            kept.show(opened, record, settings, wanted, as_json=as_json)
            return
        with _read(opened, settings, record) as results:
            show_run(record, opened.run_totals(record.id), results, as_json=as_json)


@app.command()
def resume(
    run: Run = "last",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Results to a file.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Debates in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    as_json: Json = False,
    store: options.StoreFile = None,
) -> None:
    """Go on with a run: only what is missing is asked."""
    from textevolve.cli import kept
    from textevolve.cli.execution import check_output, execute
    from textevolve.wiring import Limits

    limits = Limits(max_cost, max_tokens, max_calls)
    settings, opened = _open(store, concurrency=concurrency)
    with opened:
        record = _get_whole(opened, run)
        if kept.is_study(record):
            outputs = None if output is None else [output]
            raise typer.Exit(
                kept.resume(opened, record, settings, limits, outputs, as_json=as_json)
            )
        check_output(output)
        code = execute(opened, record, settings, limits, output=output, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def replay(
    run: Run = "last",
    weights: Annotated[str | None, typer.Option(help="Such as accuracy=1,relevance=0.5.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the softmax, above 0.")] = None,
    aggregation: Annotated[str | None, typer.Option(help="mean, median or trimmed.")] = None,
    convergence: Annotated[str | None, typer.Option(help="A CV, or 'none'.")] = None,
    convergence_mode: Annotated[str | None, typer.Option(help="agents or pooled.")] = None,
    escalate_below: Annotated[
        float | None, typer.Option(help="With escalation: the certainty of round 1 that will do.")
    ] = None,
    select: Annotated[str | None, typer.Option(help="argmax or sample.")] = None,
    threshold: Annotated[float | None, typer.Option(help="From which score one passes.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Results to a file.")] = None,
    as_json: Json = False,
    store: options.StoreFile = None,
) -> None:
    """Score a run anew under other parameters, without a model call."""
    from textevolve.cli.tables import show_run

    parameters = {
        "weights": options.read_weights(weights),
        "temperature": temperature,
        "aggregation": aggregation,
        "convergence": convergence,
        "convergence_mode": convergence_mode,
        "escalate_below": escalate_below,
        "select": select,
        "threshold": threshold,
    }
    settings, opened = _open(store)
    with opened:
        record = _get_whole(opened, run)
        with _read(opened, settings, record, options.given(parameters)) as results:
            if output is not None:
                _write(results, output, record, opened)
            else:
                show_run(record, opened.run_totals(record.id), results, as_json=as_json)


@app.command()
def export(
    run: Run,
    output: Annotated[str, typer.Argument(help="A .jsonl, .csv, .parquet or .html file.")],
    turns: Annotated[bool, typer.Option("--turns", help="A row for each turn.")] = False,
    store: options.StoreFile = None,
) -> None:
    """Write a run's results to a file: a table, or one HTML page that opens from disk."""
    from textevolve.cli import kept

    settings, opened = _open(store)
    with opened:
        record = _get_whole(opened, run)
        if kept.is_study(record):
            kept.export(opened, record, settings, output)
            return
        with _read(opened, settings, record) as results:
            _write(results, output, record, opened, turns=turns)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="A run's id, the start of it, or its name.")],
    second: Annotated[str, typer.Argument(help="Another run over the same cases.")],
    as_json: Json = False,
    store: options.StoreFile = None,
) -> None:
    """Compare two runs over the same cases: paired differences of scores, with an interval."""
    from textevolve.cli import kept

    settings, opened = _open(store)
    with opened:
        one, other = _get_whole(opened, first), _get_whole(opened, second)
        kept.compare(opened, (one, other), settings, as_json=as_json)


@app.command()
def variance(run: Run = "last", as_json: Json = False, store: options.StoreFile = None) -> None:
    """Show where the scores' variance comes from, and how many votes the agents are worth."""
    from textevolve.cli.figures import print_variance
    from textevolve.runs.measurement import measure_variance

    settings, opened = _open(store)
    with opened:
        record = _get_whole(opened, run)
        with _read(opened, settings, record) as results:
            print_variance(measure_variance(results), record.id, as_json=as_json)


@app.command()
def check(
    salvage: Annotated[
        Path | None, typer.Option(help="A new file, into which what is whole is copied.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    store: options.StoreFile = None,
) -> None:
    """Tell what of the store is whole, and save that into a new one where it is damaged.

    Exit codes: 0 all is whole; 1 the store cannot be read, or the new one not be written; 3 the
    store is damaged.
    """
    from textevolve.cli.figures import print_json
    from textevolve.settings import read_settings
    from textevolve.store.salvage import check_store

    settings, _ = read_settings({"store": store})
    found = check_store(settings.store, salvage)
    if as_json:
        print_json({"store": str(settings.store), **asdict(found), "damaged": found.damaged})
    else:
        _print_findings(found, settings.store)
    if salvage is not None:
        say(f"what is whole is in {salvage}; use it with --store, or put it in place of the other")
    raise typer.Exit(PARTLY if found.damaged else 0)


def _print_findings(found: Findings, path: Path) -> None:
    from textevolve.export.wording import count

    whole = ", ".join(f"{number:,} {kind}" for kind, number in found.whole.items())
    typer.echo(f"{path}: {'is damaged' if found.damaged else 'all is whole'}\nwhole: {whole}")
    for run, kinds in found.lost.items():
        if "runs" in kinds:
            typer.echo(f"run {run}: is lost; answers that are whole are found by its command again")
        lost = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if kind != "runs")
        if lost:
            typer.echo(f"run {run}: lost {lost}; its command again takes in and asks what is lost")
    if found.unread:
        typer.echo(f"{count(found.unread, 'place')} where something stood that cannot be read")
    if found.complaint:
        typer.echo(f"SQLite says: {found.complaint}")


@app.command("delete")
def remove(
    run: Run,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: options.StoreFile = None,
) -> None:
    """Remove a run, with the answers that no other run uses."""
    _, opened = _open(store)
    with opened:
        record = opened.get_run(run)
        if not yes:
            typer.confirm(f"Remove run {record.id} ({record.n_cases} cases)?", abort=True)
        freed = opened.delete_run(record.id)
    typer.echo(f"removed run {record.id}: {freed.cases} cases, {freed.calls} calls")


def _open(store: Path | None, **overrides: Any) -> tuple[Settings, Store]:
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store

    settings, _ = read_settings({"store": store, **overrides})
    return settings, open_store(settings.store)


def _get_whole(store: Store, which: str) -> RunRecord:
    """The run that is named, if all its cases are there."""
    run = store.get_run(which)
    if run.n_cases is None:
        raise InputError(
            f"run {run.id}: its cases were not taken in whole; give its command again, or remove it"
        )
    return run


def _read(
    store: Store, settings: Settings, run: RunRecord, parameters: Mapping[str, Any] | None = None
) -> closing[Generator[DebateResult]]:
    from textevolve.engine import sync
    from textevolve.runs.work import Work, read_run

    work = Work(store, settings, parameters=dict(parameters or {}))
    return closing(sync.iterate(read_run(run, work)))


def _write(
    results: Iterable[DebateResult],
    output: str,
    run: RunRecord,
    store: Store,
    *,
    turns: bool = False,
) -> None:
    from textevolve.cli.execution import write_output

    number = write_output(results, output, run, store, turns=turns)
    if output != "-":
        typer.echo(f"{number} results written to {output}", err=True)
