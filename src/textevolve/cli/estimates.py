"""What something may take, as it is shown before anything is asked."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

import typer

from textevolve.report.wording import money
from textevolve.studies.rehearsal import FIGURES

WIDTH = 19


def print_estimate(data: Mapping[str, Any], why: str, *, as_json: bool = False) -> None:
    """Print what is to be expected of calls, tokens and cost. `why`: how the model was found."""
    if as_json:
        typer.echo(json.dumps(data))
        return
    if data["model"]:
        _line("model", f"{data['model']} ({why})")
    _line("cases", f"{data['cases']:,}")
    for name, text in data.get("parts", {}).items():
        _line(name, text)
    _line("expected", "the median of rehearsals with made-up answers, and their range")
    for name in FIGURES:
        if figure := data["expected"].get(name):
            middle, low, high = (
                money(figure[end]) if name == "cost" else _round(figure[end])
                for end in ("median", "low", "high")
            )
            _line(name.replace("_", " "), middle if low == high else f"{middle} ({low} to {high})")
    if "cost" not in data["expected"]:
        place = f'[prices."{data["model"]}"]'
        _line("cost", f"not known: give a price in the settings under {place}")
    elif "costs" in data and data["expected"]["cost"]["high"]:
        _line("", data["costs"])
    typer.echo("Nothing was asked. What the journal already holds would cost nothing.")


def _line(name: str, said: str) -> None:
    width = max(2 * WIDTH, shutil.get_terminal_size().columns)
    indent = " " * WIDTH
    wrapped = textwrap.wrap(said, width, initial_indent=indent, subsequent_indent=indent)
    typer.echo("\n".join([f"{name:<{WIDTH}}{wrapped[0].strip()}", *wrapped[1:]]))


def _round(value: float) -> str:
    """A number to three digits: more would say what nobody knows."""
    return f"{int(float(f'{value:.3g}')) if value >= 1000 else round(value):,}"
