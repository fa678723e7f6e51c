"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

PLAIN: Mapping[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "rich_markup_mode": None,  # help in boxes takes twice the time
}
"""The settings of typer for all groups of commands."""

RUN = "Run"
ADVANCED = "Advanced"
MaxCost = Annotated[
    float | None,
    typer.Option(
        help="Stop at this cost of model calls, in US dollars.",
        metavar="NUMBER",
        rich_help_panel=RUN,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(help="Stop at this many tokens.", metavar="INTEGER", rich_help_panel=RUN),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(help="Stop at this many calls.", metavar="INTEGER", rich_help_panel=RUN),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Estimate calls, tokens and cost without a model call.",
        rich_help_panel=RUN,
    ),
]
Batch = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Send calls as batch jobs of the provider: cheaper, but slow.",
        rich_help_panel=ADVANCED,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="The Ray cluster that runs the calls: ray, or ray://HOST:PORT.",
        rich_help_panel=ADVANCED,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, a line for each record.", rich_help_panel=RUN),
]
NamespaceName = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", help="The namespace; default: the namespace of the settings."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="A file or postgresql:// address; default: the store of the settings.",
        rich_help_panel=ADVANCED,
    ),
]
ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The server to run on; default: this machine. Its key is in TEXTEVOLVE_SERVER_KEY.",
        rich_help_panel=ADVANCED,
    ),
]


def confirm(question: str, yes: bool) -> None:
    """Ask the user to confirm a deletion, unless `--yes` was passed."""
    if not yes:
        typer.confirm(question, abort=True)
