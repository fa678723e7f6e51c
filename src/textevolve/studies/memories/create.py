"""Dialogues to make memories of, from files and folders of chats, data sets of the Hugging Face
hub, standard input, or Python.

A row is a chat (a list of messages under `messages`, `conversation`, `dialogue`, ...), optionally
with an id, a date and a user; or a user with `sessions` (each a chat), as in HaluMem's data; or a
single message, in which case the whole file is one chat. In the store a dialogue is a case, whose
input is the dialogue as JSON.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from textevolve.engine.local import stream
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import Case, Failure, Result, Usage, attempt, empty_default
from textevolve.json_texts import is_array, is_mapping, write_text
from textevolve.llm.meter import Tab, sum_calls
from textevolve.mappings import first_of
from textevolve.memory.creation import (
    Action,
    CreatedMemories,
    Ground,
    PointDecision,
    Start,
    creation_prompts,
    find_start,
    keep_points,
    read_decisions,
)
from textevolve.memory.extraction import MOST_TEXT, CreationSettings, DialoguePoint, extract_points
from textevolve.memory.record import ChangeSource, DialogueTurn, check_times
from textevolve.memory_snapshots import find_collection
from textevolve.messages import list_messages
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Note, Report, Table
from textevolve.rows import find_files, read_rows
from textevolve.rows.chats import ASSISTANT, read_turns, speaker_of
from textevolve.rows.columns import CHATS, Columns, fold_name, list_names
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, row_of
from textevolve.spec import NonEmpty, option
from textevolve.store.repository import Store
from textevolve.studies.memories.base import describe_by, open_changed_collection
from textevolve.wiring import Workbench

# The columns that may hold the messages of a dialogue; the first that exists is used.
CHAT_COLUMNS = (*CHATS, "dialogue", "dialog", "turns")
# The fields that may hold the time of a message or dialogue.
TIMES = ("timestamp", "date", "time", "created_at", "create_time", "start_time", "datetime")
USERS = ("user", "user_name", "username")  # the fields that may hold the user of a dialogue

DialogueLike: TypeAlias = Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A list of messages, or an object that holds one under `messages`."""


@dataclass(frozen=True, slots=True)
class UserDialogue:
    """A dialogue from the user, with its id. `user`: the person who talks with the assistant; empty
    if unknown."""

    id: str
    turns: tuple[DialogueTurn, ...]
    user: str = ""

    def as_case(self) -> Case:
        turns = [[turn.role, turn.content, turn.timestamp] for turn in self.turns]
        content = write_text({"user": self.user, "turns": turns})
        return Case(content, (), self.id)


def dialogue_of(case: Case) -> UserDialogue:
    """Return the dialogue that a case was made from."""
    content = json.loads(case.input)
    return UserDialogue(
        case.id, tuple(DialogueTurn(*turn) for turn in content["turns"]), content["user"]
    )


def read_dialogues(path: str) -> Iterator[UserDialogue]:
    """Read the dialogues of a file, of all files of a folder or a pattern, or of standard input.

    Raises:
        InputError: something cannot be read, or is no dialogue; names file and line.
    """
    seen: set[str] = set()
    unread = Columns()

    for file, name in find_files(path, "dialogue"):
        messages: list[Mapping[str, Any]] = []
        for where, row in read_rows(file, "dialogue", lambda _: False):
            if list_messages([row]) is not None and _find_chat(row) is None:
                messages.append(row)
            else:
                yield from _take_row(row, where, str(len(seen) + 1), seen, unread)

        if messages:
            row = {"id": Path(name).stem, CHATS[0]: messages}
            yield from _take_row(row, name, "", seen, unread)

    unread.leave_out_unread()
    if not seen:
        raise InputError(f"{path}: has no dialogues")


