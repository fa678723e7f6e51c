"""A calibration in the terminal: a line for each round, the search as a tree, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from textevolve.cli.drawing import draw_facts, open_console, safe
from textevolve.events import StepFinished, StepStarted
from textevolve.export import wording
from textevolve.loops.calibration import ROUND
from textevolve.loops.search_tree import CalibrationResult, Node, describe_outcome
from textevolve.loops.trials import STAGE

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

INSTRUCTION_SHOWN = 100
STAGES = {
    "outputs": "outputs are generated and scored",
    "judge": "cases are judged",
    "instructions": "lists of instructions are written",
    "successors": "new templates are written",
}


def describe_step(event: StepStarted | StepFinished) -> str | None:
    """A stage that starts, or a round that has ended, in one line."""
    if isinstance(event, StepStarted):
        if event.step != STAGE:
            return None
        stage = str(event.details["stage"])
        return f"{event.details['pieces']} {STAGES.get(stage, stage)}"
    if event.step == ROUND and isinstance(event.value, CalibrationResult):
        return describe_round(event.value)
    return None


def describe_round(found: CalibrationResult) -> str:
    """What a round made, and which templates it kept."""
    made = [node for node in found.nodes if node.round == found.rounds and node.parent is not None]
    dropped = sum(bool(node.fault) for node in made)
    kept = ", ".join(
        f"{n} ({wording.figure(found.nodes[n].score, 3)})" if n else "the original"
        for n in found.beam
    )
    note = f", {dropped} of them dropped" if dropped else ""
    made_said = wording.count(len(made), "new template")
    return f"round {found.rounds}: {made_said}{note}; in the beam: {kept}"


def print_calibration(found: CalibrationResult, facts: Mapping[str, str]) -> None:
    """The tree, the template to use, and the sentence that says what it is worth."""
    console = open_console()
    console.print(draw_tree(found))
    console.print()
    console.print(safe(describe_outcome(found), "bold green" if found.accepted else "bold"))
    console.print()
    if found.accepted:
        console.print(safe("The template to use:", "dim"))
        console.print(safe(found.template))
        console.print()
    console.print(draw_facts((name, safe(value)) for name, value in facts.items()))


def draw_tree(found: CalibrationResult) -> Tree:
    """Every template below its parent, with what was applied to it and how it did."""
    root = Tree(_label(found, found.nodes[0]), guide_style="dim")
    branches = {0: root}
    for node in found.nodes[1:]:
        assert node.parent is not None
        branches[node.number] = branches[node.parent].add(_label(found, node))
    return root


def _label(found: CalibrationResult, node: Node) -> Text:
    name = "original" if node.parent is None else f"template {node.number}"
    leads = node.number == found.leader and node.number != 0
    text = Text(name, "bold green" if leads and found.accepted else "bold" if leads else "")
    if node.fault:
        text.append_text(safe(f"  dropped: {wording.shorten(node.fault, 100)}", "red"))
    for placing in node.placings:
        where = "finals" if placing.stage == "finals" else f"round {placing.round}"
        said = f"  {where} {wording.figure(placing.mean, 3)}"
        said += f" ({placing.scored} of {placing.asked})" if placing.scored < placing.asked else ""
        text.append(said, "" if placing.kept else "dim")
    if node.number in found.beam:
        text.append("  in the beam", "cyan")
    if leads:
        text.append("  taken" if found.accepted else "  leads", "green" if found.accepted else "")
    if node.repaired and not node.fault:
        text.append("  repaired", "yellow")
    for note in node.notes:
        text.append_text(safe(f"\n{wording.shorten(note, 160)}", "yellow"))
    for instruction in node.instructions if not node.fault else ():
        text.append_text(safe(f"\n- {wording.shorten(instruction, INSTRUCTION_SHOWN)}", "dim"))
    return text


def calibration_facts(found: CalibrationResult, run: RunRecord, store: Store) -> dict[str, str]:
    """Where it comes from and what it took, each part with its heading."""
    parameters: Mapping[str, Any] = run.spec.get("parameters") or {}
    names = ("evaluator", "metric", "second_judge", "label", "selection", "judged", "seed")
    settings = ", ".join(f"{n} {parameters[n]}" for n in names if parameters.get(n) is not None)
    failed = f", {found.failed:,} without a score" if found.failed else ""
    return {
        "Ended": f"{found.stopped} after {wording.count(found.rounds, 'round')}",
        "Templates": f"{len(found.nodes):,}, {sum(bool(n.fault) for n in found.nodes):,} dropped",
        "Trials": f"{found.tried:,} of a template on a row{failed}",
        "Rows": f"{found.rows[0]:,} for training, {found.rows[1]:,} for validation",
        "Scored by": settings,
        "Used": wording.spent(found.usage),
        "Model": f"{run.spec.get('model')} ({run.spec.get('why')})",
        "Run": f"{run.id} in {store.path}",
    }
