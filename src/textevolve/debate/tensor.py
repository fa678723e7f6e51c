"""The tensor S of scores, and everything computed from it: pure numpy, no models, no I/O.

S has the shape (..., r, i, j, k): rounds that ran, agents, candidates, components; each element is
in [0, 10], NaN where a turn failed. Any number of leading axes is a batch. With w the component
weights:

    s_norm[j] = 1 / (r i k) * sum over r, i, k of w_k S[r, i, j, k]        in [0, 10]
    s_phi     = softmax(s_norm / T)                                        sums to 1
    CV        = standard deviation / mean of the agents' scores in one round

A missing turn is left out of both the sum and the count: it never counts as zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from textevolve.debate.modes import Aggregation, ConvergenceMode
from textevolve.errors import InputError
from textevolve.loading import NDArray, np
from textevolve.statistics.intervals import Array

TOP_SCORE = 10.0
"""The highest score."""
TRIM = 0.2
"""The share of votes that `trimmed` cuts from each end."""
TIE = 1e-9
"""The largest difference of scores that counts as a tie."""
DRAWS = 2000
"""The number of draws of the bootstrap."""


def turn_scores(tensor: Array, weights: Array) -> Array:
    """Compute each turn's weighted score of each candidate, (..., r, i, j): the mean over k of w_k
    S."""
    return _mean(tensor * weights, axes=(-1,))


def deciding_turns(tensor: Array, aggregation: Aggregation) -> Array:
    """Return the part of the tensor that the result is computed from, (..., r, i, j, k): its last
    round, that round's last agent, or all of it.

    A later turn may take back an earlier one. Methods in which agents revise their judgement, or in
    which a moderator decides, therefore do not average over what was revised.
    """
    if aggregation == "last-round":
        return tensor[..., -1:, :, :, :]
    if aggregation == "moderator":
        return tensor[..., -1:, -1:, :, :]

    return tensor


def normalise(tensor: Array, weights: Array, aggregation: Aggregation = "mean") -> Array:
    """Compute the candidates' scores s_norm, shape (..., j), in [0, 10]; NaN for a candidate that
    no turn scored.

    `mean` is the published formula. `median` and `trimmed` (a fifth cut from each end) combine the
    weighted scores of the turns, and resist a single outlying agent. `last-round` and `moderator`
    are the mean over the turns that decide (`deciding_turns`).
    """
    scores = turn_scores(deciding_turns(tensor, aggregation), weights)
    votes = scores.reshape(*scores.shape[:-3], -1, scores.shape[-1])
    if aggregation not in ("median", "trimmed"):
        return _mean_present(votes, axes=(-2,))
    count = (~np.isnan(votes)).sum(axis=-2, keepdims=True)
    cut = np.floor(count * TRIM) if aggregation == "trimmed" else np.floor((count - 1) / 2)
    rank: Array = np.arange(float(votes.shape[-2]))[:, None]
    middle = (rank >= cut) & (rank < count - np.maximum(cut, 0))
    ordered = np.sort(votes, axis=-2)  # NaN goes last

    return _mean_present(np.where(middle, ordered, np.nan), axes=(-2,))


def unit_scores(s_norm: Array, weights: Array) -> Array:
    """Scale s_norm to [0, 1]: the weighted mean over components / 10, whatever the weights."""
    return np.asarray(s_norm * weights.shape[-1] / (weights.sum() * TOP_SCORE))


def component_scores(tensor: Array) -> Array:
    """Compute the mean score of each candidate on each component, (..., j, k), over the present
    turns."""
    return _mean_present(tensor, axes=(-4, -3))


def spread(tensor: Array, weights: Array) -> Array:
    """Compute the standard deviation over the agents of each candidate's weighted score, (...,
    j)."""
    by_agent = _mean_present(turn_scores(tensor, weights), axes=(-3,))
    return _deviation(by_agent, _mean_present(by_agent, axes=(-2,)))


def _answered(tensor: Array) -> NDArray[np.bool_]:
    """Return whether each turn has scores, shape (..., r, i)."""
    return np.asarray(~np.isnan(tensor).any(axis=(-2, -1)))


def coverage(tensor: Array) -> Array:
    """Compute the share in [0, 1] of the tensor's turns that have scores, shape (...)."""
    return np.asarray(_answered(tensor).mean(axis=(-2, -1)))


def voters(tensor: Array) -> NDArray[np.intp]:
    """Count the agents that gave scores in each round, shape (..., r)."""
    return np.asarray(_answered(tensor).sum(axis=-1))


def is_quorum(voters: int, agents: int) -> bool:
    """Return whether this number of agents with scores represents all agents: all of them, or at
    least two and more than half."""
    return 0 < voters == agents or (voters >= 2 and 2 * voters > agents)


def disagreement(scores: Array, weights: Array, mode: ConvergenceMode = "agents") -> Array:
    """Compute the coefficient of variation (CV) of one round's scores (..., i, j, k), shape (...):
    0 if all agree; never NaN.

    `agents`: the CV over agents of each candidate's weighted score, and of these the largest.
    `pooled`: one CV over all scores of the round, as in a demo by the method's author; with it,
    candidates of different quality never converge. A round without any answer gives infinity.
    """
    if mode == "pooled":
        pool = scores.reshape(*scores.shape[:-3], -1, 1)
    else:
        pool = turn_scores(scores, weights)

    mean = _mean_present(pool, axes=(-2,))
    deviation = _deviation(pool, mean)
    endless: Array = np.full(mean.shape, np.inf)
    ratio = np.divide(deviation, mean, out=endless, where=mean > 0)

    return np.asarray(np.where(deviation <= TIE * TOP_SCORE, 0.0, ratio).max(axis=-1))


