"""What people are shown of memories that were made from dialogues, and the records behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from textevolve.evaluation import Failure, Usage
from textevolve.memory.creation import CreatedMemories
from textevolve.memory.reconciliation import Action, PointDecision
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Diff, Note, Report, Section, Table

if TYPE_CHECKING:
    from textevolve.studies.create_memories import CreateMemoriesSpec

ACTIONS: Mapping[Action, str] = {
    "add": "added",
    "merge": "merged into a memory",
    "update": "in the place of a memory",
    "drop": "dropped",
}
KEPT: Sequence[Action] = ("add", "merge", "update")
CHANGED: Sequence[Action] = ("merge", "update")
DECIDERS = {"rule": "by rule", "model": "by the model", "fallback": "no usable decision"}
SHOWN = 200
"""Memories and dropped points that a report lists; an export has all."""
DIFFS_SHOWN = 30
REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DialogueRecord:
    """What became of one dialogue: `created`, or `failure` and then nothing was kept."""

    id: str
    position: int
    turns: int
    created: CreatedMemories | None
    failure: Failure | None
    usage: Usage
    seconds: float


@dataclass(frozen=True)
class Creation:
    """What became of all dialogues. `dialogues`: how many there were, by what became of them.
    `memories`: how many were kept. `shown`: of each action the first decisions, each with the id of
    its dialogue."""

    dialogues: Mapping[str, int]
    actions: Mapping[Action, int]
    deciders: Mapping[str, int]
    table: Mapping[tuple[Action, str], int]
    memories: int
    usage: Usage
    seconds: float
    failures: Sequence[tuple[str, int]]
    shown: Mapping[Action, Sequence[tuple[str, PointDecision]]]


def summarise_records(records: Iterable[DialogueRecord]) -> Creation:
    dialogues, table, failures = Counter[str](), Counter[tuple[Action, str]](), Counter[str]()
    shown: dict[Action, list[tuple[str, PointDecision]]] = {action: [] for action in ACTIONS}
    usage, seconds, memories = Usage(), 0.0, 0
    for record in records:
        usage, seconds = usage + record.usage, seconds + record.seconds
        dialogues[_fate(record)] += 1
        if record.failure is not None:
            failures[record.failure.reason] += 1
        decisions = record.created.decisions if record.created is not None else ()
        memories += len({one.id for one in decisions if one.id})
        for one in decisions:
            table[one.action, one.by] += 1
            if len(shown[one.action]) < SHOWN:
                shown[one.action].append((record.id, one))
    actions, deciders = Counter[Action](), Counter[str]()
    for (action, by), number in table.items():
        actions[action] += number
        deciders[by] += number
    kept = (dialogues, actions, deciders, table, memories, usage, seconds)
    return Creation(*kept, failures.most_common(), shown)


def _fate(record: DialogueRecord) -> str:
    if record.failure is not None:
        return record.failure.kind
    applied = record.created.applied if record.created is not None else None
    return "taken in before" if applied is not None and applied.repeated else "read"


def report(spec: CreateMemoriesSpec, found: Creation) -> Report:
    return Report(
        f"Memories for {spec.collection}", _sentence(found), _blocks(found), _facts(spec, found)
    )


def _sentence(found: Creation) -> str:
    points = sum(found.actions.values())
    read = sum(found.dialogues.values()) - found.dialogues.get("skipped", 0)
    noun = "memory" if found.memories == 1 else "memories"
    said = (
        f"{found.memories:,} {noun} from {wording.count(read, 'dialogue')}: of"
        f" {wording.count(points, 'point')}"
    )
    counted = [f"{found.actions.get(action, 0):,} {name}" for action, name in ACTIONS.items()]
    left = found.dialogues.get("failed", 0) + found.dialogues.get("skipped", 0)
    missing = f" {wording.count(left, 'dialogue')} gave nothing, see below." if left else ""
    return f"{said} {', '.join(counted)}.{missing}"


def _facts(spec: CreateMemoriesSpec, found: Creation) -> dict[str, str]:
    told = ", ".join(f"{number:,} {fate}" for fate, number in found.dialogues.items())
    number = max(1, found.dialogues.get("read", 0) + found.dialogues.get("failed", 0))
    each = f"{found.usage.tokens / number:,.0f} tokens, {wording.duration(found.seconds / number)}"
    facts = {
        "Dialogues": f"{spec.data}: {told or 'none'}",
        "Used": wording.spent(found.usage),
        "A dialogue took": each if found.usage.calls else "",
    }
    return {name: said for name, said in facts.items() if said}


def _blocks(found: Creation) -> Iterator[Block]:
    if found.actions:
        yield _counts(found)
    kept = [pair for action in KEPT for pair in found.shown[action]]
    if kept:
        number = sum(found.actions.values()) - found.actions.get("drop", 0)
        yield _memories("Memories", kept, number)
    changed = [pair for action in CHANGED for pair in found.shown[action]]
    if changed:
        shown = [_diff(dialogue, one) for dialogue, one in changed[:DIFFS_SHOWN]]
        yield Section(f"What was changed: {len(changed):,}", shown, folded=True)
    if found.shown["drop"]:
        yield Section(
            f"Dropped: {found.actions['drop']:,}",
            [_memories("", found.shown["drop"], found.actions["drop"])],
            folded=True,
        )
    if found.failures:
        rows = [(n, wording.shorten(why, 300)) for why, n in found.failures[:REASONS_SHOWN]]
        columns = (Column("dialogues", "count"), Column("reason"))
        note = "Nothing of them was kept; the same command again reads them."
        yield Table("Why dialogues gave nothing", columns, rows, note=note)
    if found.deciders.get("fallback"):
        number = wording.count(found.deciders["fallback"], "point")
        yield Note(f"{number} added as they are, since no usable decision came.", "warning")


def _counts(found: Creation) -> Table:
    columns = (
        Column("points"),
        *(Column(name, "count") for name in DECIDERS.values()),
        Column("all", "count"),
    )
    rows = [
        (name, *(found.table.get((action, by), 0) for by in DECIDERS), found.actions.get(action, 0))
        for action, name in ACTIONS.items()
    ]
    return Table("Decisions", columns, rows)


def _memories(title: str, shown: Sequence[tuple[str, PointDecision]], number: int) -> Table:
    columns = (
        Column("memory"),
        Column("importance", "number", 1),
        Column("decision"),
        Column("reason"),
        Column("from"),
    )
    rows = [
        (
            wording.shorten(one.text or one.point.text, 300),
            one.point.importance,
            one.action,
            wording.shorten(one.reason, 200),
            _place(dialogue, one),
        )
        for dialogue, one in shown
    ]
    left = number - len(shown)
    note = f"{left:,} more: -o FILE.jsonl writes all of them." if left > 0 else ""
    return Table(title, columns, rows, note=note)


def _place(dialogue: str, one: PointDecision) -> str:
    turn = "" if one.point.turn is None else f", turn {one.point.turn}"
    return f"{wording.shorten(dialogue, 40)}{turn} ({one.point.author or 'nobody'})"


def _diff(dialogue: str, one: PointDecision) -> Diff:
    title = f"{one.action}: {wording.shorten(one.reason, 100)} ({_place(dialogue, one)})"
    return Diff(title, "\n".join(one.before), one.text)


def flatten(record: DialogueRecord) -> Iterator[Mapping[str, Any]]:
    """A row for each point; one for a dialogue that failed."""
    if record.created is None:
        yield {"dialogue": record.id, "failure": record.failure and record.failure.reason}
        return
    for one in record.created.decisions:
        point = one.point
        yield {
            "dialogue": record.id,
            "turn": point.turn,
            "author": point.author,
            "point": point.text,
            "action": one.action,
            "reason": one.reason,
            "by": one.by,
            "text": one.text,
            "before": list(one.before),
            "id": one.id,
            "importance": point.importance,
            "trust": point.trust,
            "since": point.since,
            "entities": list(point.entities),
            "near": [asdict(near) for near in one.near],
        }
