"""How often `calibrate` takes a template that gains nothing, or something; without a model.

    python benchmarks/acceptance.py [--repetitions 2000] [--rows 20 40 100 300] [--out FILE.json]

Scores of an original and of a template are drawn for the rows held out, with a true gain of 0, .1,
.2 and .3; right or wrong, or graded in twentieths with noise; independent of each other (the worst
case), or correlated as those of two templates on the same rows are (a correlation of .5 of what
lies beneath). Acceptance as it was (30 % held out, a two-sided test and a bootstrap interval, at
least 10 rows) stands beside acceptance as it is, and beside two folds: each half is weighed with
the template of the other, with half of the level each, which is what dependent tests take, and with
pooled differences, of which `--adversary` shows what they let through.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from textevolve.loops.calibration.optimizing import cut_looks
from textevolve.loops.calibration.trial_runner import Example, share_held_out
from textevolve.statistics.comparisons import ONE_SIDED_ALPHA as ALPHA
from textevolve.statistics.comparisons import (
    fewest_units,
    look_levels,
    sequential_test,
    sign_flip_test,
)
from textevolve.statistics.intervals import wilson_interval

Array = NDArray[np.float64]
Rule = Callable[[Array, np.random.Generator], tuple[bool, int]]
"""From the differences on all rows, the search's own included, to whether the template is taken,
and how many rows were asked."""
BASE = 0.4
SPREAD = 0.3


def draw_gaps(
    rows: int, gain: float, graded: bool, correlation: float, draw: np.random.Generator
) -> Array:
    """Score with the template less score with the original, for each row."""
    shared = np.sqrt(correlation) * draw.normal(size=rows)
    noise = np.sqrt(1 - correlation) * draw.normal(size=(2, rows))
    new_draws, old_draws = noise + shared
    if graded:
        spreads = SPREAD * new_draws, SPREAD * old_draws
        ours: Array = np.clip(BASE + gain + spreads[0], 0, 1)
        theirs: Array = np.clip(BASE + spreads[1], 0, 1)
        return (np.round(20 * ours) - np.round(20 * theirs)) / 20
    below = NormalDist().inv_cdf(BASE + gain), NormalDist().inv_cdf(BASE)
    return (new_draws < below[0]).astype(float) - (old_draws < below[1])


def as_it_was(gaps: Array, draw: np.random.Generator) -> tuple[bool, int]:
    held_out = gaps[: round(0.3 * len(gaps))]
    if len(held_out) < 10 or held_out.mean() <= 0:
        return False, len(held_out)
    if sign_flip_test(held_out, np.zeros(len(held_out)), draws=2000).p > 0.05:
        return False, len(held_out)
    means = draw.choice(held_out, (2000, len(held_out))).mean(axis=1)
    return bool(np.quantile(means, 0.025) > 0 or np.ptp(held_out) == 0), len(held_out)


def as_it_is(gaps: Array, _draw: np.random.Generator) -> tuple[bool, int]:
    return look(gaps[: round(share_held_out(len(gaps)) * len(gaps))])


def half_held_out(gaps: Array, _draw: np.random.Generator) -> tuple[bool, int]:
    return look(gaps[: len(gaps) // 2])


def one_look(gaps: Array, _draw: np.random.Generator) -> tuple[bool, int]:
    held_out = gaps[: round(share_held_out(len(gaps)) * len(gaps))]
    return sequential_test([held_out], [ALPHA])[-1].accepted, len(held_out)


def two_folds(gaps: Array, _draw: np.random.Generator) -> tuple[bool, int]:
    halves = np.array_split(gaps, 2)
    decisions = [sequential_test([half], [ALPHA / 2])[-1].accepted for half in halves]
    return any(decisions), len(gaps)


def pooled_folds(gaps: Array, _draw: np.random.Generator) -> tuple[bool, int]:
    return sequential_test([gaps], [ALPHA])[-1].accepted, len(gaps)


def look(held_out: Array) -> tuple[bool, int]:
    """As `validation.validate` does."""
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
    """How many rows each look has seen."""
    blocks = cut_looks([Example(str(n), {"n": str(n)}) for n in range(rows)])
    return np.cumsum([len(block) for block in blocks]).tolist()


RULES: dict[str, Rule] = {
    "as it was": as_it_was,
    "as it is": as_it_is,
    "one look": one_look,
    "half held out": half_held_out,
    "two folds, half the level each": two_folds,
    "two folds, pooled": pooled_folds,
}


def measure(
    rule: Rule, rows: int, world: tuple[float, bool, float], times: int
) -> dict[str, float]:
    accepted, used_rows = 0, 0
    for seed in range(times):
        draw = np.random.default_rng([seed, rows, *(round(10 * part) for part in world)])
        is_accepted, used = rule(draw_gaps(rows, *world, draw), draw)
        accepted, used_rows = accepted + is_accepted, used_rows + used
    ends = wilson_interval(accepted, times)
    return {
        "accepted": accepted / times,
        "low": ends.low,
        "high": ends.high,
        "rows": used_rows / times,
    }


def draw_adversary(rows: int, draw: np.random.Generator) -> tuple[Array, Array]:
    """The gaps of both folds under a search that follows chance: no template gains anything, but
    what is found in a half of the rows goes the way in which that half lies by chance."""
    sides = draw.normal(size=(2, rows // 2))
    way = np.sign(sides.mean(axis=1))
    return sides[1] * way[0] / 4, sides[0] * way[1] / 4


def measure_adversary(rows: int, times: int) -> dict[str, float]:
    accepted = {"two folds, pooled": 0, "two folds, half the level each": 0}
    for seed in range(times):
        halves = draw_adversary(rows, np.random.default_rng([seed, rows]))
        pooled = sequential_test([np.concatenate(halves)], [ALPHA])[-1].accepted
        single = any(sequential_test([half], [ALPHA / 2])[-1].accepted for half in halves)
        accepted["two folds, pooled"] += pooled
        accepted["two folds, half the level each"] += single
    return {name: number / times for name, number in accepted.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="+", default=[20, 40, 100, 300])
    parser.add_argument("--gains", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--adversary", action="store_true", help="of folds alone")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began, results = time.monotonic(), list[dict[str, object]]()
    if options.adversary:
        for rows in options.rows:
            print(rows, measure_adversary(rows, options.repetitions), flush=True)
        return
    for rows in options.rows:
        held_rows = round(share_held_out(rows) * rows)
        print(f"\n{rows} rows, {held_rows} held out")
        for graded in (False, True):
            for correlation in (0.0, 0.5):
                kind = f"{'graded' if graded else 'binary'}, correlation {correlation}"
                for name in options.rules:
                    cells: list[str] = []
                    for gain in options.gains:
                        world = (gain, graded, correlation)
                        result = measure(RULES[name], rows, world, options.repetitions)
                        results.append({"rule": name, "of": rows, "world": world, **result})
                        cells.append(f"{100 * result['accepted']:5.1f} ({result['rows']:.0f})")
                    print(f"  {kind:24} {name:32} {'  '.join(cells)}", flush=True)
    print(f"\n{options.repetitions} repetitions, {time.monotonic() - began:.0f} s")
    if options.out is not None:
        options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
