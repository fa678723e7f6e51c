"""What a person is shown of a calibration: the template, its changes, the search as a tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from textevolve.loops.calibration.tree import CalibrationResult, Gain, Node, describe_outcome
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Branch,
    Column,
    Diff,
    Estimate,
    Report,
    Table,
    Texts,
    Tree,
)
from textevolve.statistics.sequential import POWER


def report(_spec: object, found: CalibrationResult) -> Report:
    several = len(found.templates) > 1
    what = "a program" if several else "a prompt template"
    texts = list(found.templates.items()) if several else [("", found.template)]
    blocks: list[Block] = [Texts(f"The template{'s' * several} to use", texts)]
    if found.leader:
        blocks += _changes(found)
    if found.gain is not None:
        blocks.append(_validation(found, found.gain))
    if found.operators:
        blocks.append(_earnings(found))
    blocks.append(Tree("The search", [_grow(found, 0)]))
    facts = {
        "Rows": f"{found.rows[0]} for training, {found.rows[1]} held out",
        "Search": f"{wording.count(len(found.nodes), 'template')} in"
        f" {wording.count(found.rounds, 'round')}, {wording.count(found.tried, 'trial')}",
        "Smallest detectable gain": tell_detectable(found.smallest),
        "Used": wording.spent(found.usage),
    }
    if found.phases:
        facts["Calls"] = ", ".join(f"{calls:,} {phase}" for phase, calls in found.phases)
    if found.shortened:
        facts["Shown to the editor in part"] = "; ".join(
            f"{name}, {wording.count(times, 'time')}, of up to {longest:,} characters"
            for name, times, longest in found.shortened
        )
    return Report(f"Calibration of {what}", describe_outcome(found), blocks, facts)


def tell_detectable(gain: float) -> str:
    often = f"{POWER * 10:.0f} times in 10"
    return f"none, {often}" if math.isnan(gain) else f"{gain:.2f}, {often}"


def _changes(found: CalibrationResult) -> list[Diff]:
    """Of a program with several templates, those that differ."""
    taken = "" if found.accepted else ", which was not taken"
    old, new = (found.nodes[number].templates for number in (0, found.leader))
    return [
        Diff(
            f"What template {found.leader} changes{f' in {name}' * (len(old.names) > 1)}{taken}",
            old[name],
            new[name],
        )
        for name in old.names
        if old[name] != new[name]
    ]


def _earnings(found: CalibrationResult) -> Table:
    columns = (
        Column("operator"),
        Column("proposals", "count"),
        Column("passed", "count"),
        Column("taken", "count"),
        Column("calls", "count"),
        Column("gain", "number", 3),
    )
    rows = [
        (one.operator, one.proposals, one.passed, one.taken, one.calls, one.gain)
        for one in found.operators
    ]
    note = (
        "Passed: better than its parent on a few rows. Taken: the best so far. Gain: of those that"
        " were taken, on training rows, so too high by chance."
    )
    return Table("What each operator earned", columns, rows, note=note)


def _validation(found: CalibrationResult, gain: Gain) -> Table:
    gains = [("what was optimised", gain), ("second judge", found.second)]
    columns = (
        Column(""),
        Column("rows", "count"),
        Column(f"template {found.leader}", "number", 3),
        Column("original", "number", 3),
        Column("difference", "number", 3),
        Column("p", "p_value"),
    )
    rows = [
        (name, one.items, one.first, one.second, Estimate(one.difference, one.low, one.high), one.p)
        for name, one in gains
        if one is not None
    ]
    test = "a one-sided exact sign-flip test" if gain.planned else "a sign-flip test"
    note = f"On rows that the search has not seen. Interval: by sign flips. p: {test}"
    note += f", which may be {gain.level:g} at most for the template to be taken."
    return Table("Validation", columns, rows, note=note)


def _grow(found: CalibrationResult, number: int) -> Branch:
    """A template with all that were made from it."""
    node = found.nodes[number]
    leads = node.number == found.leader and node.number != 0
    notes = [_place(node, n) for n in range(len(node.placings))]
    notes += ["in the beam"] * (node.number in found.beam)
    notes += [("taken" if found.accepted else "leads")] * leads
    notes += [node.operator] * bool(node.operator)
    notes += [f"dropped: {node.fault}"] * bool(node.fault)
    children = [Branch(one) for one in node.instructions]
    children += [_grow(found, child.number) for child in found.children(number)]
    name = "original" if node.parent is None else f"template {node.number}"
    tone = "good" if leads and found.accepted else "bad" if node.fault else ""
    return Branch(name, ", ".join(notes), tone, children)


def _place(node: Node, number: int) -> str:
    placing = node.placings[number]
    where = "finals" if placing.stage == "finals" else f"round {placing.round}"
    of_all = f" ({placing.scored} of {placing.asked})" if placing.scored < placing.asked else ""
    return f"{where} {wording.number(placing.mean, 3)}{of_all}"


def flatten(found: CalibrationResult) -> Iterator[Mapping[str, Any]]:
    """A row for each template."""
    for node in found.nodes:
        yield {
            "template": node.number,
            "parent": node.parent,
            "round": node.round,
            "text": node.text,
            "score": node.score,
            "leads": node.number == found.leader,
            "fault": node.fault or None,
            "instructions": "\n".join(node.instructions),
        }
