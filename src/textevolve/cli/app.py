"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

import textevolve
from textevolve.cli import (
    bench,
    calibrate,
    command,
    config,
    doctor,
    evaluate,
    guide,
    innovate,
    memory_eval,
    models,
    nodes,
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
    rich_markup_mode=None,  # help in boxes takes twice the time
)
app.command("evaluate")(evaluate.evaluate)
app.command("optimize", short_help="Write, judge and revise a text; keep the best.")(
    optimize.optimize
)
app.command("calibrate", short_help="Search for a better prompt template.")(calibrate.calibrate)
app.command("guide", short_help="Answer a question with a debate as reasoning.")(guide.guide)
app.command("innovate", short_help="Refine an input by judgements of its outputs.")(
    innovate.innovate
)
app.add_typer(runs.app, name="runs", help="Show, resume, replay, export and remove runs.")
app.add_typer(bench.app, name="bench", help="Measure judges before believing them.")
app.add_typer(
    memory_eval.app,
    name="memory-eval",
    help="Measure what a memory system keeps; `memory-eval DATA.jsonl` is `memory-eval run`.",
)
app.add_typer(nodes.app, name="nodes", help="Judge the steps of recorded agents.")
app.add_typer(profiles.app, name="profile", help="Write, list, show and check profiles.")
app.add_typer(models.app, name="models", help="List, fetch and check local models.")
app.command("doctor", short_help="Check settings, keys, store and endpoints.")(doctor.doctor)
app.command("config", short_help="Show the settings and where they come from.")(config.config)
command.use_everywhere(app)


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
