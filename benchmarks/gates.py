"""How often `--no-worse-than` passes a run, by simulation: with a true loss as large as the margin,
which it may in 2.5 % of the cases, and with none. Beside it the percentile bootstrap.

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
from collections.abc import Callable

import numpy as np

from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import UNIT, Array, Interval, betting_interval, mean_interval

ROWS = (3, 5, 10, 20, 30, 50, 100, 200)
FEW_ROWS = (5, 8, 12, 20, 29)
SHAPES = ("pass/fail", "continuous", "rare losses", "ties")
DRAWS = 500
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


def bootstrap(values: Array, generator: np.random.Generator) -> Interval:
    """Percentiles; of values that are all the same a width of 0."""
    chosen = generator.integers(0, values.size, (DRAWS, values.size))
    low, high = np.quantile(values[chosen].mean(axis=1), [0.025, 0.975])
    return Interval(float(low), float(high))


def count_passes(margin: float, trials: int, seed: int) -> None:
    print(f"margin {margin}, {trials:,} trials each, seed {seed}")
    print("| rows | shape | loss = margin: bootstrap | now | no loss: bootstrap | now |")
    print("|---|---|---|---|---|---|")
    for rows in ROWS:
        for place, shape in enumerate(SHAPES):
            generator = np.random.default_rng([seed, rows, place])
            cells = [str(rows), shape]
            for mean in (-margin, 0.0):
                passed = np.zeros(2)
                for _ in range(trials):
                    values = draw(shape, rows, mean, generator)
                    old, new = bootstrap(values, generator), betting_interval(values, (-1, 1))
                    passed += (old.low > -margin, new.low > -margin)
                cells += [f"{share:.1%}" for share in passed / trials]
            print(f"| {' | '.join(cells)} |", flush=True)


def count_held(trials: int, seed: int) -> None:
    def share(rows: int, generator: np.random.Generator) -> Array:
        return (generator.random(rows) < 0.9).astype(float)

    figures: dict[str, tuple[float, Callable[[int, np.random.Generator], Array]]] = {
        shape: (0.0, lambda rows, rng, shape=shape: draw(shape, rows, 0.0, rng)) for shape in SHAPES
    }
    figures["share of 90 %"] = (0.9, share)
    print(f"95 % intervals that hold the true mean, {trials:,} trials each, seed {seed}")
    print("| rows | figures | bootstrap | now | without an interval now |")
    print("|---|---|---|---|---|")
    for rows in FEW_ROWS:
        for place, (name, (true, make)) in enumerate(figures.items()):
            generator = np.random.default_rng([seed, rows, place])
            covered, intervals = np.zeros(2), 0
            for _ in range(trials):
                values = make(rows, generator)
                old = bootstrap(values, generator)
                if name in SHAPES:
                    new = difference_interval(values, np.zeros(rows))
                else:
                    new = mean_interval(values, bounds=UNIT)
                intervals += not new.reason
                covered += (old.low <= true <= old.high, new.low <= true <= new.high)
            now = f"{covered[1] / intervals:.1%}" if intervals else "-"
            covered_before = f"{covered[0] / trials:.1%}"
            print(f"| {rows} | {name} | {covered_before} | {now} | {1 - intervals / trials:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--intervals", action="store_true")
    options = parser.parse_args()
    begun = time.monotonic()
    if options.intervals:
        count_held(options.trials, options.seed)
    else:
        count_passes(options.margin, options.trials, options.seed)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
