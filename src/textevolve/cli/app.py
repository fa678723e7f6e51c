"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

import textevolve
from textevolve.cli import (
    bench,
    calibrate,
    config,
    doctor,
    evaluate,
    guide,
    innovate,
    models,
    optimize,
    profiles,
    runs,
)

app = typer.Typer(
    name="textevolve",
    help="Measure text with a structured debate of AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("evaluate")(evaluate.evaluate)
app.command("optimize")(optimize.optimize)
app.command("calibrate")(calibrate.calibrate)
app.command("guide")(guide.guide)
app.command("innovate")(innovate.innovate)
app.add_typer(runs.app, name="runs", help="Show, resume, replay, export and remove runs.")
app.add_typer(bench.app, name="bench", help="Measure judges before believing them.")
app.add_typer(profiles.app, name="profile", help="Write, list, show and check profiles.")
app.add_typer(models.app, name="models", help="List, fetch and check local models.")
app.command("doctor")(doctor.doctor)
app.command("config")(config.config)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"textevolve {textevolve.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Options before any command."""
