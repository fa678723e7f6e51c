"""The report on how well probabilities are calibrated: how often the predicted event came true,
compared with its predicted probability.

The probabilities come from judges, from signals of judges, or from fitted judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Section, Table
from textevolve.statistics.calibration import Calibration
from textevolve.studies.cells import estimate, finite


def draw_calibrations(
    calibrations: Mapping[str, Calibration], event: str, missing: str
) -> Iterator[Block]:
    """Draw the calibration figures and the calibration curve of each judge. `event`: what the
    probabilities predict, in words; `missing`: a sentence on judges that give no probabilities."""
    if not calibrations:
        return
    columns = (
        "judge",
        Column("Brier", "number", 3),
        Column("ECE", "number", 3),
        Column("by chance", "number", 3),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            estimate(calibration.brier),
            estimate(calibration.ece),
            finite(calibration.ece_by_chance),
        )
        for name, calibration in calibrations.items()
    ]
    most = max(calibrations.values(), key=lambda calibration: calibration.items)
    rows.append(("always the share", finite(most.base_brier), "", ""))
    note = (
        f"Of the probability that {event}; lower is better. ECE: mean distance between predicted"
        " and observed shares, over bins of equal mass; by chance: its value if every probability"
        f" were right. The last row always predicts the share of all items:"
        f" {wording.percent(most.base_rate)}."
    )
    yield Table("Calibration", columns, rows, note=f"{note} {missing}".rstrip())
    points = [
        (name, point.probability, estimate(point.observed), point.count)
        for name, calibration in calibrations.items()
        for point in calibration.curve
    ]
    curve = Table(
        "",
        (
            "judge",
            Column("probability", "percent", 0),
            Column("came true", "percent", 0),
            "items",
        ),
        points,
    )
    yield Section("Calibration curve", [curve], folded=True)
