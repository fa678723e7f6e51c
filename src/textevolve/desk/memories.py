"""Access to the memories of a namespace outside a study. It combines the store with the embedders
(embedding models), which are opened when the first text is embedded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from textevolve.agents.chat import CHAT_SOURCE, learned_messages
from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError, NotFoundError
from textevolve.events import Listener, silence
from textevolve.json_texts import is_sequence
from textevolve.ledger import log
from textevolve.llm.embeddings import embed_texts
from textevolve.llm.model import Model
from textevolve.memory.audit import AuditFinding
from textevolve.memory.cue import Memory
from textevolve.memory.ranking import MemoryModels
from textevolve.memory.recall import Recalled
from textevolve.memory.record import (
    Collection,
    Entity,
    MemoryRecord,
    MemorySpec,
    Vector,
    memory_data,
    write_time,
)
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.rows import STANDARD_INPUT, Placed, Row, read_rows
from textevolve.rows.columns import CHATS
from textevolve.runs.stored import open_standing_run
from textevolve.settings import Settings, StoreLocation, today
from textevolve.store.memories import StoredMemories
from textevolve.store.repository import Store
from textevolve.store.tables import ERASED
from textevolve.store.upkeep import erase_texts, scrub_store
from textevolve.wiring import Limits, Setting, Workbench, choose_model

EMBEDDED_AT_ONCE = 32  # the number of texts that are embedded concurrently


FEWEST_WORDS = 4
"""The words from which the text of a message is erased everywhere: a shorter one, such as Yes, is
also a part of texts that have nothing to do with it."""


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """The message of a stored chat from which a memory was made. `position`: its number in the
    chat, from 1; None if it is not known."""

    session: str
    position: int | None = None
    text: str = ""

    def erasing_command(self, namespace: str | None) -> str:
        """Return the command that erases the message; the whole chat if its number is not known."""
        command = f"textevolve agents sessions delete {self.session}"
        command += f" --message {self.position}" if self.position else ""
        return command + (f" --namespace {namespace}" if namespace else "")


@dataclass
class MemoryDesk:
    """The memories of a namespace, and the models that embed texts for them.

    Attributes:
        resources: The store of memories.
        stack: Closes the models at the end.
        source: The caller, such as the command line.
        limits: The limits of the model calls.
        opened: The workbench (the open models); None until it is needed, unless the caller has
            opened one.
    """

    settings: Settings
    namespace: str
    resources: Store
    stack: AsyncExitStack
    source: str
    limits: Limits = Limits()
    listener: Listener = silence
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: Workbench | None = None

    @property
    def memories(self) -> StoredMemories:
        return self.resources.memories(self.namespace)

    async def bench(self, embedder: str) -> Workbench:
        """Return the workbench, whose model calls are stored as a run; the first call opens it.
        `embedder`: the first model.

        Raises:
            StoreError: the store of runs cannot be used.
        """
        async with self._lock:
            if self.opened is None:
                day = today()
                spec = {"namespace": self.namespace, "model": embedder, "today": day}
                opened = open_standing_run(
                    "memory",
                    spec,
                    Setting(embedder, (embedder,), day),
                    self.settings,
                    source=self.source,
                    limits=self.limits,
                    listener=self.listener,
                )
                self.opened = await self.stack.enter_async_context(opened)

            return self.opened

    @cached_property
    def embed(self) -> MemoryModels:
        """Return the models that find memories, which are opened with the first text."""

        async def model_of(name: str) -> Model:
            return (await self.bench(name)).model_of(name)

        return MemoryModels(model_of, self.settings.memory.rerank)

    async def embed_all(self, collection: Collection, texts: Sequence[str]) -> list[Vector]:
        """Embed several texts; return the vectors in their order."""
        embed = self.embed
        work = [lambda text=text: embed(collection, text) for text in texts]
        return await gather_bounded(work, EMBEDDED_AT_ONCE)

    @asynccontextmanager
    async def erasing(self, texts: Sequence[str]) -> AsyncGenerator[None]:
        """Erase texts from the journal and from everything derived from it; the caller deletes
        their memories within the block. Afterwards no page of a store's file contains them.

        Raises:
            StoreError: a store cannot be written.
        """
        if texts:
            await self._visit_stores(partial(erase_texts, texts=texts))
        yield
        if texts:
            await self._visit_stores(scrub_store)

    async def _visit_stores(self, visit: Callable[[StoreLocation], None]) -> None:
        """Call a function with the store of runs, if it exists, and with the store of memories."""
        for location in dict.fromkeys((self.settings.store, self.settings.memory_location)):
            if not isinstance(location, Path) or location.expanduser().is_file():
                await asyncio.to_thread(visit, location)

    async def find_sources(self, memories: Iterable[MemoryRecord]) -> list[SourceMessage]:
        """Return the messages of stored chats from which memories were made, without erased and
        deleted ones."""
        sessions = self.resources.sessions(self.namespace)
        turns: dict[str, set[int | None]] = {}
        for memory in memories:
            source = memory.origin.source
            if source.startswith(f"{CHAT_SOURCE}se_"):
                turns.setdefault(source.removeprefix(CHAT_SOURCE), set()).add(memory.origin.turn)

        found: list[SourceMessage] = []
        for session, numbers in turns.items():
            with suppress(NotFoundError):  # the chat may be deleted
                messages = await asyncio.to_thread(sessions.messages, session)
                learned = dict(enumerate(learned_messages(messages), 1))
                for number in numbers:
                    message = None if number is None else learned.get(number)
                    if message is None:
                        found.append(SourceMessage(session))
                    elif message.text != ERASED:
                        found.append(SourceMessage(session, message.position, message.text))

        return found

    async def erase_messages(self, messages: Iterable[SourceMessage]) -> None:
        """Erase messages of chats; a text of several words is also erased wherever else the store
        has it."""
        sessions = self.resources.sessions(self.namespace)
        texts: list[str] = []
        places: list[tuple[str, int]] = []
        for message in messages:
            if message.position is not None:
                places.append((message.session, message.position))
            if len(message.text.split()) >= FEWEST_WORDS:
                texts.append(message.text)

        async with self.erasing(texts):
            for session, position in places:
                await asyncio.to_thread(sessions.erase, session, position)
        if places and not texts:
            await self._visit_stores(scrub_store)

    async def settle(self, embedder: str | None, dimension: int | None) -> tuple[str, int]:
        """Return the full name of an embedder, and the dimension of its embeddings. `embedder`:
        None means the settings' own. `dimension`: None means that it is measured by a call.

        Raises:
            SettingsError: there is no such model. ModelError: it returns no embedding.
        """
        requested_model = embedder or self.settings.embedder
        model, _ = await choose_model(self.settings, requested_model, asks=dimension is None)
        if dimension is None:
            bench = await self.bench(model)
            (vector,) = await embed_texts(bench.model_of(model), ["dimension"])
            dimension = len(vector)

        return model, dimension


# Files of memories, and reports on them: reads memories as rows (files exported by this package,
# or tables with a text in each row), and draws reports.
#
# Documents and chat logs become memories by studies of their own, which the error messages name.

TEXTS = ("text", "source", "author", "created", "valid_from", "valid_to", "reason", "id")
"""The columns of tables that are always read as text, never as JSON."""
KEPT = (
    "id",
    "collection",
    "last_used",
    "times_used",
    "supersedes",
    "superseded_by",
    "superseded_at",
    "added",
    "closed",
    "forgotten",
)
"""The fields of an exported memory that describe its place in its former collection, and are not
imported. Memories that were closed there are skipped."""


def read_memory_rows(path: str) -> Iterator[MemorySpec]:
    """Read the memories of a file of rows, such as {"text": "...", "importance": 0.7}, without
    those that were closed (superseded or forgotten) where they were exported; `-` reads JSON lines
    from standard input.

    Raises:
        InputError: it cannot be read, or a row is no memory; names the place.
    """
    closed = 0
    for where, row in _rows(path):
        if row.get("closed"):
            closed += 1
        else:
            yield read_memory(where, row)

    if closed:
        log.warning(
            "%s: %s left out, which were superseded or forgotten where they are from",
            path,
            wording.count(closed, "memory"),
        )


def read_memory(where: str, row: Row) -> MemorySpec:
    """Read one row as a memory.

    Raises:
        InputError: it is no memory; names the place.
    """
    if any(name in row for name in CHATS):
        raise InputError(
            f"{where}: is a chat, not a memory; create memories from it with: textevolve memories"
            " create"
        )

    if "text" not in row:
        raise InputError(
            f"{where}: a memory needs its words in a field 'text'; there are: {', '.join(row)}"
        )

    fields = {name: value for name, value in row.items() if name not in KEPT and value is not None}
    try:
        return MemorySpec(**fields)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _rows(path: str) -> Iterator[Placed]:
    ending = Path(path).suffix.lower()
    if path != STANDARD_INPUT and ending in (".txt", ".md", ".html", ".pdf", ".docx", ".rst"):
        raise InputError(
            f"{path}: is a document, not a file of memories; read it with: textevolve memories read"
        )

    for where, row in read_rows(path, "memory", lambda column: column in TEXTS):
        yield where, {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    """Parse a cell of a table: columns with lists hold JSON."""
    lists = name in ("entities", "relations", "cites")
    if lists and isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value


SHOWN = 1000
"""The number of characters of a memory that a list shows."""


def draw_recalled(recalled: Recalled) -> Report:
    """Draw recalled memories, each with its score and the components of the score."""
    texts = [
        (
            f"{wording.number(memory.score)}  {_describe_parts(memory)}"
            f"\n{memory.id}  {memory.source}",
            wording.clip(memory.text, SHOWN),
        )
        for memory in recalled.memories
    ]
    counts = {
        "below the minimum score": recalled.below,
        "beyond the limit": recalled.over_limit,
        "beyond the budget": recalled.over_budget,
    }
    parts = [f"{len(texts)} of {recalled.considered} found"]
    left_out = ", ".join(f"{number} {reason}" for reason, number in counts.items() if number)
    if left_out:
        parts.append(left_out)

    return Report("", "; ".join(parts), [Texts("", texts)] if texts else [])


def _describe_parts(memory: Memory) -> str:
    parts = dict(memory.parts)
    if memory.similarity is not None:
        parts["similarity"] = memory.similarity
    return ", ".join(f"{name} {wording.number(value)}" for name, value in parts.items())


def draw_memories(collection: str, memories: Sequence[MemoryRecord], all_of_them: int) -> Report:
    texts = [(_head(memory), wording.clip(memory.text, SHOWN)) for memory in memories]
    sentence = f"{len(memories):,} memories of {collection}"

    hidden = all_of_them - len(memories)
    if hidden:
        sentence += f"; {hidden:,} earlier ones are shown with --limit or --json"

    return Report("", sentence, [Texts("", texts)] if texts else [])


def draw_memory(memory: MemoryRecord) -> Report:
    """Draw a memory with all its fields."""
    facts = {
        name.replace("_", " "): _format_value(value)
        for name, value in memory_data(memory).items()
        if name != "text" and value not in (None, "", (), [], False)
    }
    return Report("", "", [Texts("", [(memory.id, memory.text)])], facts)


def draw_graph(collection: str, entities: Sequence[Entity]) -> Report:
    """Draw the entities that a collection's memories mention: a row for each, with up to five of
    the entities that are mentioned together with it."""
    columns = ["entity", Column("memories", "count"), "mentioned together with"]
    rows: list[tuple[str, int, str]] = []
    for entity in entities:
        neighbours = islice(entity.neighbours.items(), 5)
        listing = ", ".join(f"{name} ({count})" for name, count in neighbours)
        rows.append((entity.name, len(entity.memories), listing))

    return Report(
        "",
        f"{len(rows):,} entities in the memories of {collection}",
        [Table("", columns, rows)] if rows else [],
    )


def draw_mentions(entity: Entity, memories: Sequence[MemoryRecord]) -> Report:
    """Draw the memories that mention an entity, with date, source and all their entities."""
    texts = [
        (
            f"{memory.id}  {write_time(memory.valid_from or memory.created)[:10]}"
            f"  {memory.origin.source}\n{', '.join(memory.entities)}",
            wording.clip(memory.text, SHOWN),
        )
        for memory in memories
    ]

    return Report("", f"{len(texts):,} of the memories mention {entity.name}", [Texts("", texts)])


def draw_findings(collection: str, findings: Sequence[AuditFinding]) -> Report:
    """Draw the memories that an audit found, and the command that forgets what nothing is lost
    by."""
    rows: list[tuple[str, str, str, str]] = []
    for finding in findings:
        memory = finding.memory
        other = finding.other
        beside = f"{other.id}  {wording.clip(other.text, SHOWN)}" if other else ""
        rows.append((memory.id, finding.reason, wording.clip(memory.text, SHOWN), beside))

    # A memory may have several findings, and is forgotten once.
    forgettable = dict.fromkeys(finding.memory.id for finding in findings if finding.forget)
    note = f"textevolve memories forget {' '.join(forgettable)}" if forgettable else ""
    table = Table("", ["id", "reason", "memory", "beside"], rows, note=note)
    sentence = f"{wording.count(len(rows), 'finding')} in the memories of {collection}"

    return Report("", sentence, [table] if rows else [])


def _head(memory: MemoryRecord) -> str:
    """Return the title of a memory: its id, date and importance, and whether it is forgotten or
    superseded."""
    head = f"{memory.id}  {write_time(memory.created)[:10]}  importance {memory.importance:.2f}"
    if memory.forgotten:
        return f"{head}  forgotten"
    return f"{head}  superseded" if memory.closed is not None else head


def _format_value(value: Any) -> str:
    if is_sequence(value):
        return "; ".join(map(_format_value, value))
    return str(value)
