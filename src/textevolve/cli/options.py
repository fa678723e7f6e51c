"""Options that several commands read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.errors import InputError
from textevolve.rows import read_argument as read_argument
from textevolve.texts.numbers import read_number

PLAIN: Mapping[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "rich_markup_mode": None,  # help in boxes takes twice the time
}
"""How groups of commands behave."""

MaxCost = Annotated[float | None, typer.Option(help="Stop at this cost, in dollars.")]
MaxTokens = Annotated[int | None, typer.Option(help="Stop at this many tokens.")]
MaxCalls = Annotated[int | None, typer.Option(help="Stop at this many calls.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it may take, and ask nothing.")]
RunName = Annotated[str | None, typer.Option(help="A name for the run.")]
StoreFile = Annotated[Path | None, typer.Option("--store", help="The file that keeps runs.")]


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given on the command line."""
    return {name: value for name, value in parameters.items() if value is not None}


def read_weights(text: str | None) -> dict[str, float] | None:
    """`accuracy=1,relevance=0.5` as a mapping.

    Raises:
        InputError: it is not of that form, or names a component twice.
    """
    if text is None:
        return None
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in weights:
            raise InputError(f"--weights: '{name}' is there twice; give each component one weight")
        try:
            weights[name] = read_number(value)
        except ValueError:
            raise InputError(
                f"--weights: '{part}' is not of the form NAME=NUMBER, such as accuracy=1"
            ) from None
    return weights
