"""What something may take, as it is shown before anything is asked."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import typer

from textevolve.evaluation import Usage
from textevolve.report.wording import money
from textevolve.studies.rehearsal import FIGURES, SHARE, Spread, UsageRange, estimate_data
from textevolve.studies.stored import StoredSpec

WIDTH = 19
FIELDS = ("calls", "prompt_tokens", "completion_tokens", "cost")


def print_estimate(found: UsageRange, stored: StoredSpec, *, as_json: bool = False) -> None:
    """What is to be expected of calls, tokens and cost, and the bounds of it."""
    if as_json:
        typer.echo(json.dumps(estimate_data(found, stored)))
        return
    if stored.model:
        _line("model", f"{stored.model} ({stored.why})")
    _line("cases", f"{found.cases:,}")
    for name, said in found.parts.items():
        _line(name, said)
    if found.expected:
        basis = "from rehearsals with made-up answers of usual length: the median (and a range that"
        _line("expected", f"{basis} holds {SHARE * 10:.0f} times in 10)")
    for name in FIGURES[:-1]:
        bounds = getattr(found.least, name), getattr(found.most, name)
        _line(name.replace("_", " "), _say(found.expected, name, bounds, _number))
    if found.least.cost is None or found.most.cost is None:
        place = f'[prices."{stored.model}"]'
        _line("cost", f"not known: give a price in the settings under {place}")
    else:
        bounds = found.least.cost, found.most.cost
        _line("cost", _say(found.expected, "cost", bounds, money))
        if stored.prices and found.most.cost:
            _line("", "; ".join(stored.prices))
    typer.echo("Nothing was asked. What the journal already holds would cost nothing.")


def read_estimate(kind: str, data: Mapping[str, Any]) -> tuple[UsageRange, StoredSpec]:
    """What `estimate_data` was made of, but for how the model was found."""
    least, most = (Usage(**{name: data[end][name] for name in FIELDS}) for end in ("least", "most"))
    told = data.get("expected", {})
    expected = {name: Spread(**told[name]) for name in told if name != "share"}
    prices = (data["costs"],) if "costs" in data else ()
    stored = StoredSpec(kind=kind, spec={}, model=data["model"], why="there", prices=prices)
    return UsageRange(data["cases"], least, most, data.get("parts", {}), expected), stored


def _line(name: str, said: str) -> None:
    width = max(2 * WIDTH, shutil.get_terminal_size().columns)
    indent = " " * WIDTH
    wrapped = textwrap.wrap(said, width, initial_indent=indent, subsequent_indent=indent)
    typer.echo("\n".join([f"{name:<{WIDTH}}{wrapped[0].strip()}", *wrapped[1:]]))


def _say(
    expected: Mapping[str, Spread],
    name: str,
    bounds: tuple[float, float],
    word: Callable[[float], str],
) -> str:
    least, most = map(word, bounds)
    if least == most:
        return least
    if (spread := expected.get(name)) is None:
        return f"{least} to {most}"
    low, high = word(spread.low), word(spread.high)
    said = word(spread.median) + (f" ({low} to {high})" if low != high else "")
    return f"{said}; at least {least}, at most {most}"


def _number(value: float) -> str:
    """Bounds to the last digit; what is to be expected comes as a float, and is rounded."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{_round(value):,}"


def _round(value: float) -> int:
    """To three digits: more would say what nobody knows."""
    return int(float(f"{value:.3g}")) if value >= 100 else round(value)
