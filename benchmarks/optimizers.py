"""Prompt optimisers on simulated tasks at equal numbers of calls: the quality of what is returned.

    python benchmarks/optimizers.py                       # the tables of docs/measurements.md
    python benchmarks/optimizers.py --worlds graded --budgets 200 --arms GEPA auto --seeds 5
    python benchmarks/optimizers.py --acceptance --rows 100 --worlds "a gain of .2" "a gain of .3"
    python benchmarks/optimizers.py --families judging --arms auto "GEPA, equal accepted"

The tasks and their editors are in `optimizer_simulator.py` and `optimizer_families.py`, whose
docstrings say what they model and what not; the optimisers are in `optimizer_arms.py`. All see the
same rows, generator and editor; every call of the generator and the editor is counted, and the
budget is hard: the call too many raises. What an optimiser *returns* is scored: for ours the
original where no gain was shown. Optimisers that keep no rows back return what looked best.

Intervals are 95 % of the mean over seeds (Student); a seed is one task with its own rows and its
own luck, the same for all optimisers. GEPA has the best of eleven settings for each budget and kind
of metric (`CHOSEN`); figures are of seeds 0 to 19. Results are kept in `--keep` by the hash of the
code that they depend on, and not computed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

import textevolve.loops.calibration.plan as plan_file
from optimizer_arms import (
    GepaSettings,
    Returned,
    Task,
    calibrate,
    original_of,
    quality_of,
    run_gepa,
)
from optimizer_families import (
    CHOOSING,
    CHOOSING_SEEDS,
    FAMILIES,
    JUDGING,
    JUDGING_SEEDS,
    begin_task,
)
from optimizer_simulator import WORLDS
from sitting import describe_machine
from textevolve.loops.calibration.plan import CalibrationPlan
from textevolve.statistics.comparisons import holm, sign_flip_test
from textevolve.statistics.intervals import t_quantile

BUDGETS = (100, 200, 400, 800)
EQUAL = "GEPA, equal accepted"
"""GEPA with `acceptance_criterion="improvement_or_equal"`, its best acceptance."""
SEEDS = range(20)
QUALITY = (
    "graded",
    "binary",
    "graded, noisy",
    "binary, noisy",
    "graded, easy",
    "binary, easy",
    "graded, hard",
    "binary, hard",
)
CHOSEN: dict[tuple[bool, int], GepaSettings] = {
    (False, 100): GepaSettings(validation=6, minibatch=5),
    (False, 200): GepaSettings(validation=6, minibatch=5),
    (False, 400): GepaSettings(validation=10, minibatch=5),
    (False, 800): GepaSettings(validation=15, minibatch=8),
    (True, 100): GepaSettings(validation=6, minibatch=5),
    (True, 200): GepaSettings(validation=6, minibatch=5),
    (True, 400): GepaSettings(validation=15, minibatch=5),
    (True, 800): GepaSettings(validation=15, minibatch=8),
}
"""By whether the metric is binary, and the budget: the highest mean over the worlds of `QUALITY` on
seeds 100 to 105, of eleven settings that were tried once."""

Order: TypeAlias = tuple[str, str, int, int, int]
"""Arm, world, rows, budget, seed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: true quality of the original, of what was returned, of what led without a test."""

    quality: float
    leader: float
    original: float
    accepted: bool
    calls: int


def gepa_settings(task: Task, lenient: bool = False) -> GepaSettings:
    """GEPA's best settings for a task and its budget."""
    chosen = CHOSEN.get((task.world.binary, task.budget or 0), GepaSettings())
    return replace(chosen, lenient=lenient)


def arms() -> dict[str, Callable[[Any], Returned]]:
    """Every optimiser that can run in this process, by its name in the tables."""
    optimizers: dict[str, Callable[[Any], Returned]] = {
        "original": lambda s: Returned(original_of(s), original_of(s), False),
        "GEPA": lambda s: run_gepa(s, gepa_settings(s)),
        EQUAL: lambda s: run_gepa(s, gepa_settings(s, lenient=True)),
        "GEPA, its defaults": lambda s: run_gepa(s, GepaSettings(0, 3)),
    }
    for name in get_args(CalibrationPlan.model_fields["strategy"].annotation):
        optimizers[name] = partial(calibrate, plan={"strategy": name})
    return optimizers


