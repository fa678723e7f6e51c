"""What something may take, as it is shown before anything is asked."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import typer

from textevolve.report.wording import money
from textevolve.studies.rehearsal import FIGURES

WIDTH = 19


def print_estimate(data: Mapping[str, Any], why: str, *, as_json: bool = False) -> None:
    """Print what is to be expected of calls, tokens and cost, and the bounds of it. `why`: how the
    model was found."""
    if as_json:
        typer.echo(json.dumps(data))
        return
    if data["model"]:
        _line("model", f"{data['model']} ({why})")
    _line("cases", f"{data['cases']:,}")
    for name, text in data.get("parts", {}).items():
        _line(name, text)
    if "expected" in data:
        basis = "from rehearsals with made-up answers of usual length: the median (and a range that"
        _line("expected", f"{basis} holds {data['expected']['share'] * 10:.0f} times in 10)")
    for name in FIGURES[:-1]:
        _line(name.replace("_", " "), _format_range(data, name, _number))
    if data["least"]["cost"] is None or data["most"]["cost"] is None:
        place = f'[prices."{data["model"]}"]'
        _line("cost", f"not known: give a price in the settings under {place}")
    else:
        _line("cost", _format_range(data, "cost", money))
        if "costs" in data and data["most"]["cost"]:
            _line("", data["costs"])
    typer.echo("Nothing was asked. What the journal already holds would cost nothing.")


def _line(name: str, said: str) -> None:
    width = max(2 * WIDTH, shutil.get_terminal_size().columns)
    indent = " " * WIDTH
    wrapped = textwrap.wrap(said, width, initial_indent=indent, subsequent_indent=indent)
    typer.echo("\n".join([f"{name:<{WIDTH}}{wrapped[0].strip()}", *wrapped[1:]]))


def _format_range(data: Mapping[str, Any], name: str, word: Callable[[float], str]) -> str:
    least, most = word(data["least"][name]), word(data["most"][name])
    if least == most:
        return least
    expected = data.get("expected", {}).get(name)
    if expected is None:
        return f"{least} to {most}"
    low, high = word(expected["low"]), word(expected["high"])
    ends = f" ({low} to {high})" if low != high else ""
    return f"{word(expected['median'])}{ends}; at least {least}, at most {most}"


def _number(value: float) -> str:
    """Bounds to the last digit; what is to be expected comes as a float, and is rounded to three
    digits: more would say what nobody knows."""
    if not isinstance(value, int):
        value = int(float(f"{value:.3g}")) if value >= 100 else round(value)
    return f"{value:,}"
