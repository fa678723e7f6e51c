"""`textevolve models list|pull|check`: local weights, and how their download is drawn."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from textevolve.errors import FatalModelError
from textevolve.llm import weights
from textevolve.llm.providers import LOCAL, PROVIDERS
from textevolve.llm.weights import Progress, ReportProgress
from textevolve.settings import read_settings


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON list.")] = False,
) -> None:
    """Show the local models that are known: size, licence, whether they are here and checked."""
    settings, _ = read_settings()
    rows = weights.list_weights(settings)
    if as_json:
        typer.echo(json.dumps([_as_json(row) for row in rows], indent=2))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        size = f"{row.bytes / 1e9:.2f} GB"
        note = f"  ({row.note})" if row.note else ""
        typer.echo(f"{row.name:{width}}  {size:>8}  {row.licence:10}  {row.state:11}{note}")
    typer.echo(f"\nkept in {settings.weights_folder}; used as local/NAME")


def pull(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names; the default model if none is given.")
    ] = None,
) -> None:
    """Fetch weights and check their hash; a download that broke off goes on."""
    settings, _ = read_settings()
    for name in names or [PROVIDERS[LOCAL].default_model or ""]:
        with draw_transfer() as report:
            path = weights.fetch(name.removeprefix(f"{LOCAL}/"), settings, report)
        typer.echo(f"{name}: ready in {path}")


def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names; all that are here if none is given.")
    ] = None,
) -> None:
    """Hash weights anew and compare with the catalogue."""
    settings, _ = read_settings()
    here = [row.name for row in weights.list_weights(settings) if row.path.is_file()]
    damaged: list[str] = []
    for name in names or here:
        with draw_transfer() as report:
            row = weights.check(name.removeprefix(f"{LOCAL}/"), settings, report)
        typer.echo(f"{row.name}: {row.state}, SHA-256 {row.sha256}")
        if row.state == "damaged":
            damaged.append(row.name)
    if not (names or here):
        typer.echo(f"no weights in {settings.weights_folder}")
    if damaged:
        raise FatalModelError(
            f"damaged: {', '.join(damaged)}; `textevolve models pull {' '.join(damaged)}` fetches"
            " what is needed again"
        )


def _as_json(row: weights.WeightsRow) -> dict[str, Any]:
    return asdict(row) | {"path": str(row.path)}


@contextmanager
def draw_transfer() -> Generator[ReportProgress]:
    """A listener for `fetch` that draws bytes, speed, source and time left; notes stay in view."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    from textevolve.cli.drawing import open_console

    console = open_console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    shown: dict[str, Any] = {}

    def report(now: Progress) -> None:
        if now.note:
            console.print(f"{now.name}: {now.note}", markup=False, highlight=False, soft_wrap=True)
        # A new source, or hashing what has arrived, is a new piece of work with its own speed.
        if shown.get("source") != now.source or (now.note and now.done == 0):
            if "task" in shown:
                bar.remove_task(shown["task"])
            shown["source"] = now.source
            shown["task"] = bar.add_task(f"{now.name}, {now.source}", total=now.total)
        bar.update(shown["task"], completed=now.done)

    with bar:
        yield report
