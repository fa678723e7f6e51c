"""Where the variance of a debate's scores comes from, and how many votes its agents are worth.

Pure numpy on score tensors of the shape (rounds, agents, candidates, components), NaN where a turn
is missing. What reads them from a run is not here. A share that cannot be told is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import InputError
from textevolve.statistics.intervals import TIE, Array, mean_present, ratio

FACTORS = ("candidate", "agent", "round", "position", "component")
_AXIS = {"round": 0, "agent": 1, "candidate": 2, "component": 3}
_POSITION = FACTORS.index("position")
_SUBSETS = tuple(frozenset(c) for n in range(6) for c in combinations(range(len(FACTORS)), n))
_AT = {subset: number for number, subset in enumerate(_SUBSETS)}
_MEMBERS = np.array([[f in s for f in range(len(FACTORS))] for s in _SUBSETS])


@dataclass(frozen=True, slots=True)
class VarianceShares:
    """Shares of the scores' variance within cases, by where it comes from.

    `raw` has an entry for each of `FACTORS` and for "rest" (noise and everything that two factors
    do only together, such as an agent's liking for one candidate); those not NaN sum to 1.
    `corrected`: the same less what unrelated scores would give by chance; use it where cases are
    small. It may fall slightly below 0, and does not exist where no score is left to judge chance
    by. `total`: the sum of squares that is shared out. `reasons`: why a factor has no share.
    """

    raw: Mapping[str, float]
    corrected: Mapping[str, float]
    total: float
    scores: int
    cases: int
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Votes:
    """How alike `agents` voters vote: the mean correlation over the `pairs` of them that have one,
    and how many independent votes they amount to."""

    agents: int
    correlation: float
    effective: float
    pairs: int


def positions(order: Sequence[int]) -> Array:
    """The position, from 0, at which each candidate was shown; `order` as in a `Turn`."""
    if sorted(order) != list(range(len(order))):
        raise InputError(f"an order names each candidate once, which {tuple(order)} does not")
    return np.argsort(np.asarray(order)).astype(np.float64)


def share_variance(
    tensors: Sequence[Array], shown: Sequence[Array] | None = None
) -> VarianceShares:
    """How much of the variance candidate, agent, round, position and component account for.

    `tensors`: one (rounds, agents, candidates, components) for each case. `shown`: for each case
    the position of each candidate in each turn, (rounds, agents, candidates), see `positions`.

    In each case main effects are fitted by least squares around the case's own mean; a factor's
    share is the sum of squares that it adds, averaged over all orders in which the factors can
    enter: Lindeman, Merenda and Gold (1980), p. 119; Groemping (2007), "Estimators of relative
    importance in linear regression based on variance decomposition". In a complete design it is
    the sum of squares of a classical analysis of variance, whatever the order; where orders are not
    balanced, what position and candidate can both explain is split between them. Sums of squares
    are added up over cases, so differences between cases do not count. `corrected` takes from each
    the mean square of the rest times the parameters fitted (Kelley 1935, epsilon squared), summed
    likewise; it supposes that the rest is independent noise.

    A factor with one level in every case has no share. Nor has the position where it adds nothing
    to the other factors, as when all turns of a case show one order: the candidate then has it all.
    """
    positions_of = shown if shown is not None else [np.full(t.shape[:-1], np.nan) for t in tensors]
    if len(positions_of) != len(tensors):
        raise InputError(f"{len(positions_of)} orders were given for {len(tensors)} tensors")
    designs = [_design(t, p) for t, p in zip(tensors, positions_of, strict=True)]
    designs = [d for d in designs if d.scores.size > 1]
    explained = np.zeros((len(_SUBSETS), 2))
    for design in designs:
        explained += _fit_subsets(design)
    reasons = _unusable(explained, placed=shown is not None)
    used = [n for n, name in enumerate(FACTORS) if name not in reasons]
    squares, parameters = (_orders(used) @ explained).T
    total = float(sum(((d.scores - d.scores.mean()) ** 2).sum() for d in designs))
    count = sum(d.scores.size for d in designs)
    freedom = count - len(designs) - round(float(parameters.sum()))
    noise = (total - float(squares.sum())) / freedom if freedom > 0 else float("nan")
    return VarianceShares(
        raw=_name_shares(squares, used, total),
        corrected=_name_shares(squares - noise * parameters, used, total),
        total=total,
        scores=count,
        cases=len(designs),
        reasons=reasons,
    )


def agent_votes(tensors: Sequence[Array], round: int | None = None) -> Array:
    """Each agent's mean score of each candidate, less its mean over the case, (rows, agents).

    A row is a candidate of a case; a case with one candidate tells nothing of preferences. `round`:
    one round only, such as 0 for what the agents said before they had heard each other; the mean
    over all unless given. Components weigh the same.
    """
    agents = {t.shape[1] for t in tensors}
    if len(agents) > 1:
        raise InputError(f"all cases must have the same agents; some have {sorted(agents)}")
    rows = [np.zeros((0, agents.pop() if agents else 0))]
    for tensor in tensors:
        picked = tensor if round is None else tensor[round : round + 1]
        scores = _mean(picked, (0, 3))
        rows.append((scores - _mean(scores, (1,))[:, None]).T)
    return np.concatenate(rows)


def count_votes(votes: Array) -> Votes:
    """Effective number of independent votes among agents, from votes or errors (rows, agents).

    n / (1 + (n - 1) r) with r the mean pairwise correlation: Kish (1965), "Survey Sampling",
    section 8.2, for panels of judges Kohli (2026), arXiv 2605.29800. `votes` may be scores
    (`agent_votes`), or, where labels are known, errors such as 1 - credit: agents that are right
    together are no worry, so the errors' correlation is the better one. Rows that a pair lacks are
    left out for it; a pair of which one never varies has no correlation. r below 0 gives more than
    n votes; NaN where no r exists or it is too negative for the formula. One agent is one vote.
    """
    table = np.asarray(votes, dtype=np.float64)
    if table.ndim != 2:
        raise InputError(f"votes have the shape (rows, agents), not {table.shape}")
    agents = table.shape[1]
    found = np.array([_correlation(table[:, [a, b]]) for a, b in combinations(range(agents), 2)])
    mean = mean_present(found)
    if agents == 1:
        return Votes(1, mean, 1.0, 0)
    bottom = 1 + (agents - 1) * mean
    effective = agents / bottom if bottom > TIE else float("nan")
    return Votes(agents, mean, effective, int((~np.isnan(found)).sum()))


@dataclass(frozen=True, slots=True)
class _Design:
    """A case's present scores (n,) and their levels: columns (n, p), each of a factor (p,)."""

    scores: Array
    columns: Array
    factor: NDArray[np.intp]


def _design(tensor: Array, shown: Array) -> _Design:
    if tensor.ndim != 4 or shown.shape != tensor.shape[:-1]:
        raise InputError(
            "a tensor has the shape (rounds, agents, candidates, components) and its positions the"
            f" same without the last, not {tensor.shape} and {shown.shape}"
        )
    present = ~np.isnan(tensor)
    level = {name: np.indices(tensor.shape)[axis][present] for name, axis in _AXIS.items()}
    position = np.broadcast_to(np.nan_to_num(shown, nan=-1.0)[..., None], tensor.shape)[present]
    columns: list[Array] = [np.zeros((position.size, 0))]
    for name in FACTORS:
        values = position if name == "position" else level[name]
        columns.append((values[:, None] == np.unique(values)).astype(np.float64))
    factor = np.repeat(np.arange(len(FACTORS)), [c.shape[1] for c in columns[1:]])
    return _Design(tensor[present], np.concatenate(columns, axis=1), factor)


def _fit_subsets(design: _Design) -> Array:
    """What the factors of each of `_SUBSETS` explain: sum of squares and parameters, (32, 2).

    All models at once: the normal equations of each are a part of one table.
    """
    columns = design.columns - design.columns.mean(axis=0)
    scores = design.scores - design.scores.mean()
    wanted = _MEMBERS[:, design.factor]
    tables = (columns.T @ columns) * wanted[:, :, None] * wanted[:, None, :]
    values, vectors = np.linalg.eigh(tables)
    kept = values > TIE * len(scores)
    along = np.einsum("spk,p->sk", vectors, columns.T @ scores)
    squares = np.where(kept, along**2, 0.0) / np.where(kept, values, 1.0)
    found = np.stack([squares.sum(axis=1), kept.sum(axis=1)], axis=1)
    if (
        found[-1, 1] == found[_AT[_SUBSETS[-1] - {_POSITION}], 1]
    ):  # nothing tells the position apart
        return found[[_AT[s - {_POSITION}] for s in _SUBSETS]]
    return found


def _unusable(explained: Array, *, placed: bool) -> dict[str, str]:
    """The factors that get no share, each with the reason."""
    reasons: dict[str, str] = {}
    for number, name in enumerate(FACTORS):
        if explained[_AT[frozenset({number})], 1] < 1:
            reasons[name] = f"no case has more than one {name}"
            if name == "position":
                unchanged = "in no case did the order change, so position and candidate are one"
                reasons[name] = unchanged if placed else "the orders are not known"
    return reasons


def _orders(used: Sequence[int]) -> Array:
    """Weights (factors, 32) that make what subsets explain into what each factor adds on average
    over all orders in which those used can enter."""
    weights = np.zeros((len(FACTORS), len(_SUBSETS)))
    n = len(used)
    for number in used:
        for before in _SUBSETS:
            if number not in before and before <= set(used):
                size = len(before)
                weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
                weights[number, _AT[before | {number}]] += weight
                weights[number, _AT[before]] -= weight
    return weights


def _name_shares(squares: Array, used: Sequence[int], total: float) -> dict[str, float]:
    if not total > TIE:
        return dict.fromkeys((*FACTORS, "rest"), float("nan"))
    shares = {
        name: float(squares[n]) / total if n in used else float("nan")
        for n, name in enumerate(FACTORS)
    }
    return {**shares, "rest": 1 - float(squares[used].sum()) / total}


def _correlation(pair: Array) -> float:
    """Pearson's correlation of two columns over the rows that both have."""
    rows = pair[~np.isnan(pair).any(axis=1)]
    if len(rows) < 2 or (np.ptp(rows, axis=0) <= TIE).any():
        return float("nan")
    rows = rows - rows.mean(axis=0)
    product = float(np.sqrt((rows[:, 0] ** 2).sum() * (rows[:, 1] ** 2).sum()))
    return float(np.clip((rows[:, 0] * rows[:, 1]).sum() / product, -1.0, 1.0))


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    """Mean over what is present, NaN where nothing is."""
    present = ~np.isnan(values)
    count = present.sum(axis=axes)
    total = np.where(present, values, 0.0).sum(axis=axes)
    return ratio(total, count)
