"""A corrected rate or mean in the terminal, or as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict

from rich.text import Text

from textevolve.bench.rate_report import RateReport, explain_rate
from textevolve.cli.drawing import Column, draw_columns, open_console, safe
from textevolve.cli.figures import print_json
from textevolve.export import wording
from textevolve.statistics.intervals import Interval


def print_rate(report: RateReport, *, as_json: bool = False) -> None:
    """The figures as a table, then what they mean."""
    sentences = explain_rate(report)
    if as_json:
        print_json({**asdict(report), "sentences": sentences})
        return
    console = open_console()
    what = "Rate" if report.is_rate else "Mean"
    about = f"{what} of '{report.field}' over {wording.count(report.texts, 'text')}"
    about += f", corrected by {wording.count(report.labelled, 'labelled text')}"
    console.print(safe(about, "bold"))
    console.print()
    rows = list(_rows(report))
    labels = [Text(label) for label, _, _ in rows]
    values = Column("", [Text(_shown(value, report.is_rate), "bold") for _, value, _ in rows])
    intervals = Column("95 % interval", [Text(_ends(i, report.is_rate)) for _, _, i in rows])
    console.print(draw_columns(labels, [values, intervals], console.width))
    if report.powered_note:
        console.print()
        console.print(safe(report.powered_note, "yellow"), soft_wrap=True)
    console.print()
    for sentence in sentences:
        console.print(safe(f"- {sentence}"))


def _rows(report: RateReport) -> list[tuple[str, float, Interval]]:
    rows = [("as judged", report.raw, report.raw_interval)]
    if report.corrected is not None:
        rows.append(("corrected (Rogan-Gladen)", report.corrected.value, report.corrected.interval))
    if report.powered is not None:
        powered = report.powered
        rows.append(("prediction-powered mean", powered.value, powered.interval))
        rows.append(("people's labels alone", powered.human, powered.human_interval))
    return rows


def _shown(value: float, is_rate: bool) -> str:
    return wording.percent(value, 1) if is_rate else wording.figure(value, 3)


def _ends(interval: Interval, is_rate: bool) -> str:
    if math.isnan(interval.low):  # why is said below
        return "–"
    if is_rate:
        return f"{interval.low * 100:.1f} to {interval.high * 100:.1f} %"
    return f"{interval.low:.3f} to {interval.high:.3f}"