def take_dialogues(dialogues: Iterable[DialogueLike]) -> Iterator[UserDialogue]:
    """Convert Python objects to dialogues, by the same rules as for files; a list of messages is
    one dialogue.

    Raises:
        InputError: an object is no dialogue; names it.
    """
    seen: set[str] = set()
    unread = Columns()
    several = list(dialogues)
    for number, dialogue in enumerate([several] if list_messages(several) else several, 1):
        row = dialogue if isinstance(dialogue, Mapping) else {CHATS[0]: dialogue}
        yield from _take_row(row, f"dialogue {number}", str(number), seen, unread)
    unread.leave_out_unread()


def _take_row(
    row: Mapping[str, Any], where: str, number: str, seen: set[str], unread: Columns
) -> Iterator[UserDialogue]:
    """Yield the dialogue of a row, or the dialogues of its sessions. `where`: the row's place for
    messages; `number`: the id of a row that names none. `seen`: the ids of earlier dialogues, which
    may not be repeated. `unread`: the columns, and fields of messages, that nothing reads."""
    chats = [name for name in row if fold_name(name) in CHAT_COLUMNS]
    unread.note_unread(row, (*OF_DIALOGUES, *chats))
    id = _first(row, ("id", "uuid", "conversation_id")) or number
    user = _first(row, USERS).strip()
    parts: list[tuple[str, Mapping[str, Any]]] = [(id, row)]
    if is_array(sessions := row.get("sessions")):
        parts = [(f"{id}/{place}", session) for place, session in enumerate(sessions, 1)]
    for name, part in parts:
        messages = list_messages(_find_chat(part))
        if messages is None:
            raise InputError(
                f"{where}: is not a dialogue: it needs a list of messages, each with role and"
                f" content, or from and value, in one of the columns {', '.join(CHAT_COLUMNS)};"
                f" saw {list_names(row)}"
            )

        if name in seen:
            raise InputError(f"{where}: the id '{name[:80]}' is there twice")
        seen.add(name)
        time = _read_time(part)
        for message in messages:
            unread.note_unread(message, OF_MESSAGES)
        try:
            turns = check_times([_make_turn(message, time) for message in messages])
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        yield UserDialogue(name, tuple(turns), user)


OF_DIALOGUES = ("id", "uuid", "conversation_id", "sessions", *USERS, *TIMES)
"""The columns of a dialogue besides its messages."""
OF_MESSAGES = (
    *("role", "from", "content", "value", "text", "parts", "type", "name", "id"),
    *("tool_calls", "tool_call_id", "function_call", "refusal", *TIMES),
)
"""The fields of a message that its turn is made of, or that do not matter for memories."""


def _find_chat(row: object) -> object:
    """Return the value of the column that holds a row's messages."""
    if not is_mapping(row):
        return None
    by_name = {fold_name(name): value for name, value in row.items()}
    return first_of(by_name, CHAT_COLUMNS)


def _make_turn(message: Mapping[str, Any], time: str) -> DialogueTurn:
    """Return a message as a turn of the dialogue. `time`: the time of messages that name none."""
    turns = read_turns(message)
    parts = [part for turn in turns for part in (turn.text, *turn.calls)]
    text = "\n".join(filter(str.strip, parts))
    role = str(message.get("role") or message.get("from"))
    return DialogueTurn(role, text, _read_time(message) or time)


