"""`textevolve config store`: the database itself. What is in it the other commands show."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from textevolve.cli import PARTLY, options, say
from textevolve.cli.results import print_json
from textevolve.errors import InputError
from textevolve.settings import StoreLocation, read_settings, store_location
from textevolve.store import upkeep
from textevolve.store.copying import copy_store

OneObject = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A file, or a postgresql:// address.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="A new file, or the address of an empty database.")
    ],
    as_json: OneObject = False,
) -> None:
    """Copy all of a store into another one, and compare both; broken off, it is gone on with."""
    first, second = _locate(source), _locate(target)
    if isinstance(first, Path) and not first.expanduser().is_file():
        raise InputError(f"store {first}: there is no such file")
    copied = copy_store(first, second)
    if as_json:
        print_json({"from": str(first), "to": str(second), **asdict(copied)})
        return
    rows = ", ".join(f"{number:,} {kind}" for kind, number in copied.rows.items() if number)
    typer.echo(f"{second}: has all that is in {first}\n{rows or 'nothing'}\nSHA-256 {copied.hash}")


def stats(as_json: OneObject = False, store: options.StoreFile = None) -> None:
    """Tell how much a store holds, and what it takes."""
    settings, _ = read_settings({"store": store})
    found = upkeep.read_stats(settings.store)
    cases = found.rows["cases"]
    if as_json:
        each = found.bytes / cases if cases else None
        print_json({"store": str(settings.store), **asdict(found), "bytes_a_case": each})
        return
    free = f", {found.free / 1e6:.1f} MB of them free" if found.free else ""
    each = f", {found.bytes / cases / 1e3:.1f} kB a case" if cases else ""
    typer.echo(f"{settings.store}: {found.engine}, schema {found.revision}")
    typer.echo(f"size: {found.bytes / 1e6:.1f} MB{free}{each}")
    typer.echo("runs: " + (", ".join(f"{n:,} {state}" for state, n in found.runs.items()) or "0"))
    rows = ", ".join(f"{number:,} {kind}" for kind, number in found.rows.items() if number)
    typer.echo(f"rows: {rows or 'none'}")


def vacuum(as_json: OneObject = False, store: options.StoreFile = None) -> None:
    """Give back the room that nothing needs any more, such as that of removed runs."""
    settings, _ = read_settings({"store": store})
    before, after = upkeep.vacuum_store(settings.store)
    if as_json:
        print_json({"store": str(settings.store), "before": before, "after": after})
    else:
        typer.echo(f"{settings.store}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


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
    settings, _ = read_settings({"store": store})
    found = upkeep.check(settings.store, salvage)
    if as_json:
        unread = sum(found.skipped.values())
        figures = {**asdict(found), "unread": unread, "damaged": found.damaged}
        print_json({"store": str(settings.store), **figures})
    else:
        _print_findings(found, settings.store)
    if salvage is not None:
        say(f"what is whole is in {salvage}; use it with --store, or put it in place of the other")
    raise typer.Exit(PARTLY if found.damaged else 0)


def _print_findings(found: upkeep.Findings, path: StoreLocation) -> None:
    whole = ", ".join(f"{number:,} {kind}" for kind, number in found.whole.items())
    typer.echo(f"{path}: {'is damaged' if found.damaged else 'all is whole'}\nwhole: {whole}")
    for run, kinds in found.lost.items():
        if "runs" in kinds:
            typer.echo(f"run {run}: is lost; answers that are whole are found by its command again")
        lost = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if kind != "runs")
        if lost:
            typer.echo(f"run {run}: lost {lost}; its command again takes in and asks what is lost")
    if found.skipped:
        places = ", ".join(f"{number:,} in {table}" for table, number in found.skipped.items())
        typer.echo(f"unreadable places: {places}; each may have held several rows")
    if found.complaint:
        typer.echo(f"SQLite says: {found.complaint}")
        typer.echo("Rows may be missing that are not listed here.")


def _locate(given: str) -> StoreLocation:
    try:
        return store_location(given)
    except ValueError as error:
        raise InputError(str(error)) from None
