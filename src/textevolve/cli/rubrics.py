"""`textevolve rubrics list|show`: the shipped rubrics, to be read and to be copied."""

from __future__ import annotations

from typing import Annotated

import typer

from textevolve.judges.shipped_rubrics import load_rubric, shipped_rubrics


def list_rubrics() -> None:
    """List the shipped rubrics: what each judges by, what it needs, where it comes from."""
    for name in shipped_rubrics():
        typer.echo("\n  ".join((name, *load_rubric(name).about)))


def show(
    rubric: Annotated[str, typer.Argument(metavar="RUBRIC", help="A shipped rubric.")],
) -> None:
    """Print a shipped rubric as a file that can be changed and given as --rubric @FILE."""
    typer.echo(load_rubric(rubric).source, nl=False)
