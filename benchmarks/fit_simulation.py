"""Fitted judges on simulated annotators, of whom everything is known: do their figures hold?

    python benchmarks/fit_simulation.py
    python benchmarks/fit_simulation.py --simulations 20 --annotator fair

No model is asked. Each text has a quality and a length that are drawn; an annotator prefers the one
with more quality plus a bias for length plus noise, and so says the same pair otherwise another
time. Three signals see the quality through noise of their own, one of them together with the
length; a fourth is the length. A judge is fitted to the labels, and then held against 20,000 new
pairs of the same annotator: whether its threshold is as precise there as promised, whether the
intervals of its agreement, of its lead over the best single signal, and of what more labels would
give, hold what is so there.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from textevolve.bench.fitting import Fit, LabelledSignals, fit_signals
from textevolve.bench.items import Item
from textevolve.statistics.calibration import logistic
from textevolve.statistics.intervals import Array, Interval

NAMES = ("probe", "pairwise", "instruction-likelihood", "look:length")
NEW = 20_000


@dataclass(frozen=True)
class Annotator:
    """`bias`: what a standard deviation of length is worth beside one of quality; `noise`: the
    scale of the logistic noise on the difference."""

    bias: float = 0.0
    noise: float = 0.3


ANNOTATORS = {
    "fair": Annotator(),
    "likes length": Annotator(bias=0.7),
    "noisy": Annotator(noise=0.8),
    "noisy, dislikes length": Annotator(bias=-0.7, noise=0.8),
}


def draw_texts(annotator: Annotator, pairs: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Signals (pairs, 2, 4) and labels (pairs, 2). Two pairs each are on one question, which is
    harder or easier for the signals."""
    quality, length = rng.normal(size=(2, pairs, 2))
    hard = np.repeat(np.exp(rng.normal(scale=0.4, size=(pairs + 1) // 2)), 2)[:pairs, None]
    noise = rng.normal(size=(3, pairs, 2)) * hard
    signals = [
        quality + 0.6 * noise[0],
        quality + noise[1] + 0.4 * length,
        quality + 1.5 * noise[2],
    ]
    values = np.stack([*signals, length], axis=-1)
    felt = quality + annotator.bias * length
    first_wins = felt[:, 0] - felt[:, 1] + annotator.noise * rng.logistic(size=pairs) > 0
    return values, np.stack([first_wins, ~first_wins], axis=1).astype(float)


def as_data(values: Array, labels: Array) -> LabelledSignals:
    items = tuple(
        Item(f"{n}", f"question {n // 2}", ("a", "b"), (float(a), float(b)), f"{n // 2}")
        for n, (a, b) in enumerate(labels)
    )
    return LabelledSignals(NAMES, items, values.reshape(-1, len(NAMES)), {}, 0)


@dataclass(frozen=True)
class Outcome:
    """One simulation. `precision`: of the threshold on new pairs; NaN where none was promised. The
    rest: whether the intervals hold what is so on new pairs, and what the fit said of itself."""

    precision: float
    agreement: bool
    lead: bool
    agreed: float
    beats_best: bool


def simulate(annotator: Annotator, labels: int, precision: float, seed: int) -> Outcome:
    rng = np.random.default_rng(seed)
    data = as_data(*draw_texts(annotator, labels, rng))
    fit = fit_signals(data, precision=precision, seed=seed)
    values, people = draw_texts(annotator, NEW, rng)
    utilities = utilities_of(fit, values)
    agreed = agreement_of(utilities, people)
    best = values[..., NAMES.index(fit.best)]
    alone = agreement_of(best, people)
    if fit.best.startswith("look:"):
        alone = max(alone, agreement_of(-best, people))
    return Outcome(
        precision=precision_of(fit, utilities, people),
        agreement=holds(fit.agreement.interval, agreed),
        lead=holds(fit.difference.interval, agreed - alone),
        agreed=agreed,
        beats_best=fit.difference.interval.low > 0,
    )


def utilities_of(fit: Fit, values: Array) -> Array:
    means, scales, weights = (
        np.array([getattr(signal, name) for signal in fit.signals])
        for name in ("mean", "scale", "weight")
    )
    return ((values - means) / scales) @ weights


def agreement_of(scores: Array, people: Array) -> float:
    """The mean credit on pairs, as on items: a tie of people's is a half."""
    ours, theirs = np.sign(scores[:, 0] - scores[:, 1]), np.sign(people[:, 0] - people[:, 1])
    return float(np.mean(1 - np.abs(ours - theirs) / 2))


def precision_of(fit: Fit, utilities: Array, people: Array) -> float:
    """How often the judge is right from its threshold on."""
    threshold = fit.selection.threshold
    if threshold is None:
        return math.nan
    if fit.good is None:
        gap = utilities[:, 0] - utilities[:, 1]
        right, scores = (gap > 0) == (people[:, 0] > people[:, 1]), logistic(np.abs(gap))
    else:
        scores = logistic(utilities.ravel() + fit.intercept)
        right = people.ravel() >= fit.good
    decided = scores >= threshold
    return float(right[decided].mean()) if decided.any() else 1.0


def holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def tell(outcomes: Sequence[Outcome], precision: float) -> Iterator[str]:
    promised = [outcome.precision for outcome in outcomes if not math.isnan(outcome.precision)]
    unbroken = len(outcomes) - sum(reached < precision for reached in promised)
    yield f"threshold promised {len(promised)}, promise not broken {unbroken} of {len(outcomes)}"
    if promised:
        yield f"precision {np.mean(promised):.3f} (least {min(promised):.3f})"
    for name in ("agreement", "lead"):
        yield f"interval of the {name} holds {np.mean([getattr(o, name) for o in outcomes]):.0%}"
    yield f"agreement {np.mean([o.agreed for o in outcomes]):.3f}"
    yield f"said to beat the best signal {np.mean([o.beats_best for o in outcomes]):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Do the figures of fitted judges hold?")
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--precision", type=float, default=0.85)
    parser.add_argument("--annotator", choices=list(ANNOTATORS), action="append")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{options.labels} labelled pairs, {options.simulations} simulations an annotator",
        flush=True,
    )
    with ProcessPoolExecutor(options.processes) as pool:
        for name in options.annotator or ANNOTATORS:
            annotator, began = ANNOTATORS[name], time.monotonic()
            simulate_seed = partial(simulate, annotator, options.labels, options.precision)
            outcomes = list(pool.map(simulate_seed, range(100, 100 + options.simulations)))
            print(f"{name}: {'; '.join(tell(outcomes, options.precision))}", flush=True)
            print(f"    {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