def _read_time(part: Mapping[str, Any]) -> str:
    """Return the time of a message or dialogue as a text; "" if it has none. A value that is no
    text, number or date, such as an object, is returned as JSON, which no reader of times takes."""
    value = next((part[name] for name in TIMES if part.get(name) not in (None, "")), "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, str) else json.dumps(value)


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the value of the first of these fields that is not empty, as a text; "" if it is
    neither a text nor a number."""
    value = next((row[name] for name in names if row.get(name)), "")
    return str(value) if isinstance(value, str | int | float) else ""


# The study that makes memories of dialogues and stores them in a collection.
#
# `textevolve.memory.creation` extracts points (facts worth remembering) from a dialogue, and
# decides for each whether to add it, merge it with a memory, replace one, or drop it. Points are
# extracted from several dialogues concurrently, but decided in order, since each dialogue may
# change the memories that the next is compared with. A dialogue is compared with the current
# version of the collection. Since the run itself makes new versions, they are not part of its
# identity; the store records which change came from which dialogue.


class CreateMemoriesSpec(CreationSettings, StudySpec):
    """Make memories of dialogues, and store them in a collection.

    Lasting facts are extracted from each dialogue and compared with known memories: they are added,
    merged into a memory, replace one, or are dropped, with a reason. The same dialogue twice adds
    nothing; in a continued dialogue only the new turns are read.
    """

    kind: ClassVar[str] = "create-memories"
    scored: ClassVar[bool] = False

    data: NonEmpty = option(
        description="Dialogues: a file or folder of chats as JSON lines, JSON, CSV or Parquet, each"
        " with its messages; - is standard input.",
        argument=True,
        identity=False,
        reads=True,
    )
    collection: NonEmpty = option(
        description="The collection that the memories are stored in, as NAME or NAMESPACE/NAME.",
        short="-c",
        group="Memories",
    )


def ask(_spec: CreateMemoriesSpec) -> Asks:
    return Asks(writes=True, prompts=creation_prompts())


def pin(spec: CreateMemoriesSpec, resources: Store, namespace: str) -> Mapping[str, Any]:
    """Return the id of the collection, so that another collection of the same name makes another
    run."""
    collection = find_collection(resources, spec.collection, namespace)
    return {
        "collection": collection.id,
        "name": collection.full_name,
        "embedder": collection.embedder,
    }


def read_cases(spec: CreateMemoriesSpec) -> Iterator[Case]:
    return (dialogue.as_case() for dialogue in read_dialogues(spec.data))


def make_up_points(turns: Sequence[DialogueTurn], done_turns: int) -> Iterator[DialoguePoint]:
    """Yield points for an estimate of the cost: one for each turn of a person after the first
    `done_turns`, with the turn's words."""
    for number, turn in enumerate(turns, 1):
        speaker = speaker_of(turn.role)
        text = turn.content.strip()[:MOST_TEXT]
        if number > done_turns and text and speaker not in (ASSISTANT, "System"):
            yield DialoguePoint(text, number, speaker, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class _Read:
    """A dialogue with the points extracted from it, or the failure to extract them. `start`: the
    state of the collection with regard to the dialogue, such as the number of turns whose memories
    were made before."""

    position: int
    dialogue: UserDialogue
    start: Start
    points: tuple[DialoguePoint, ...] | Failure = ()
    usage: Usage = Usage()


@dataclass
class _Work:
    """The work of a run: it extracts points from dialogues, and stores them as memories. `ground`:
    the store, collection, models and settings of this work."""

    spec: CreateMemoriesSpec
    bench: Workbench
    ground: Ground

    async def read(self, placed: tuple[int, Case]) -> _Read:
        position, case = placed
        dialogue = dialogue_of(case)
        ground = self._about(dialogue)
        start = await find_start(ground, dialogue.turns, ChangeSource("", case.id))
        reading = _Read(position, dialogue, start)
        if not dialogue.turns or start.applied is not None:
            return reading
        if self.bench.is_replay:
            return replace(reading, points=Failure("skipped", "not read yet"))
        if self.bench.seconds_left == 0:
            return replace(reading, points=Failure("skipped", "the time limit is reached"))

        at_once = self.bench.calls_per_case
        turns = dialogue.turns
        with Tab() as tab:
            points = await attempt(
                extract_points(ground.model, turns, ground.settings, start.done_turns, at_once)
            )

        if self.bench.is_rehearsal and not isinstance(points, Failure):
            # Made-up facts would all be refused, and none be compared.
            points = tuple(make_up_points(turns, start.done_turns))

        return replace(reading, points=points, usage=sum_calls(tab))

    async def keep(self, reading: _Read) -> DialogueRecord:
        """Apply all changes of a dialogue in one transaction, or none, and return its record. A
        replay or an estimate stores nothing."""
        turns = len(reading.dialogue.turns)
        created: CreatedMemories | Failure = CreatedMemories(())
        # Keeping embeds texts by another model than that of the ground, so calls are counted by
        # the block and not by the model.
        with Tab() as tab:
            if turns:
                keeping = self._keep(self._about(reading.dialogue), reading)
                created = await attempt(keeping, ConflictError, InputError)
        failed = isinstance(created, Failure)

        return DialogueRecord(
            reading.dialogue.id,
            reading.position,
            turns,
            None if failed else created,
            created if failed else None,
            reading.usage + sum_calls(tab),
        )

    async def _keep(self, ground: Ground, reading: _Read) -> CreatedMemories | Failure:
        source = ChangeSource("", reading.dialogue.id)
        turns = reading.dialogue.turns
        points = reading.points
        if isinstance(points, Failure):
            return points
        now = await find_start(ground, turns, source)
        if now.applied is not None:  # before this run, or by the same dialogue before this one
            return await read_decisions(ground, now.applied)
        if now.done_turns != reading.start.done_turns:  # its beginning stood before this one
            points = await extract_points(ground.model, turns, ground.settings, now.done_turns)

        return await keep_points(ground, points, now, source, turns)

    def _about(self, dialogue: UserDialogue) -> Ground:
        """Return the store, models and settings for this dialogue. If the specification does not
        name the person whom memories are about, it is the dialogue's user."""
        about = self.spec.about or dialogue.user
        return replace(self.ground, settings=self.spec.model_copy(update={"about": about}))


async def run(
    spec: CreateMemoriesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[DialogueRecord]:
    target = open_changed_collection(bench, spec.collection)
    work = _Work(spec, bench, await target.ground(bench.model, spec))
    source = stream(enumerate(cases, 1), work.read, bench.concurrency, ahead=2)
    async with aclosing(source) as readings:
        async for reading in readings:
            yield await work.keep(reading)


def find_row(record: DialogueRecord) -> Row:
    return row_of(record.id, record.position, record.failure, record.id)


def data(spec: CreateMemoriesSpec, creation: Creation) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "dialogues": creation.dialogues,
        "decisions": dict(creation.actions),
        "decided_by": dict(creation.deciders),
        "memories": creation.memories,
        "usage": asdict(creation.usage),
        "failures": [
            {"reason": reason, "number": n} for reason, n in creation.failures.most_common()
        ],
    }


# The words for each decision on a point in reports.
ACTIONS: Mapping[Action, str] = {
    "add": "added",
    "merge": "merged into a memory",
    "update": "replacing a memory",
    "drop": "dropped",
}
SHOWN = 200
"""The number of decisions in a report; an export contains all."""
REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DialogueRecord:
    """The result of one dialogue: the `created` memories, or the `failure` that prevented them.
    `turns`: its number of messages."""

    id: str
    position: int
    turns: int
    created: CreatedMemories | None
    failure: Failure | None
    usage: Usage


@dataclass
class Creation(Result):
    """The result of all dialogues.

    Attributes:
        dialogues: The number of dialogues by outcome.
        actions: The number of decisions by action, such as `add` or `drop`.
        deciders: The number of decisions by who decided, such as the model or a rule.
        memories: The number of stored memories.
        failures: The number of failed dialogues by reason.
        decisions: The first 200 decisions, each with the id of its dialogue.
    """

    dialogues: Counter[str] = empty_default(Counter)
    actions: Counter[Action] = empty_default(Counter)
    deciders: Counter[str] = empty_default(Counter)
    memories: int = 0
    usage: Usage = Usage()
    failures: Counter[str] = empty_default(Counter)
    decisions: list[tuple[str, PointDecision]] = empty_default(list)


def summarise(_spec: CreateMemoriesSpec, records: Iterable[DialogueRecord]) -> Creation:
    total = Creation()
    for record in records:
        total.usage += record.usage
        total.dialogues[_fate(record)] += 1
        if record.failure is not None:
            total.failures[record.failure.reason] += 1
        decisions = record.created.decisions if record.created is not None else ()
        total.memories += len({decision.id for decision in decisions if decision.id})
        total.actions.update(decision.action for decision in decisions)
        total.deciders.update(decision.by for decision in decisions)
        total.decisions += [
            (record.id, decision) for decision in decisions[: SHOWN - len(total.decisions)]
        ]

    return total


def _fate(record: DialogueRecord) -> str:
    if record.failure is not None:
        return record.failure.kind
    applied = record.created.applied if record.created is not None else None
    return "taken in before" if applied is not None and applied.repeated else "read"


def report(spec: CreateMemoriesSpec, creation: Creation) -> Report:
    return Report(
        f"Memories for {spec.collection}",
        _sentence(creation),
        _blocks(creation),
        _facts(spec, creation),
    )


def _sentence(creation: Creation) -> str:
    points = sum(creation.actions.values())
    read_count = sum(creation.dialogues.values()) - creation.dialogues.get("skipped", 0)
    opening = (
        f"{wording.count(creation.memories, 'memory')} from"
        f" {wording.count(read_count, 'dialogue')}: of {wording.count(points, 'point')}"
    )
    counted = [f"{creation.actions.get(action, 0):,} {name}" for action, name in ACTIONS.items()]
    missing_count = creation.dialogues.get("failed", 0) + creation.dialogues.get("skipped", 0)
    missing = (
        f" {wording.count(missing_count, 'dialogue')} gave nothing, see below."
        if missing_count
        else ""
    )

    return f"{opening} {', '.join(counted)}.{missing}"


def _facts(spec: CreateMemoriesSpec, creation: Creation) -> dict[str, str]:
    outcomes = ", ".join(f"{number:,} {fate}" for fate, number in creation.dialogues.items())
    return {"Dialogues": f"{spec.data}: {outcomes or 'none'}"}


def _blocks(creation: Creation) -> Iterator[Block]:
    if creation.decisions:
        names = ("memory", "importance", "decision", "reason", "from")
        rows = [
            (
                wording.shorten(decision.text or decision.point.text, 300),
                decision.point.importance,
                decision.action,
                wording.shorten(decision.reason, 200),
                _place(dialogue, decision),
            )
            for dialogue, decision in creation.decisions
        ]
        hidden = sum(creation.actions.values()) - len(rows)
        note = f"{hidden:,} more: -o FILE.jsonl writes all of them." if hidden else ""
        columns = [Column(n, "number", 1) if n == "importance" else n for n in names]
        yield Table("Decisions", columns, rows, note=note)

    if creation.failures:
        reasons = creation.failures.most_common(REASONS_SHOWN)
        rows = [(number, wording.shorten(reason, 300)) for reason, number in reasons]
        columns = (Column("dialogues", "count"), "reason")
        note = "None of their memories were stored; the same command again reads them."
        yield Table("Why dialogues gave nothing", columns, rows, note=note)

    if creation.deciders["fallback"]:
        number = wording.count(creation.deciders["fallback"], "point")
        yield Note(f"{number} added unchanged, since the model made no usable decision.", "warning")


def _place(dialogue: str, decision: PointDecision) -> str:
    turn = "" if decision.point.turn is None else f", turn {decision.point.turn}"
    return f"{wording.shorten(dialogue, 40)}{turn} ({decision.point.author or 'nobody'})"


def flatten(record: DialogueRecord) -> Iterator[Mapping[str, Any]]:
    """Yield a table row for each point of a dialogue, or one row for a failed dialogue."""
    if record.created is None:
        yield {"dialogue": record.id, "failure": record.failure and record.failure.reason}
        return
    for decision in record.created.decisions:
        point = decision.point
        yield {
            "dialogue": record.id,
            "turn": point.turn,
            "author": point.author,
            "point": point.text,
            "action": decision.action,
            "reason": decision.reason,
            "by": decision.by,
            "text": decision.text,
            "before": list(decision.before),
            "id": decision.id,
            "importance": point.importance,
            "trust": point.trust,
            "since": point.since,
            "entities": list(point.entities),
            "near": list(map(asdict, decision.near)),
        }


STUDY = Study(
    spec=CreateMemoriesSpec,
    cases=read_cases,
    take=lambda _spec, rows, _objects: (row.as_case() for row in take_dialogues(rows)),
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(DialogueRecord),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    describe=describe_by(pin),
)
