"""Options that several commands read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.rows import read_argument as read_argument

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a line for each record.")]
StoreFile = Annotated[Path | None, typer.Option("--store", help="The file that keeps runs.")]
