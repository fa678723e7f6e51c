"""Figures of measurements, as tables in the terminal or as JSON: agreement, cards, variance."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from textevolve.cli.tables import open_console

if TYPE_CHECKING:
    from textevolve.bench.variance import Votes
    from textevolve.runs.measurement import RunVariance


def print_json(data: Any) -> None:
    """One JSON object; a figure that does not exist is null."""
    from textevolve.bench.summary import to_json

    print(json.dumps(to_json(data), ensure_ascii=False))


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage; an en dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}%}"


def print_variance(found: RunVariance, run_id: str, *, as_json: bool) -> None:
    """Shares of the variance by factor, and the agents' votes."""
    shares = found.shares
    if as_json:
        print_json({"run": run_id, **asdict(found)})
        return
    console = open_console()
    table = Table(title=f"Variance of the scores of run {run_id}", title_justify="left")
    table.add_column("from")
    table.add_column("share", justify="right")
    table.add_column("less chance", justify="right")
    table.add_column("")
    for name, share in shares.raw.items():
        why = shares.reasons.get(name, "")
        table.add_row(name, percent(share), percent(shares.corrected[name]), why)
    console.print(table)
    console.print(f"{shares.scores:,} scores of {shares.cases:,} cases, each within its own case")
    for title, votes in (("In all rounds", found.votes), ("In the first round", found.blind_votes)):
        console.print(f"{title}: {_describe_votes(votes)}")


def _describe_votes(votes: Votes | None) -> str:
    if votes is None:
        return "the cases have different agents, so their votes cannot be compared"
    if math.isnan(votes.effective):
        return f"{votes.agents} agents, whose votes show no correlation that could be told"
    correlation = "" if math.isnan(votes.correlation) else f" (correlation {votes.correlation:.2f})"
    return f"{votes.agents} agents are worth {votes.effective:.1f} independent votes{correlation}"
