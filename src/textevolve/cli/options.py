"""Options that several commands read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
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

LIMITS = "Limits"
RUN = "Run"
MaxCost = Annotated[
    float | None,
    typer.Option(help="Stop at this cost, in dollars.", metavar="NUMBER", rich_help_panel=LIMITS),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(help="Stop at this many tokens.", metavar="INTEGER", rich_help_panel=LIMITS),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(help="Stop at this many calls.", metavar="INTEGER", rich_help_panel=LIMITS),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what it may take, and ask nothing.", rich_help_panel=RUN),
]
Batch = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Ask in batch jobs: cheaper where the provider says so, and each wave of calls may"
        " take a day.",
        rich_help_panel=RUN,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="Spread the cases over a Ray cluster: ray, which is the one that RAY_ADDRESS names or"
        " one that is started here, or ray://HOST:PORT; none: this process.",
        rich_help_panel=RUN,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, a line for each record.", rich_help_panel=RUN),
]
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE", help="The file, or the postgresql:// address, that keeps runs."
    ),
]
ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Run it at this server, which TEXTEVOLVE_SERVER_KEY has the key of; none: here.",
        rich_help_panel=RUN,
    ),
]
