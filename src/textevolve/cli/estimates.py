"""What something may take, as it is shown before anything is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from textevolve.estimates.debate import UsageRange


def print_estimate(
    found: UsageRange, model: str, why: str, *, noun: str = "cases", as_json: bool = False
) -> None:
    """The range of calls, tokens and cost; `noun` is what the number of cases is shown under."""
    least, most = found.least, found.most
    if as_json:
        rows = {
            name: {
                "calls": usage.calls,
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "cost": usage.cost,
            }
            for name, usage in (("least", least), ("most", most))
        }
        typer.echo(json.dumps({noun: found.cases, "model": model, **rows}))
        return
    if model:
        typer.echo(f"model              {model} ({why})")
    typer.echo(f"{noun:<19}{found.cases:,}")
    for name, said in found.parts.items():
        typer.echo(f"{name:<19}{said}")
    typer.echo(f"calls              {least.calls:,} to {most.calls:,}")
    typer.echo(f"prompt tokens      {least.prompt_tokens:,} to {most.prompt_tokens:,}")
    typer.echo(f"completion tokens  {least.completion_tokens:,} to {most.completion_tokens:,}")
    if least.cost is None or most.cost is None:
        place = f'[prices."{model}"]'
        typer.echo(f"cost               not known: give a price in the settings under {place}")
    else:
        typer.echo(f"cost               ${least.cost:,.4f} to ${most.cost:,.4f}")
    typer.echo("Nothing was asked. What the journal already holds would cost nothing.")
