"""Reading documents: what becomes of each chunk beside what is known of its document already.

A chunk is one semantic memory, in the document's words or retold from a role's point of view. How a
document is taken apart is in `chunks.py`; how files are read is the business of `studies`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.errors import AnswerError
from textevolve.llm.fence import draw_nonce, fence, sanitize
from textevolve.llm.model import Model
from textevolve.llm.template import Template
from textevolve.llm.token_count import count_tokens
from textevolve.memory.chunks import LEAST_TOKENS, Chunk
from textevolve.memory.record import (
    Add,
    Change,
    Forget,
    MemoryRecord,
    NewMemory,
    Origin,
    Supersede,
    Vector,
)
from textevolve.memory.shown import ask_once, memory_prompt
from textevolve.spec import Frozen, option

ORIGINAL = "the document's own words: "
"""What the reason of a retold chunk begins with; the words follow, so that they are never lost."""


class ReadingPlan(Frozen):
    """How documents become memories."""

    chunk_tokens: int = option(
        256,
        "The most tokens of a chunk; a token is taken for 4 characters.",
        ge=LEAST_TOKENS,
        le=8000,
    )
    trust: float = option(
        0.7,
        "How far the documents are believed, from 0 to 1; recall can leave out what is trusted"
        " less than it wants.",
        ge=0,
        le=1,
    )
    importance: float = option(0.5, "The importance of each chunk, from 0 to 1.", ge=0, le=1)
    seed: int = option(0, "Seed of what is retold.")


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """A memory that came from a document. `role`: as whom it is told, empty where in the document's
    words. `digest`: of the document's words."""

    id: str
    source: str
    role: str
    digest: str


ChunkAction: TypeAlias = Literal["add", "keep", "replace", "close"]


@dataclass(frozen=True, slots=True)
class ChunkStep:
    """What becomes of a chunk, or of a memory whose chunk is gone (`close`)."""

    action: ChunkAction
    chunk: Chunk | None = None
    memory: str = ""


@dataclass(frozen=True, slots=True)
class ToldChunk:
    """A chunk's text as it is remembered. `failure`: why it is in the document's words though a
    role was wanted."""

    text: str
    role: str = ""
    failure: str = ""


def kept_chunk(record: MemoryRecord) -> KeptChunk:
    told = record.reason.startswith(ORIGINAL)
    words = record.reason.removeprefix(ORIGINAL) if told else record.text
    return KeptChunk(record.id, record.origin.source, record.origin.author, digest(words))


def digest(text: str) -> str:
    """A hash of a chunk's words, whatever white space is around them."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def align_chunks(
    kept: Sequence[KeptChunk], chunks: Iterable[Chunk], document: str, role: str = ""
) -> list[ChunkStep]:
    """What becomes of each chunk, in their order, and then of memories whose chunks are gone.

    A chunk with the same words under the same headings stays as it is. Of the others one takes the
    place of the memory with its words (a heading was renamed), else of one under its headings.
    """
    new = list(chunks)
    steps: dict[int, ChunkStep] = {}
    left = list(kept)

    def pair(
        action: ChunkAction,
        old: Callable[[KeptChunk], Hashable],
        fresh: Callable[[Chunk], Hashable],
    ) -> None:
        waiting = defaultdict[Hashable, deque[KeptChunk]](deque)
        for one in left:
            waiting[old(one)].append(one)
        for place, chunk in enumerate(new):
            if place not in steps and (found := waiting[fresh(chunk)]):
                steps[place] = ChunkStep(action, chunk, found.popleft().id)
        taken = {step.memory for step in steps.values()}
        left[:] = [one for one in left if one.id not in taken]

    digests = {chunk.position: digest(chunk.text) for chunk in new}
    pair(
        "keep",
        lambda one: (one.source, one.role, one.digest),
        lambda chunk: (chunk.source_in(document), role, digests[chunk.position]),
    )
    pair("replace", lambda one: one.digest, lambda chunk: digests[chunk.position])
    pair("replace", lambda one: one.source, lambda chunk: chunk.source_in(document))
    placed = [steps.get(place, ChunkStep("add", chunk)) for place, chunk in enumerate(new)]
    return [*placed, *(ChunkStep("close", memory=one.id) for one in left)]


def change_chunks(
    steps: Sequence[ChunkStep],
    told: Sequence[ToldChunk],
    vectors: Sequence[Vector],
    document: str,
    plan: ReadingPlan,
) -> list[Change]:
    """The changes of a collection; `told` and `vectors` are those of the chunks that are added or
    take another's place, in their order."""
    changes = list[Change]()
    made = iter(zip(told, vectors, strict=True))
    for step in steps:
        if step.action == "close":
            changes.append(Forget(step.memory))
        elif step.chunk is not None and step.action != "keep":
            text, vector = next(made)
            memory = _make_memory(step.chunk, text, vector, document, plan)
            new = step.action == "add"
            changes.append(Add(memory) if new else Supersede((step.memory,), memory))
    return changes


def _make_memory(
    chunk: Chunk, told: ToldChunk, vector: Vector, document: str, plan: ReadingPlan
) -> NewMemory:
    return NewMemory(
        text=told.text,
        embedding=vector,
        importance=plan.importance,
        kind="semantic",
        origin=Origin(chunk.source_in(document), chunk.position, told.role, plan.trust),
        reason=ORIGINAL + chunk.text.strip() if told.role else "",
    )


def changed_chunks(steps: Iterable[ChunkStep]) -> Iterator[Chunk]:
    """The chunks that are new or changed."""
    for step in steps:
        if step.chunk is not None and step.action != "keep":
            yield step.chunk


def transition_key(
    document: str, steps: Sequence[ChunkStep], role: str, plan: ReadingPlan, version: int
) -> str:
    """What a change of a collection is known by: from which memories of a document, in this version
    of the collection, to which chunks. Whoever makes the same change once more, in another process,
    changes nothing."""
    own = (version, document, role, plan.chunk_tokens, plan.trust, plan.importance, plan.seed)
    made = hashlib.sha256(repr(own).encode())
    for step in steps:
        words = "" if step.chunk is None else digest(step.chunk.text) + str(step.chunk.headings)
        made.update(f"\n{step.action}\0{step.memory}\0{words}".encode())
    return made.hexdigest()


def voice_prompt() -> Template:
    return memory_prompt("voice", "role", "persona", "source", "passage")


async def voice_chunk(
    model: Model, chunk: Chunk, document: str, role: str, persona: str, seed: int
) -> ToldChunk:
    """A chunk as a role would retell it; in the document's own words where no usable answer came.

    Raises:
        ModelError: the model cannot be asked.
    """
    words = chunk.text.strip()
    nonce = draw_nonce((words, persona), seed)
    prompt = voice_prompt().render(
        role=role,
        persona=fence("persona", sanitize(persona, nonce)[0], nonce) if persona else "",
        source=" ".join(sanitize(chunk.source_in(document), nonce)[0].split()),
        passage=fence("passage", sanitize(words, nonce)[0], nonce),
    )
    most = 2 * count_tokens(words) + 100
    try:
        response = await model(ask_once(prompt, seed, most))
    except AnswerError as error:
        return ToldChunk(words, failure=str(error))
    text = response.text.strip()
    if response.finish_reason == "length":
        return ToldChunk(words, failure="the retold text was cut at the token limit")
    if not text:
        return ToldChunk(words, failure="the retold text is empty")
    if nonce in text or sanitize(text, nonce)[1]:
        return ToldChunk(words, failure="the retold text holds marks of the prompt")
    return ToldChunk(text, role)