def softmax(s_norm: Array, temperature: float = 1.0) -> Array:
    """Compute the probabilities s_phi, shape (..., j); they sum to 1 over the candidates with a
    score, NaN for the others."""
    present = ~np.isnan(s_norm)
    highest = np.where(present, s_norm, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore"):  # so near 0 that all but the highest have no share at all
        powers = np.exp((s_norm - highest) / temperature)

    return np.asarray(powers / np.where(present, powers, 0.0).sum(axis=-1, keepdims=True))


def top_candidates(s_norm: Array) -> tuple[int, ...]:
    """Return the indices of the candidates with the highest score: several if they tie, none if no
    candidate has a score."""
    scores: list[float] = s_norm.tolist()
    highest = max((score for score in scores if not math.isnan(score)), default=math.nan)
    return tuple(j for j, score in enumerate(scores) if score >= highest - TIE)


def certainty(
    scores: Array, weights: Array, leaders: tuple[int, ...], seed: int, draws: int = DRAWS
) -> float:
    """Estimate by bootstrap the probability in [0, 1] that the leading candidate of a round is the
    best. NaN if fewer than two cells could be drawn.

    `scores`: that round's (i, j, k), NaN for a missing turn; a cell is the score of one agent for
    one component. `leaders`: the candidates with the highest score, more than one if they tie.

    Each draw gives every agent and every component a random weight, and each cell the product of
    the two: the Bayesian pigeonhole bootstrap (Owen & Eckles 2012, Bootstrapping data arrays of
    arbitrary order) with the flat Dirichlet weights of Rubin (1981, The Bayesian bootstrap).
    Resampling only three agents would give only ten different samples: they are certain whenever
    all agents agree, however small the difference is, and underestimate the variance by a third.
    With the components resampled as well, the probability changes smoothly, and distinguishes a
    narrow win from a clear one. It is 1 if one candidate leads in every cell. The components of a
    single agent are resampled alone, and so are the agents if there is a single component. A draw
    with several top candidates counts for each of them in part.
    """
    counted = weights > 0
    cells = (scores * weights)[_answered(scores)][..., counted]
    agents, candidates, components = cells.shape
    if agents * components < 2:
        return float("nan")
    # Exponential numbers from raw bits, the only stream that numpy keeps the same in all versions.
    bits = np.random.PCG64(seed).random_raw((draws, agents + components))
    drawn = -np.log(((bits >> np.uint64(11)) + 0.5) * 2.0**-53)
    joint = (drawn[:, :agents, None] * drawn[:, None, agents:]).reshape(draws, -1)
    joint /= joint.sum(axis=-1, keepdims=True)  # one scale a draw: flat Dirichlet, for both factors
    sums = joint @ cells.swapaxes(1, 2).reshape(-1, candidates)
    top = sums >= sums.max(axis=-1, keepdims=True) - TIE
    shares = top / top.sum(axis=-1, keepdims=True)

    return float(shares[:, list(leaders)].mean())


def _deviation(values: Array, mean: Array) -> Array:
    """Return the standard deviation of the present values from their mean over axis -2."""
    return np.asarray(np.sqrt(_mean_present((values - mean[..., None, :]) ** 2, axes=(-2,))))


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean over some axes, without the checks of numpy's own function, which take longer
    than so small a sum."""
    total = np.asarray(np.add.reduce(values, axis=axes))
    return total / (values.size / max(1, total.size))


def _mean_present(values: Array, axes: tuple[int, ...]) -> Array:
    if values.size and not math.isnan(np.add.reduce(values, axis=None)):  # nearly always
        return _mean(values, axes)
    present = ~np.isnan(values)
    total = np.asarray(np.where(present, values, 0.0).sum(axis=axes))
    count = present.sum(axis=axes)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


@dataclass(frozen=True, slots=True)
class LabelledTensor:
    """The score tensor with named axes: `values[round, agent, candidate, component]`, NaN if
    missing."""

    values: Array
    agents: tuple[str, ...]
    candidates: tuple[str, ...]
    components: tuple[str, ...]

    axes = ("round", "agent", "candidate", "component")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype, copy=True if copy is None else copy)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def at(
        self,
        *,
        round: int | None = None,
        agent: str | int | None = None,
        candidate: str | int | None = None,
        component: str | int | None = None,
    ) -> Any:
        """Return a slice by names or numbers (rounds count from 0); axes without an argument stay
        whole.

        Raises:
            InputError: no such name or number.
        """
        picks: list[int | slice] = []

        for axis, pick, names in (
            ("round", round, tuple(range(self.values.shape[0]))),
            ("agent", agent, self.agents),
            ("candidate", candidate, self.candidates),
            ("component", component, self.components),
        ):
            if pick is None:
                picks.append(slice(None))
            elif isinstance(pick, str) and pick in names:
                picks.append(names.index(pick))  # pyright: ignore[reportArgumentType]
            elif not isinstance(pick, str) and -len(names) <= pick < len(names):
                picks.append(pick)
            else:
                labels = ", ".join(str(n)[:40] for n in names)
                raise InputError(f"the tensor has no {axis} {pick!r}; there are: {labels}")

        return self.values[tuple(picks)]
