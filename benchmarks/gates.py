"""How often `--no-worse-than` passes a run, by simulation: with a true loss as large as the margin,
which it may in 2.5 % of the cases, and with none.

    python benchmarks/gates.py
    python benchmarks/gates.py --margin 0.02 --trials 4000
    python benchmarks/gates.py --intervals

No model is asked. Differences of scores by row come in four shapes: `pass/fail` (a tenth of the
rows change, a score being 0 or 1), `continuous` (all change a little), `rare losses` (nearly all
gain 0.02, a few lose 0.8) and `ties` (nine tenths are the same, the others change by up to 1).
`--intervals` tells how often 95 % intervals hold the true mean where there are few rows: of the
difference, and of shares of which 90 % are right.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import UNIT, Array, betting_interval, mean_interval

ROWS = (3, 5, 10, 20, 30, 50, 100, 200)
FEW_ROWS = (5, 8, 12, 20, 29)
SHAPES = ("pass/fail", "continuous", "rare losses", "ties")
GAIN, LOSS = 0.02, 0.8


def draw(shape: str, rows: int, mean: float, generator: np.random.Generator) -> Array:
    """Differences of scores whose true mean is this."""
    place = generator.random(rows)
    if shape == "pass/fail":
        differ = max(0.1, abs(mean))
        better, worse = (differ + mean) / 2, (differ - mean) / 2
        return np.where(place < worse, -1.0, np.where(place > 1 - better, 1.0, 0.0))
    if shape == "continuous":
        return mean + 0.4 * (generator.beta(2, 2, rows) - 0.5)
    if shape == "rare losses":
        return np.where(place < (GAIN - mean) / (GAIN + LOSS), -LOSS, GAIN)
    reach = min(1.0, 1 - abs(mean) / 0.1)
    return np.where(place < 0.1, mean / 0.1 + reach * generator.uniform(-1, 1, rows), 0.0)


def count_passes(margin: float, trials: int, seed: int) -> None:
    """Print the share of simulated runs that pass the gate."""
    print(f"margin {margin}, {trials:,} trials each, seed {seed}")
    print("| rows | shape | passes with a loss of the margin | without a loss |")
    print("|---|---|---|---|")

    for rows in ROWS:
        for place, shape in enumerate(SHAPES):
            generator = np.random.default_rng([seed, rows, place])
            shares: list[float] = []
            for mean in (-margin, 0.0):
                samples = (draw(shape, rows, mean, generator) for _ in range(trials))
                passes = sum(betting_interval(gaps, (-1, 1)).low > -margin for gaps in samples)
                shares.append(passes / trials)
            print(f"| {rows} | {shape} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)


def count_covered(trials: int, seed: int) -> None:
    """Print the share of intervals that cover the true mean, of those that there are."""
    print(f"95 % intervals that hold the true mean, {trials:,} trials each, seed {seed}")
    print("| rows | figures | covered | without an interval |")
    print("|---|---|---|---|")

    for rows in FEW_ROWS:
        for place, name in enumerate((*SHAPES, "share of 90 %")):
            generator = np.random.default_rng([seed, rows, place])
            covered = 0
            intervals = 0
            for _ in range(trials):
                if name in SHAPES:
                    true = 0.0
                    gaps = draw(name, rows, true, generator)
                    interval = difference_interval(gaps, np.zeros(rows))
                else:
                    true = 0.9
                    is_right = (generator.random(rows) < true).astype(float)
                    interval = mean_interval(is_right, bounds=UNIT)
                intervals += not interval.reason
                covered += interval.low <= true <= interval.high
            share = f"{covered / intervals:.1%}" if intervals else "-"
            print(f"| {rows} | {name} | {share} | {1 - intervals / trials:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--intervals", action="store_true")
    options = parser.parse_args()
    begun = time.monotonic()
    if options.intervals:
        count_covered(options.trials, options.seed)
    else:
        count_passes(options.margin, options.trials, options.seed)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