def measure(arm: str, world: str, rows: int, budget: int, seed: int) -> Measured:
    simulation = begin_task(world, seed, rows or None, budget)
    returned = arms()[arm](simulation)
    original = quality_of(simulation, original_of(simulation))
    leader = quality_of(simulation, returned.leader)
    quality = quality_of(simulation, returned.prompt)
    return Measured(quality, leader, original, returned.accepted, simulation.spent)


@cache
def code_hash(ours: bool) -> str:
    """Of everything that a result depends on."""
    here = Path(__file__).parent
    names = ("simulator", "families", "arms")
    files = [here / f"optimizer_{name}.py" for name in names]
    if ours:
        room = Path(plan_file.__file__).parent
        files += [
            *sorted(room.glob("*.py")),
            *sorted((room.parent.parent / "statistics").glob("*.py")),
        ]
        files += sorted((room.parent / "prompts").glob("calibrate*"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def key_of(arm: str, world: str, rows: int, budget: int, seed: int) -> str:
    foreign = ("original", "GEPA", EQUAL, "GEPA, its defaults")
    setting = ""
    if arm in ("GEPA", EQUAL):
        binary = (FAMILIES.get(world) or WORLDS[world]).binary
        setting = str(CHOSEN.get((binary, budget), ""))
    return json.dumps([arm, setting, world, rows, budget, seed, code_hash(arm not in foreign)])


def measure_all(
    orders: Sequence[Order], keep: Path | None, processes: int
) -> dict[Order, Measured]:
    results = dict[str, Any]()
    if keep is not None and keep.exists():
        results = dict(json.loads(line) for line in keep.read_text().splitlines())
    missing = [order for order in orders if key_of(*order) not in results]
    if missing:
        with ProcessPoolExecutor(processes) as pool:
            measured = pool.map(measure, *zip(*missing, strict=True))
            for order, result in zip(missing, measured, strict=True):
                key = key_of(*order)
                results[key] = [getattr(result, name) for name in Measured.__slots__]
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps([key, results[key]]) + "\n")
    return {order: Measured(*results[key_of(*order)]) for order in orders}


def with_interval(values: Sequence[float], digits: int = 2) -> str:
    """The mean, with half the width of its 95 % interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = t_quantile(0.95, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tell_quality(
    results: Mapping[Order, Measured],
    names: Sequence[str],
    worlds: Sequence[str],
    rows: int,
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> str:
    """A table for each world, and one of the means over worlds."""
    tables = list[str]()
    for world in (*worlds, *(("all",) if len(worlds) > 1 else ())):
        lines = list[list[str]]()
        for arm in names:
            line = [arm]
            for budget in budgets:
                chosen = worlds if world == "all" else (world,)
                runs = [
                    [results[arm, each, rows, budget, seed] for each in chosen] for seed in seeds
                ]
                values = [statistics.fmean(run.quality for run in group) for group in runs]
                leaders = [statistics.fmean(run.leader for run in group) for group in runs]
                cell = with_interval(values)
                if abs(statistics.fmean(leaders) - statistics.fmean(values)) > 0.005:
                    cell += f" (leader {statistics.fmean(leaders):.2f})"
                line.append(cell)
            lines.append(line)
        name = f"mean of {len(worlds)} worlds" if world == "all" else world
        tables.append(f"{name}, {rows} rows\n\n" + table(["", *map(str, budgets)], lines))
    return "\n\n".join(tables)


def tell_acceptance(
    results: Mapping[Order, Measured],
    names: Sequence[str],
    worlds: Sequence[str],
    rows: int,
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> str:
    """How often something else than the original is returned, and how often that is truly better
    (by more than .01)."""
    lines = list[list[str]]()
    for world in worlds:
        for arm in names:
            line = [world, arm]
            for budget in budgets:
                runs = [results[arm, world, rows, budget, seed] for seed in seeds]
                better = sum(run.accepted and run.quality > run.original + 0.01 for run in runs)
                line.append(f"{sum(r.accepted for r in runs)} ({better}) of {len(runs)}")
            lines.append(line)
    return f"{rows} rows: returned another than the original (truly better)\n\n" + table(
        ["", "", *map(str, budgets)], lines
    )


def tell_families(
    results: Mapping[Order, Measured],
    names: Sequence[str],
    worlds: Sequence[str],
    rows: int,
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> str:
    """The mean qualities of two optimisers for each family, where the first is behind and by how
    much more than chance (Holm over families and budgets), and how often a budget was exceeded or
    the original was better than what was returned."""
    ours, theirs = names
    gaps = {
        (world, budget): [
            results[ours, world, rows, budget, seed].quality
            - results[theirs, world, rows, budget, seed].quality
            for seed in seeds
        ]
        for world in worlds
        for budget in budgets
    }
    p_values = holm([sign_flip_test(gap, [0.0] * len(gap)).p for gap in gaps.values()])
    corrected = dict(zip(gaps, p_values, strict=True))
    lines = list[list[str]]()
    for world in worlds:
        line = [world]
        for budget in budgets:
            means = [
                statistics.fmean(results[arm, world, rows, budget, seed].quality for seed in seeds)
                for arm in names
            ]
            sure = "*" if corrected[world, budget] <= 0.05 else ""
            line.append(f"{means[0]:.3f} / {means[1]:.3f} ({means[0] - means[1]:+.3f}{sure})")
        lines.append(line)
    means = [
        [statistics.fmean(gaps[world, budget][n] for world in worlds) for n in range(len(seeds))]
        for budget in budgets
    ]
    lines.append(["mean difference", *(with_interval(gap, 3) for gap in means)])
    runs = {arm: [result for order, result in results.items() if order[0] == arm] for arm in names}
    for arm in names:
        worse = sum(run.quality < run.original - 1e-9 for run in runs[arm])
        over = sum(result.calls > order[3] for order, result in results.items() if order[0] == arm)
        lines.append([f"{arm}: worse than the original {worse}, over the budget {over}"])
        for budget in budgets:
            orders = [order for order in results if order[0] == arm and order[3] == budget]
            quality = statistics.fmean(results[order].quality for order in orders)
            leader = statistics.fmean(results[order].leader for order in orders)
            calls = statistics.fmean(results[order].calls for order in orders)
            taken = statistics.fmean(results[order].accepted for order in orders)
            lines[-1].append(
                f"{quality:.3f} (leader {leader:.3f}), calls {calls:.0f}, taken {taken:.2f}"
            )
    return table([f"{ours} / {theirs}", *map(str, budgets)], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", nargs="+", default=list(QUALITY), choices=[*WORLDS, *FAMILIES])
    parser.add_argument("--families", choices=("choosing", "judging"), help="the third table")
    parser.add_argument("--arms", nargs="+", default=list(arms()))
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--rows", type=int, default=60, help="0: as many as a family has")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--acceptance", action="store_true", help="the second table, of decisions")
    parser.add_argument("--keep", type=Path, help="a file that keeps results")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tell = tell_acceptance if options.acceptance else tell_quality
    if options.families:
        options.worlds = JUDGING if options.families == "judging" else CHOOSING
        seeds = JUDGING_SEEDS if options.families == "judging" else CHOOSING_SEEDS
        seeds = seeds[: options.seeds]
        options.rows = 0
        tell = tell_families
    orders = [
        (arm, world, options.rows, budget, seed)
        for world in options.worlds
        for arm in options.arms
        for budget in options.budgets
        for seed in seeds
    ]
    results = measure_all(orders, options.keep, options.processes)
    print(f"{describe_machine()}; seeds {seeds[0]} to {seeds[-1]}\n")
    print(tell(results, options.arms, options.worlds, options.rows, options.budgets, seeds))


if __name__ == "__main__":
    main()
