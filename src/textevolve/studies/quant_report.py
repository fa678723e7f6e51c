"""What people and programs are shown of models that are quantised: one table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textevolve.report import wording
from textevolve.report.blocks import Cell, Column, Estimate, Note, Report, Table
from textevolve.report.data import plain
from textevolve.statistics.intervals import Statistic
from textevolve.studies.cells import estimate
from textevolve.studies.quant_figures import Measurement, QuantComparison, QuantSummary
from textevolve.studies.study import Row

BUSY = 0.25
"""Pieces of work for each core beside our own, from which on a machine is called busy."""


def short_name(model: str) -> str:
    """Of a file its name, of another model its name without the provider."""
    return model.rpartition("/")[2].removesuffix(".gguf")


def report_quants(found: QuantComparison, judge: str) -> Report:
    blocks: list[Table | Note] = [_table(found, judge)]
    if found.load is not None and found.load > 1 + BUSY:
        blocks.append(
            Note(
                f"The machine was busy while speeds were measured ({found.load:.1f} pieces of work"
                " for each core): of the speeds, only the ratios within this run mean something.",
                "warning",
            )
        )
    if found.failed:
        said = f"{wording.count(found.failed, 'measurement')} missing, and left out: "
        blocks.append(Note(said + "; ".join(found.reasons), "warning"))
    first = short_name(found.models[0].model)
    return Report(f"Quants of {first}", _sentence(found), blocks, _facts(found, judge))


def _facts(found: QuantComparison, judge: str) -> Mapping[str, str]:
    facts = {"Machine": found.machine} if found.machine else {}
    if found.parts:
        parts, tokens = wording.count(found.parts, "part"), wording.count(found.tokens, "token")
        facts["Text"] = f"{parts}, {tokens}, each part written as the answer of a chat"
    if found.rows:
        facts["Judged"] = f"{wording.count(found.rows, 'row')} by {judge}"
    if found.repeats:
        facts["Speed"] = f"{wording.count(found.repeats, 'repeat')}, one call at a time"
    for one in found.models:
        if one.sha256:
            facts[short_name(one.model)] = f"SHA-256 {one.sha256[:16]}..."
    return facts


def _sentence(found: QuantComparison) -> str:
    """The smallest of them beside the original."""
    first, *others = found.models
    smallest = min(others, key=lambda one: one.bytes or math.inf)
    said: list[str] = []
    if first.bytes and smallest.bytes:
        said.append(f"is {smallest.bytes / first.bytes:.0%} of the size")
    if math.isfinite(smallest.writing_times.value):
        said.append(f"writes {smallest.writing_times.value:.2f} times as fast")
    if math.isfinite(smallest.times.value):
        said.append(f"has {_say(smallest.times)} times the perplexity")
    if math.isfinite(smallest.same_verdict.value):
        said.append(f"gives the same verdict on {smallest.same_verdict.value:.0%} of the rows")
    if not said:
        return "Nothing was measured of both the original and another model."
    *before, last = said
    listed = f"{', '.join(before)} and {last}" if before else last
    return f"Beside {short_name(first.model)}, {short_name(smallest.model)} {listed}."


def _say(figure: Statistic) -> str:
    ends = figure.interval
    if not math.isfinite(ends.low):
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} ({ends.low:.3f} to {ends.high:.3f})"


def _table(found: QuantComparison, judge: str) -> Table:
    """Only the columns of what was measured."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(""), _labels([short_name(one.model) for one in found.models])),
        (Column("MB", "number", 0), [_megabytes(one) for one in found.models]),
    ]

    def add(name: str, format: Any, digits: int, field: str) -> None:
        cells = [estimate(getattr(one, field)) for one in found.models]
        columns.append((Column(name, format, digits), cells))

    if found.parts:
        add("perplexity", "number", 2, "perplexity")
        add("perplexity, times", "number", 3, "times")
        if any(math.isfinite(one.same_token.value) for one in found.models):
            add("same likeliest token", "percent", 1, "same_token")
    if found.rows:
        add("log-odds moved", "number", 2, "moved")
        add("correlation", "number", 3, "correlation")
        add("same verdict", "percent", 0, "same_verdict")
    if any(math.isfinite(one.right.value) for one in found.models):
        add("right", "percent", 0, "right")
        columns.append((Column("right, difference", "percent", 0), _right_more(found)))
    if found.repeats:
        add("reads, tokens/s", "number", 1, "reading")
        add("reads, times", "number", 2, "reading_times")
        add("writes, tokens/s", "number", 1, "writing")
        add("writes, times", "number", 2, "writing_times")
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    note = (
        "Intervals of 95 %: resampled parts of the text and rows, Wilson's of shares,"
        " Student's of speeds. What is beside the original is paired."
    )
    return Table("", [column for column, _ in columns], rows, note=note)


def _labels(names: Sequence[str]) -> list[Cell]:
    """The names without what all begin with."""
    same = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    first = same.index(False) if False in same else len(same)
    # To the last mark between words; the point of 0.5b is none.
    shared = re.sub(r"([^-._]|(?<=\d)\.(?=\d|$))*$", "", names[0][:first])
    return [name.removeprefix(shared) for name in names]


def _megabytes(one: QuantSummary) -> float | None:
    return None if one.bytes is None else one.bytes / 1e6


def _right_more(found: QuantComparison) -> list[Cell]:
    several = [one.right_more for one in found.models]
    return [None if d is None else Estimate(d.difference, d.low, d.high) for d in several]


def quant_data(found: QuantComparison, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"parameters": parameters, "sentence": _sentence(found), **plain(found)}


def find_row(one: Measurement) -> Row:
    failure = one.failure
    return Row(
        key=f"{one.measure}/{one.case}/{one.model}",
        position=one.position,
        case=one.case,
        status=failure.kind if failure else "scored",
        reason=f"{short_name(one.model)}: {failure.reason}" if failure else "",
        variant=one.model,
    )


def flatten(one: Measurement) -> Iterator[dict[str, Any]]:
    yield {
        "model": one.model,
        "measure": one.measure,
        "case": one.case,
        "bytes": one.bytes,
        "tokens": one.tokens,
        "seconds": one.seconds,
        "load": one.load,
        "surprise": one.surprise,
        "log_odds": list(one.odds),
        "human": list(one.human),
        "reason": one.failure.reason if one.failure else None,
    }
