"""Create memories: dialogues are read one after the other, and a collection learns from them.

How points are found and decided is in `textevolve.memory.creation`. Points are looked for in
several dialogues at once, but decided in their order, since each dialogue may change what the next
is compared with. Versions of the collection are not a part of the run's identity, for the run makes
them: each dialogue is decided upon the version that it finds, which the store keeps with its key.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, cast

from textevolve.engine.local import stream
from textevolve.errors import (
    BudgetError,
    ConflictError,
    FatalModelError,
    InputError,
    ModelError,
)
from textevolve.evaluation import Case, Failure, Usage, failure_of
from textevolve.llm.replay import replay_models
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.creation import (
    CreatedMemories,
    Start,
    find_start,
    keep_points,
    prompts_version,
    tell_kept,
)
from textevolve.memory.creation_settings import CreationSettings
from textevolve.memory.extraction import DialoguePoint, extract_points
from textevolve.memory.index import MemoryStore
from textevolve.memory.reconciliation import Ground
from textevolve.memory.record import ChangeSource
from textevolve.settings import Settings
from textevolve.spec import option
from textevolve.store import ResourceStore
from textevolve.studies.create_memories_report import (
    Creation,
    DialogueRecord,
    flatten,
    report,
    summarise_records,
)
from textevolve.studies.dialogue_rows import GivenDialogue, dialogue_of, read_dialogues
from textevolve.studies.memory_work import find_collection, memories_of
from textevolve.studies.rehearsed_memories import RehearsedMemories
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
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
    prompts = {f"memory.{name}": version for name, version in prompts_version().items()}
    return Asks(writes=True, prompts=prompts)


async def describe(
    spec: CreateMemoriesSpec, settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    """The collection itself: another one of the same name is another run."""
    with closing(ResourceStore(settings.memory_location)) as resources:
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
    usage: Usage
    seconds: float


@dataclass
class _Work:
    """Reads dialogues and keeps what they give. `past`: the ground on which only the journal
    answers, for what was taken in before."""

    spec: CreateMemoriesSpec
    bench: Workbench
    ground: Ground
    past: Ground

    async def read(self, placed: tuple[int, Case]) -> _Read:
        position, case = placed
        dialogue, began = dialogue_of(case), time.monotonic()
        ground = self._about(self.ground, dialogue)
        start = await find_start(ground, dialogue.turns, ChangeSource("", case.id))
        if not dialogue.turns:
            return _Read(position, dialogue, start, (), Usage(), 0.0)
        if start.known is None and self.bench.mode == "replay":
            return self._failed(position, dialogue, start, BudgetError("not taken in yet"))
        ground = ground if start.known is None else self._about(self.past, dialogue)
        meter = UsageMeter(ground.model)
        try:
            self._check_time()
            points = await extract_points(
                meter, dialogue.turns, ground.settings, start.first, self.bench.calls_per_case
            )
        except FatalModelError:
            raise
        except (ModelError, BudgetError) as error:
            failed = self._failed(position, dialogue, start, error)
            return replace(failed, usage=meter.usage, seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        return _Read(position, dialogue, start, points, meter.usage, seconds)

    async def keep(self, read: _Read) -> DialogueRecord:
        """The record of a dialogue; all its changes are made here, or none."""
        dialogue, began = read.dialogue, time.monotonic()
        made = DialogueRecord(
            dialogue.id, read.position, len(dialogue.turns), None, None, read.usage, read.seconds
        )
        if not dialogue.turns:
            return replace(made, created=CreatedMemories(()))
        known = read.start.known is not None
        ground = self._about(self.past if known else self.ground, dialogue)
        meter = UsageMeter(ground.model)
        ground = replace(ground, model=meter)
        try:
            created = await self._keep(ground, read)
        except FatalModelError:
            raise
        except (ModelError, BudgetError, ConflictError, InputError) as error:
            made = replace(made, failure=failure_of(error))
        else:
            made = replace(made, created=created)
        seconds = made.seconds + time.monotonic() - began
        return replace(made, usage=made.usage + meter.usage, seconds=seconds)

    async def _keep(self, ground: Ground, read: _Read) -> CreatedMemories:
        source = ChangeSource("", read.dialogue.id)
        points, start = read.points, read.start
        if isinstance(points, Failure):
            if start.known is not None:  # another run took it in, and this one has no answers
                return await tell_kept(ground, start)
            raise (BudgetError if points.kind == "skipped" else ModelError)(points.reason)
        if start.known is None:
            now = await find_start(ground, read.dialogue.turns, source)
            if now.known is not None:  # the same dialogue stood before this one
                return await tell_kept(ground, now)
            if now.first != start.first:  # its beginning did
                start, turns = now, read.dialogue.turns
                points = await extract_points(ground.model, turns, ground.settings, start.first)
        return await keep_points(ground, points, start, source, write=self.bench.mode == "live")

    def _about(self, ground: Ground, dialogue: GivenDialogue) -> Ground:
        """With the settings for this dialogue: whose it is may stand beside it."""
        about = self.spec.about or dialogue.user
        return replace(ground, settings=self.spec.model_copy(update={"about": about}))

    def _failed(
        self, position: int, dialogue: GivenDialogue, start: Start, error: Exception
    ) -> _Read:
        return _Read(position, dialogue, start, failure_of(error), Usage(), 0.0)

    def _check_time(self) -> None:
        if self.bench.seconds_left == 0:
            raise BudgetError("the time limit is reached")


async def run(
    spec: CreateMemoriesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[DialogueRecord]:
    work = await _open(spec, bench)
    found = stream(enumerate(cases, 1), work.read, bench.concurrency, ahead=2)
    async with aclosing(found) as readings:
        async for read in readings:
            yield await work.keep(read)


async def _open(spec: CreateMemoriesSpec, bench: Workbench) -> _Work:
    store: MemoryStore
    store, name = memories_of(bench, spec.collection)
    if bench.mode not in ("live", "replay"):
        store = cast(MemoryStore, RehearsedMemories(store, bench.mode))
    collection = await store.collection(name)
    ground = Ground(store, bench.embed, bench.model, collection, spec)
    kept = replace(bench, mode="replay", model_of=replay_models(bench.journal, dict))
    past = replace(ground, embed=kept.embed, model=kept.model)
    return _Work(spec, bench, ground, past)


def find_row(record: DialogueRecord) -> Row:
    failure = record.failure
    return Row(
        record.id,
        record.position,
        record.id,
        status="scored" if failure is None else failure.kind,
        reason="" if failure is None else failure.reason,
    )


def summarise(_spec: CreateMemoriesSpec, records: Iterable[DialogueRecord]) -> Creation:
    return summarise_records(records)


def data(spec: CreateMemoriesSpec, found: Creation) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "dialogues": found.dialogues,
        "decisions": dict(found.actions),
        "decided_by": dict(found.deciders),
        "memories": found.memories,
        "usage": asdict(found.usage),
        "seconds": found.seconds,
        "failures": [{"reason": why, "number": n} for why, n in found.failures],
    }


encode, decode = json_codec(DialogueRecord)

STUDY = Study(
    spec=CreateMemoriesSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
    describe=describe,
)
