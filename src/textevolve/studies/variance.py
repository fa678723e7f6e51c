"""Where the variance of debates' scores comes from, over the records of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from textevolve.bench.variance import (
    Array,
    VarianceShares,
    Votes,
    agent_votes,
    count_votes,
    positions,
    share_variance,
)
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.report.blocks import Column, Report, Table


@dataclass(frozen=True, slots=True)
class RunVariance:
    """`votes`: of the agents over the whole debate; `blind_votes`: in the first round alone. None
    where the cases have different agents, so that there is nothing to correlate."""

    shares: VarianceShares
    votes: Votes | None
    blind_votes: Votes | None


def measure_variance(records: Iterable[Any], run_id: str) -> RunVariance:
    """Where the variance of a run's scores comes from; cases without a score are left out.

    Raises:
        InputError: the run holds no debates, or none has a score.
    """
    scored: list[DebateResult] = []
    for record in records:
        if not isinstance(record, DebateResult):
            raise InputError(f"run {run_id}: holds no debates, so no variance of agents' scores")
        if record.scored:
            scored.append(record)
    if not scored:
        raise InputError("no case of this run has a score, so there is no variance to share out")
    tensors = [result.tensor.values for result in scored]
    alike = len({result.agents for result in scored}) == 1
    return RunVariance(
        shares=share_variance(tensors, [_positions(result) for result in scored]),
        votes=count_votes(agent_votes(tensors)) if alike else None,
        blind_votes=count_votes(agent_votes(tensors, 0)) if alike else None,
    )


def _positions(result: DebateResult) -> Array:
    """The position of each candidate in each turn, (rounds, agents, candidates), NaN where there
    was no turn. A turn asked in both orders has no position."""
    shape = result.tensor.shape[:-1]
    found: Array = np.full(shape, np.nan)
    if result.profile.order != "swap":
        for turn in result.turns:
            if turn.scores is not None and turn.round < shape[0]:
                found[turn.round, turn.agent] = positions(turn.order)
    return found


def report_variance(found: RunVariance, run_id: str) -> Report:
    """Shares of the variance by factor, and the agents' votes."""
    shares = found.shares
    columns = (
        Column("from"),
        Column("share", "percent"),
        Column("less chance", "percent"),
        Column(""),
    )
    rows = [
        (name, share, shares.corrected[name], shares.reasons.get(name, ""))
        for name, share in shares.raw.items()
    ]
    note = f"{shares.scores:,} scores of {shares.cases:,} cases, each within its own case"
    facts = {
        "In all rounds": _say_votes(found.votes),
        "In the first round": _say_votes(found.blind_votes),
    }
    title = f"Variance of the scores of run {run_id}"
    return Report(title, "", [Table("", columns, rows, note=note)], facts)


def _say_votes(votes: Votes | None) -> str:
    if votes is None:
        return "the cases have different agents, so their votes cannot be compared"
    if math.isnan(votes.effective):
        return f"{votes.agents} agents, whose votes show no correlation that could be told"
    correlation = "" if math.isnan(votes.correlation) else f" (correlation {votes.correlation:.2f})"
    return f"{votes.agents} agents are worth {votes.effective:.1f} independent votes{correlation}"
