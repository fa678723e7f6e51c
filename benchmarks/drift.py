"""False alarms and delays of the test that watches a pass rate, on simulated cases.

    python benchmarks/drift.py
    python benchmarks/drift.py --rate 0.9 --paths 500

No model is asked. For each stated pass rate there are streams in which it holds, cut at 100,000
cases, and streams in which it falls by ten points after 500 cases. The delay is the number of cases
from the fall to the alarm; a stream with an alarm before its fall is started anew, as a person does
who has looked and found nothing. The last lines state a rate that is not the true one. Nothing is
fitted: the threshold follows from theory, and the fall of the likelihood ratio is the promised one.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textevolve.statistics.comparisons import CASES_BETWEEN_FALSE_ALARMS, add_evidence

CUT = 100_000
BEFORE = 500


def find_alarms(rate: float, chances: tuple[float, float], paths: int, seed: int) -> NDArray[Any]:
    """Return for each path the cases until its first alarm, counted from the fall; `CUT` without
    one. The chance to pass is the first one before the fall and the second one after it."""
    generator = np.random.default_rng(seed)
    evidence = np.zeros(paths)
    alarms = np.full(paths, CUT)

    for case in range(-BEFORE, CUT):
        chance = chances[int(case >= 0)]
        evidence = add_evidence(evidence, generator.random(paths) < chance, rate)
        alarm = evidence >= CASES_BETWEEN_FALSE_ALARMS
        if case < 0:
            evidence[alarm] = 0.0
            continue
        alarms[alarm & (alarms == CUT)] = case + 1
        if (alarms < CUT).all():
            break

    return alarms


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon is a fall of a pass rate noticed?")
    parser.add_argument("--rate", type=float, action="append")
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=75)
    options = parser.parse_args()

    for rate in options.rate or (0.95, 0.8, 0.6):
        still = find_alarms(rate, (rate, rate), options.paths, options.seed)
        error = still.std() / np.sqrt(options.paths)
        fallen = find_alarms(rate, (rate, rate - 0.1), options.paths, options.seed + 1)
        late = np.quantile(fallen, 0.9)
        print(
            f"stated {rate}: {still.mean():,.0f} cases to a false alarm (standard error"
            f" {error:,.0f}, {np.mean(still == CUT):.1%} cut); after a fall of .1: median"
            f" {np.median(fallen):,.0f}, 90 % within {late:,.0f}",
            flush=True,
        )
        for gap in (-0.02, 0.02):
            other = find_alarms(rate, (rate + gap, rate + gap), options.paths, options.seed)
            print(f"    the true rate is {rate + gap:.2f}: {other.mean():,.0f} cases", flush=True)


if __name__ == "__main__":
    main()
