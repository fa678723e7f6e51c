"""What a person is shown of a calibration: the template, its changes, the search as a tree."""

from __future__ import annotations

from textevolve.loops.search_tree import CalibrationResult, Gain, Node, describe_outcome
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


def report(_spec: object, found: CalibrationResult) -> Report:
    blocks: list[Block] = [Texts("The template to use", [("", found.template)])]
    if found.leader:
        taken = "" if found.accepted else ", which was not taken"
        title = f"What template {found.leader} changes{taken}"
        blocks.append(Diff(title, found.nodes[0].text, found.nodes[found.leader].text))
    if found.gain is not None:
        blocks.append(_validation(found, found.gain))
    blocks.append(Tree("The search", [_grow(found, 0)]))
    facts = {
        "Rows": f"{found.rows[0]} for training, {found.rows[1]} held out",
        "Search": f"{wording.count(len(found.nodes), 'template')} in"
        f" {wording.count(found.rounds, 'round')}, {wording.count(found.tried, 'trial')}",
        "Used": wording.spent(found.usage),
    }
    return Report("Calibration of a prompt template", describe_outcome(found), blocks, facts)


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
    note = "On rows that the search has not seen: a paired bootstrap, and a sign-flip test."
    return Table("Validation", columns, rows, note=note)


def _grow(found: CalibrationResult, number: int) -> Branch:
    """A template with all that were made from it."""
    node = found.nodes[number]
    leads = node.number == found.leader and node.number != 0
    notes = [_place(node, n) for n in range(len(node.placings))]
    notes += ["in the beam"] * (node.number in found.beam)
    notes += [("taken" if found.accepted else "leads")] * leads
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
