"""Create memories: dialogues are read one after the other, and a collection learns from them.

How points are found and decided is in `textevolve.memory.creation`. Points are looked for in
several dialogues at once, but decided in their order, since each dialogue may change what the next
is compared with. Versions of the collection are not a part of the run's identity, for the run makes
them: each dialogue is decided upon the version that it finds, which the store keeps with its key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from textevolve.engine.local import stream
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import Case, Failure, Usage, attempt, empty_default
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.creation import (
    CreatedMemories,
    Start,
    find_start,
    keep_points,
    prompts_version,
    read_decisions,
)
from textevolve.memory.extraction import CreationSettings, DialoguePoint, extract_points
from textevolve.memory.reconciliation import Action, Ground, PointDecision
from textevolve.memory.record import ChangeSource
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Note, Report, Table
from textevolve.settings import Settings
from textevolve.spec import option
from textevolve.store import Store
from textevolve.studies.dialogue_rows import (
    GivenDialogue,
    dialogue_of,
    read_dialogues,
    take_dialogues,
)
from textevolve.studies.memory_work import find_collection, memories_of
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_decoder, row_of
from textevolve.wiring import Workbench


class CreateMemoriesSpec(CreationSettings, StudySpec):
    """Make memories of dialogues, and keep them in a collection.

    Facts that last are taken from each dialogue and held against what is known: they are added,
    merged into a memory, put in the place of one, or dropped, with a reason. The same dialogue
    twice adds nothing; of one that has gone on, only the new turns are read.
    """

    kind: ClassVar[str] = "create-memories"

    data: str = option(
        description="Dialogues: a file or folder of chats as JSON lines, JSON, CSV or Parquet, each"
        " with its messages; - is standard input.",
        argument=True,
        identity=False,
        reads=True,
        min_length=1,
    )
    collection: str = option(
        description="The collection that keeps the memories, as NAME or NAMESPACE/NAME.",
        short="-c",
        group="Memories",
        min_length=1,
    )


def ask(_spec: CreateMemoriesSpec) -> Asks:
    return Asks(writes=True, prompts=prompts_version())


async def describe(
    spec: CreateMemoriesSpec, settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    """The collection itself: another one of the same name is another run."""
    with closing(Store(settings.memory_location)) as resources:
        found = await find_collection(resources, spec.collection, settings.namespace)
    return {"collection": found.id, "name": found.full_name, "embedder": found.embedder}


def read_cases(spec: CreateMemoriesSpec) -> Iterator[Case]:
    return (one.as_case() for one in read_dialogues(spec.data))


@dataclass(frozen=True, slots=True)
class _Read:
    """A dialogue with its points, or why there are none."""

    position: int
    dialogue: GivenDialogue
    start: Start
    points: tuple[DialoguePoint, ...] | Failure
    usage: Usage = Usage()


@dataclass
class _Work:
    """Reads dialogues and keeps what they give."""

    spec: CreateMemoriesSpec
    bench: Workbench
    ground: Ground

    async def read(self, placed: tuple[int, Case]) -> _Read:
        position, case = placed
        dialogue = dialogue_of(case)
        ground = self._about(dialogue)
        start = await find_start(ground, dialogue.turns, ChangeSource("", case.id))
        if not dialogue.turns or start.applied is not None:
            return _Read(position, dialogue, start, ())
        if self.bench.mode == "replay":
            return _Read(position, dialogue, start, Failure("skipped", "not taken in yet"))
        if self.bench.seconds_left == 0:
            return _Read(position, dialogue, start, Failure("skipped", "the time limit is reached"))
        meter, at_once = UsageMeter(ground.model), self.bench.calls_per_case
        points = await attempt(
            extract_points(meter, dialogue.turns, ground.settings, start.done_turns, at_once)
        )
        return _Read(position, dialogue, start, points, meter.usage)

    async def keep(self, read: _Read) -> DialogueRecord:
        """The record of a dialogue; all its changes are made here, or none."""
        dialogue, turns = read.dialogue, len(read.dialogue.turns)
        created: CreatedMemories | Failure = CreatedMemories(())
        meter = UsageMeter(self.ground.model)
        if turns:
            keeping = self._keep(replace(self._about(dialogue), model=meter), read)
            created = await attempt(keeping, ConflictError, InputError)
        failed = isinstance(created, Failure)
        return DialogueRecord(
            dialogue.id,
            read.position,
            turns,
            None if failed else created,
            created if failed else None,
            read.usage + meter.usage,
        )

    async def _keep(self, ground: Ground, read: _Read) -> CreatedMemories | Failure:
        source, turns = ChangeSource("", read.dialogue.id), read.dialogue.turns
        points, start = read.points, read.start
        if isinstance(points, Failure):
            return points
        now = await find_start(ground, turns, source)
        if now.applied is not None:  # before this run, or by the same dialogue before this one
            return await read_decisions(ground, now.applied)
        if now.done_turns != start.done_turns:  # its beginning stood before this one
            points = await extract_points(ground.model, turns, ground.settings, now.done_turns)
        return await keep_points(ground, points, now, source, write=self.bench.mode == "live")

    def _about(self, dialogue: GivenDialogue) -> Ground:
        """With the settings for this dialogue: whose it is may stand beside it."""
        about = self.spec.about or dialogue.user
        return replace(self.ground, settings=self.spec.model_copy(update={"about": about}))


async def run(
    spec: CreateMemoriesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[DialogueRecord]:
    store, name = memories_of(bench, spec.collection)
    ground = Ground(store, bench.embed, bench.model, await store.collection(name), spec)
    work = _Work(spec, bench, ground)
    found = stream(enumerate(cases, 1), work.read, bench.concurrency, ahead=2)
    async with aclosing(found) as readings:
        async for read in readings:
            yield await work.keep(read)


def find_row(record: DialogueRecord) -> Row:
    return row_of(record.id, record.position, record.failure, record.id)


def data(spec: CreateMemoriesSpec, found: Creation) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "dialogues": found.dialogues,
        "decisions": dict(found.actions),
        "decided_by": dict(found.deciders),
        "memories": found.memories,
        "usage": asdict(found.usage),
        "failures": [{"reason": why, "number": n} for why, n in found.failures.most_common()],
    }


ACTIONS: Mapping[Action, str] = {
    "add": "added",
    "merge": "merged into a memory",
    "update": "in the place of a memory",
    "drop": "dropped",
}
SHOWN = 200
"""Decisions that a report lists; an export has all."""
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


@dataclass
class Creation:
    """What became of all dialogues. `dialogues`: how many there were, by what became of them.
    `memories`: how many were kept. `shown`: the first decisions, each with the id of its dialogue.
    """

    dialogues: Counter[str] = empty_default(Counter)
    actions: Counter[Action] = empty_default(Counter)
    deciders: Counter[str] = empty_default(Counter)
    memories: int = 0
    usage: Usage = Usage()
    failures: Counter[str] = empty_default(Counter)
    shown: list[tuple[str, PointDecision]] = empty_default(list)


def summarise(_spec: CreateMemoriesSpec, records: Iterable[DialogueRecord]) -> Creation:
    total = Creation()
    for record in records:
        total.usage += record.usage
        total.dialogues[_fate(record)] += 1
        if record.failure is not None:
            total.failures[record.failure.reason] += 1
        decisions = record.created.decisions if record.created is not None else ()
        total.memories += len({one.id for one in decisions if one.id})
        total.actions.update(one.action for one in decisions)
        total.deciders.update(one.by for one in decisions)
        total.shown += [(record.id, one) for one in decisions[: SHOWN - len(total.shown)]]
    return total


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
    return {"Dialogues": f"{spec.data}: {told or 'none'}"}


def _blocks(found: Creation) -> Iterator[Block]:
    if found.shown:
        names = ("memory", "importance", "decision", "reason", "from")
        rows = [
            (
                wording.shorten(one.text or one.point.text, 300),
                one.point.importance,
                one.action,
                wording.shorten(one.reason, 200),
                _place(dialogue, one),
            )
            for dialogue, one in found.shown
        ]
        left = sum(found.actions.values()) - len(rows)
        note = f"{left:,} more: -o FILE.jsonl writes all of them." if left else ""
        columns = [Column(n, "number", 1) if n == "importance" else Column(n) for n in names]
        yield Table("Decisions", columns, rows, note=note)
    if found.failures:
        reasons = found.failures.most_common(REASONS_SHOWN)
        rows = [(number, wording.shorten(reason, 300)) for reason, number in reasons]
        columns = (Column("dialogues", "count"), Column("reason"))
        note = "Nothing of them was kept; the same command again reads them."
        yield Table("Why dialogues gave nothing", columns, rows, note=note)
    if found.deciders["fallback"]:
        number = wording.count(found.deciders["fallback"], "point")
        yield Note(f"{number} added as they are, since no usable decision came.", "warning")


def _place(dialogue: str, one: PointDecision) -> str:
    turn = "" if one.point.turn is None else f", turn {one.point.turn}"
    return f"{wording.shorten(dialogue, 40)}{turn} ({one.point.author or 'nobody'})"


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


STUDY = Study(
    spec=CreateMemoriesSpec,
    cases=read_cases,
    take=lambda _spec, given, _objects: (one.as_case() for one in take_dialogues(given)),
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(DialogueRecord),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    describe=describe,
)
