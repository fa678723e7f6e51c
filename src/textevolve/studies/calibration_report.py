"""How far probabilities can be taken at their word, as the blocks of a report.

Whoever says probabilities has a name here: a judge, a signal, a fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Section, Table
from textevolve.statistics.calibration import Calibration
from textevolve.studies.cells import estimate, finite


def draw_calibrations(
    found: Mapping[str, Calibration], event: str, missing: str
) -> Iterator[Block]:
    """Draw the figures of each judge, and how often what it said came true. `event`: what the
    probabilities are of; `missing`: who has none, and why, as a sentence."""
    if not found:
        return
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
        " what came true, over bins of equal mass; by chance: what it would be if every probability"
        f" were right. The last says each time how often it is so in all:"
        f" {wording.percent(most.base_rate)}."
    )
    yield Table("Calibration", columns, rows, note=f"{note} {missing}".rstrip())
    points = [
        (name, point.probability, estimate(point.observed), point.count)
        for name, one in found.items()
        for point in one.curve
    ]
    curve = Table(
        "",
        (
            Column("judge"),
            Column("probability", "percent", 0),
            Column("came true", "percent", 0),
            Column("items"),
        ),
        points,
    )
    yield Section("Calibration curve", [curve], folded=True)
