"""What something may take, as it is shown before anything is asked."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import typer

from textevolve.evaluation import Usage
from textevolve.report.wording import count, duration, money
from textevolve.studies.expected import SHARE, Expected, Spread, UsageRange
from textevolve.studies.reporting import USED, estimate_data
from textevolve.studies.stored import StoredSpec

WIDTH = 19
FIELDS = ("calls", "prompt_tokens", "completion_tokens", "cost")


def print_estimate(found: UsageRange, stored: StoredSpec, *, as_json: bool = False) -> None:
    """What is to be expected of calls, tokens, cost and time, and the bounds of it."""
    if as_json:
        typer.echo(json.dumps(estimate_data(found, stored)))
        return
    if stored.model:
        _line("model", f"{stored.model} ({stored.why})")
    _line("cases", f"{found.cases:,}")
    for name, said in found.parts.items():
        _line(name, said)
    if found.expected is not None:
        _line("expected", _say_basis(found.expected))
    for name in USED:
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
    if found.expected is not None and "seconds" in found.expected.figures:
        _line("time", _say(found.expected, "seconds", None, duration))
    typer.echo("Nothing was asked. What the journal already holds would cost nothing.")


def read_estimate(kind: str, data: Mapping[str, Any]) -> tuple[UsageRange, StoredSpec]:
    """What `estimate_data` was made of, but for how the model was found."""
    least, most = (Usage(**{name: data[end][name] for name in FIELDS}) for end in ("least", "most"))
    told = data.get("expected")
    expected = None
    if told is not None:
        figures = {n: Spread(**told[n]) for n in told if n not in ("from", "runs", "share")}
        expected = Expected(figures, told["runs"])
    prices = (data["costs"],) if "costs" in data else ()
    stored = StoredSpec(kind=kind, spec={}, model=data["model"], why="there", prices=prices)
    return UsageRange(data["cases"], least, most, data.get("parts", {}), expected), stored


def _line(name: str, said: str) -> None:
    width = max(2 * WIDTH, shutil.get_terminal_size().columns)
    indent = " " * WIDTH
    wrapped = textwrap.wrap(said, width, initial_indent=indent, subsequent_indent=indent)
    typer.echo("\n".join([f"{name:<{WIDTH}}{wrapped[0].strip()}", *wrapped[1:]]))


def _say_basis(expected: Expected) -> str:
    if expected.runs:
        basis = f"from {count(expected.runs, 'earlier run')} of this kind"
    else:
        basis = "from rehearsals with made-up answers of usual length"
    return f"{basis}: the median (and a range that holds {SHARE * 10:.0f} times in 10)"


def _say(
    expected: Expected | None,
    name: str,
    bounds: tuple[float, float] | None,
    word: Callable[[float], str],
) -> str:
    least, most = (word(bounds[0]), word(bounds[1])) if bounds else ("", "")
    if bounds and least == most:
        return least
    spread = expected.figures.get(name) if expected is not None else None
    if spread is None:
        return f"{least} to {most}"
    low, high = word(spread.low), word(spread.high)
    said = word(spread.median) + (f" ({low} to {high})" if low != high else "")
    return f"{said}; at least {least}, at most {most}" if bounds else said


def _number(value: float) -> str:
    """Bounds to the last digit; what is to be expected comes as a float, and is rounded."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{_round(value):,}"


def _round(value: float) -> int:
    """To three digits: more would say what nobody knows."""
    return int(float(f"{value:.3g}")) if value >= 100 else round(value)
