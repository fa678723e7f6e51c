"""How far probabilities can be taken at their word, as the blocks of a report.

Whoever says probabilities has a name here: a judge, a signal, a fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, IntervalChart, Section, Table
from textevolve.statistics.calibration import Calibration
from textevolve.studies.cells import estimate, finite


def draw_calibrations(
    found: Mapping[str, Calibration], event: str, missing: str = ""
) -> Iterator[Block]:
    """The figures of each by its name, and how often what each said came true. `event`:
    what the probabilities are of; `missing`: who has none, and why, as a sentence."""
    if found:
        yield _draw_figures(found, event, missing)
        yield Section("Reliability", list(_draw_curves(found, event)), folded=True)


def _draw_figures(found: Mapping[str, Calibration], event: str, missing: str) -> Table:
    columns = (
        Column("judge"),
        Column("Brier", "number", 3),
        Column("ECE", "number", 3),
        Column("by chance", "number", 3),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            estimate(one.brier),
            estimate(one.ece),
            finite(one.ece_by_chance),
        )
        for name, one in found.items()
    ]
    most = max(found.values(), key=lambda one: one.items)
    rows.append(("always the share", finite(most.base_brier), "", ""))
    note = (
        f"Of the probability that {event}; lower is better. ECE: mean distance of what was said and"
        f" what came true, over {_say_bins(found)} of equal mass; by chance: what it would be if"
        " every probability were right. The last says each time how often it is so in all:"
        f" {wording.percent(most.base_rate)}."
    )
    return Table("Calibration", columns, rows, note=f"{note} {missing}".rstrip())


def _say_bins(found: Mapping[str, Calibration]) -> str:
    least, *_, most = sorted(len(one.curve) for one in found.values() for _ in range(2))
    return wording.count(most, "bin") if least == most else f"{least} to {most} bins"


def _draw_curves(found: Mapping[str, Calibration], event: str) -> Iterator[IntervalChart]:
    for name, one in found.items():
        rows = [(wording.percent(b.probability), estimate(b.observed)) for b in one.curve]
        title = f"{name}: how often it was so that {event}, by the probability that was said"
        yield IntervalChart(title, rows, format="percent")
