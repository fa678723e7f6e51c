"""How often `calibrate` takes a template that gains nothing, or something; without a model.

    python benchmarks/acceptance.py [--repetitions 2000] [--rows 20 40 100 300] [--correlation 0]
                                    [--share 0.5]

Scores of an original and of a template are drawn for all rows, with a true gain of 0, .1, .2 and
.3; right or wrong, or graded in twentieths with noise. They are independent of each other, which is
the worst case, or correlated, as those of two templates on the same rows are (.5 of what lies
beneath). The template is then tested as `calibrate` tests it, on the rows that it holds out, or on
another `--share` of the rows.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from textevolve.loops.calibration.optimizing import cut_looks
from textevolve.loops.calibration.trial_runner import Example, share_held_out
from textevolve.statistics.comparisons import fewest_units, look_levels, sequential_test

Array = NDArray[np.float64]
BASE = 0.4
SPREAD = 0.3


def draw_gaps(
    rows: int, gain: float, graded: bool, correlation: float, draw: np.random.Generator
) -> Array:
    """Return the score with the template less the score with the original, for each row."""
    shared = np.sqrt(correlation) * draw.normal(size=rows)
    noise = np.sqrt(1 - correlation) * draw.normal(size=(2, rows))
    new_draws, old_draws = noise + shared

    if graded:
        ours: Array = np.clip(BASE + gain + SPREAD * new_draws, 0, 1)
        theirs: Array = np.clip(BASE + SPREAD * old_draws, 0, 1)
        return (np.round(20 * ours) - np.round(20 * theirs)) / 20

    normal = NormalDist()
    is_right = new_draws < normal.inv_cdf(BASE + gain)
    was_right = old_draws < normal.inv_cdf(BASE)
    return is_right.astype(float) - was_right


def test_template(held_out: Array) -> tuple[bool, int]:
    """Test a template as `validation.validate` does. Return whether it is accepted, and how many
    rows were asked."""
    if len(held_out) < fewest_units():
        return False, 0

    ends = end_looks(len(held_out))
    blocks = np.split(held_out, ends[:-1])
    levels = look_levels(len(blocks))

    for number, end in enumerate(ends, 1):
        if sequential_test(blocks[:number], levels[:number])[-1].accepted:
            return True, end
        if held_out[:end].sum() <= 0 and end >= len(held_out) / 2:
            return False, end

    return False, len(held_out)


@cache
def end_looks(rows: int) -> list[int]:
    """Return how many rows each look has seen."""
    blocks = cut_looks([Example(str(n), {"n": str(n)}) for n in range(rows)])
    return np.cumsum([len(block) for block in blocks]).tolist()


def measure(
    rows: int, held_out: int, world: tuple[float, bool, float], times: int
) -> tuple[float, float]:
    """Return the share of searches that accept the template, and the mean of the rows asked."""
    accepted = 0
    asked = 0

    for seed in range(times):
        draw = np.random.default_rng([seed, rows, *(round(10 * part) for part in world)])
        is_accepted, rows_asked = test_template(draw_gaps(rows, *world, draw)[:held_out])
        accepted += is_accepted
        asked += rows_asked

    return accepted / times, asked / times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="+", default=[20, 40, 100, 300])
    parser.add_argument("--gains", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3])
    parser.add_argument("--correlation", type=float, default=0.0)
    parser.add_argument("--share", type=float, help="of the rows, to hold out")
    options = parser.parse_args()
    began = time.monotonic()

    print(f"| rows, scores (% accepted, rows asked) | {' | '.join(map(str, options.gains))} |")
    print(f"|---|{'---|' * len(options.gains)}")
    for rows in options.rows:
        held_out = round((options.share or share_held_out(rows)) * rows)
        for graded in (False, True):
            cells = [f"{rows}, {'graded' if graded else 'right or wrong'}"]
            for gain in options.gains:
                world = (gain, graded, options.correlation)
                accepted, asked = measure(rows, held_out, world, options.repetitions)
                cells.append(f"{100 * accepted:.1f} ({asked:.0f})")
            print(f"| {' | '.join(cells)} |", flush=True)

    print(f"\n{options.repetitions} repetitions, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
