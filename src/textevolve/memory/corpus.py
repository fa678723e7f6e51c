"""Convert documents into memories, and update the memories of a changed document.

Each chunk of a document becomes one semantic memory, in the document's words or retold by a model
from the point of view of a role. A document is divided by its structure: headings, paragraphs,
sentences, words. `studies` reads the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.errors import AnswerError
from textevolve.llm.model import Model, text_hash, text_request
from textevolve.llm.prompts import CHARACTERS_A_TOKEN, count_tokens, draw_nonce, fenced, sanitize
from textevolve.llm.structured import require_text
from textevolve.memory.integration import memory_prompt
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
from textevolve.spec import Frozen, Share, option
from textevolve.texts.prose import join_lines, split_text

LEAST_TOKENS = 64
"""The least chunk size in tokens that a user can choose."""
LONGEST_TITLE = 120
"""The maximum number of characters of a heading in a path."""
BETWEEN = " > "
"""The separator between the titles of a heading path."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document. `start` and `end`: its position in the text. `level`: 1 for the
    highest."""

    start: int
    end: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, with the white space around it. `headings`: the titles above it, the
    highest first. `position`: the number of the chunk in its document, from 1."""

    text: str
    headings: tuple[str, ...]
    position: int

    def source_in(self, document: str) -> str:
        """Return the document with the path of headings, as memories name their source."""
        return BETWEEN.join((document, *self.headings))


_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_BLOCK = re.compile(
    r"^ {0,3}(?:(~~~+|```+(?=[^`\n]*$)).*\n(?s:.*?)(?:^ {0,3}\1[`~]*[ \t\r]*$|\Z)"
    r"|<!--(?s:.*?)(?:-->|\Z)|<(pre|script|style|textarea)\b(?s:.*?)(?:</\2>|\Z))",
    re.MULTILINE | re.IGNORECASE,
)
"""Code between fences, and HTML with an end of its own, such as a comment."""
_UNDERLINE = re.compile(r" {0,3}(=+|-+)$")
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|<]|[-+*][ \t]|\d{1,9}[.)][ \t]|[-*_]{3})")
"""The beginning of a line that no title begins with: indented code, a quote, a table, a list, HTML
or a rule."""
_FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\r?\n(?=(?:#.*\n)*[\w.-]+[ \t]*[:=])(?s:.*?)\n(?:\1|\.{3})[ \t]*(?:\r?\n|$)"
)
"""The fields in YAML or TOML with which many documents begin. Their comments are no headings, and
their last line underlines nothing."""


def _markdown_headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a document, except in code and comments: lines that begin with heading
    marks, and paragraphs that are underlined with = or -, as in CommonMark (ATX and setext
    headings)."""
    fields = _FRONT_MATTER.match(text)
    at = fields.end() if fields else 0
    # Code and comments become blank lines, so that all others keep their places.
    visible = _BLOCK.sub(lambda block: re.sub(r"[^\r\n]", " ", block[0]), text[at:])
    begun = 0  # where the lines of a paragraph begin, which the next line may underline
    lines: list[str] = []
    is_inside = False  # of a list, a quote or a table, until the next blank line

    for line in visible.splitlines(keepends=True):
        bare = line.rstrip()
        heading = _ATX.match(bare)
        underline = _UNDERLINE.match(bare) if lines else None

        level = 0
        if heading:
            level = len(heading[1])
            lines = [re.sub(r"[ \t]+#+$", "", heading[2] or "")]
            begun = at
        elif underline:
            level = "=-".index(underline[1][0]) + 1

        if level:
            title = join_lines(" ".join(lines))
            yield Heading(begun, at + len(line), level, title[:LONGEST_TITLE])
        if level or not bare:
            lines = []
            is_inside = False
        elif not lines and (is_inside or _NO_PARAGRAPH.match(line)):
            is_inside = True
        else:
            begun = begun if lines else at
            lines.append(bare)

        at += len(line)


def split_document(text: str, format: Literal["text", "markdown"], tokens: int) -> Iterator[Chunk]:
    """Yield chunks of at most `tokens` tokens, but never fewer than 64 (a token is estimated as 4
    characters). They join to the document's text; a document without a word has none.

    A chunk ends at a heading, except that headings without text below them join the next section;
    plain text has no headings. Within a section a chunk has as many whole paragraphs as fit; a
    longer paragraph is divided between the lines of tables, lists and code, then sentences, then
    words (see `split_text`).
    """
    most = max(tokens, LEAST_TOKENS) * CHARACTERS_A_TOKEN
    headings = _markdown_headings(text) if format == "markdown" else ()
    position = 0
    for path, section in _sections(text, headings):
        for piece in _join_blank(split_text(section, most, by_lines=bool(_BLOCK.search(section)))):
            position += 1
            yield Chunk(piece, path, position)


def _sections(text: str, headings: Iterable[Heading]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield heading paths with the text of each section, its heading included. An empty section
    joins the next one; at the end of the text it is a section of its own."""
    path: list[Heading] = []
    begun = 0
    body = 0

    for heading in (*headings, None):
        end = len(text) if heading is None else heading.start
        if text[begun if heading is None else body : end].strip():
            yield tuple(above.title for above in path), text[begun:end]
            begun = end
        if heading is not None:
            path = [above for above in path if above.level < heading.level] + [heading]
            body = heading.end


def _join_blank(pieces: Iterable[str]) -> Iterator[str]:
    """Join pieces without a word to the piece before them, or to the first one."""
    buffer = ""
    for piece in pieces:
        if buffer.strip() and piece.strip():
            yield buffer
            buffer = ""
        buffer += piece

    yield buffer


ORIGINAL = "the document's own words: "
"""The beginning of the `reason` of a memory whose text was retold. The document's own words follow,
so that they are never lost."""


class ReadingPlan(Frozen):
    """Settings for converting documents into memories."""

    chunk_tokens: int = option(
        256,
        "The most tokens of a chunk, estimated as 4 characters each.",
        ge=LEAST_TOKENS,
        le=8000,
    )
    trust: Share = option(
        0.7,
        "The trust in the documents, from 0 to 1; recall can exclude memories below a trust.",
    )
    importance: Share = option(0.5, "The importance of each chunk, from 0 to 1.")
    seed: int = option(0, "The seed of retold chunks; another seed may give other texts.")


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A stored memory that was created from a document. `id`: the memory's. `source`: the document
    with the path of headings. `role`: the point of view from which it was retold; empty if it has
    the document's words. `digest`: the hash of the document's words."""

    id: str
    source: str
    role: str
    digest: str


ChunkAction: TypeAlias = Literal["add", "keep", "replace", "close"]
"""The change of the collection for a chunk: its memory is added, is kept, or replaces another one;
or a memory is closed, because its chunk is gone."""


@dataclass(frozen=True, slots=True)
class ChunkStep:
    """The action for a chunk, or for a memory whose chunk is gone (`close`). `memory`: the id of
    the memory that is kept, replaced or closed; empty if one is added."""

    action: ChunkAction
    chunk: Chunk | None = None
    memory: str = ""


@dataclass(frozen=True, slots=True)
class RetoldChunk:
    """The text of the memory for a chunk. `role`: the point of view from which a model retold it;
    empty for the document's words. `failure`: the reason why it has the document's words although a
    role was requested."""

    text: str
    role: str = ""
    failure: str = ""


def kept_chunk(record: MemoryRecord) -> StoredChunk:
    retold = record.reason.startswith(ORIGINAL)
    words = record.reason.removeprefix(ORIGINAL) if retold else record.text
    return StoredChunk(record.id, record.origin.source, record.origin.author, digest(words))


def digest(text: str) -> str:
    """Return a hash of a chunk's words that ignores the white space around them."""
    return text_hash(text.strip())


def align_chunks(
    stored: Sequence[StoredChunk], chunks: Iterable[Chunk], document: str, role: str = ""
) -> list[ChunkStep]:
    """Return the step for each chunk, in order, and then for the memories whose chunks are gone.

    A chunk is kept if a memory has the same words, headings and role. Each other chunk replaces a
    remaining memory under the same headings, whatever its role, or is added.
    """
    new = list(chunks)
    unmatched = list(stored)
    steps: dict[int, ChunkStep] = {}

    def take(action: ChunkAction, place: int, fits: Callable[[StoredChunk], bool]) -> None:
        if place not in steps and (old := next(filter(fits, unmatched), None)):
            steps[place] = ChunkStep(action, new[place], old.id)
            unmatched.remove(old)

    for place, chunk in enumerate(new):
        words = (chunk.source_in(document), role, digest(chunk.text))
        take("keep", place, lambda old, w=words: (old.source, old.role, old.digest) == w)
    for place, chunk in enumerate(new):
        source = chunk.source_in(document)
        take("replace", place, lambda old, s=source: old.source == s)
    placed = [steps.get(place, ChunkStep("add", chunk)) for place, chunk in enumerate(new)]

    return [*placed, *(ChunkStep("close", memory=old.id) for old in unmatched)]


def change_chunks(
    steps: Sequence[ChunkStep],
    retold: Sequence[RetoldChunk],
    vectors: Sequence[Vector],
    document: str,
    plan: ReadingPlan,
) -> list[Change]:
    """Convert steps into the changes to apply to a collection; a kept chunk needs none. `retold`
    and `vectors` belong to the added and replacing chunks, in order."""
    changes: list[Change] = []
    texts_and_vectors = iter(zip(retold, vectors, strict=True))

    for step in steps:
        if step.action == "close":
            changes.append(Forget(step.memory))
        elif step.chunk is not None and step.action != "keep":
            text, vector = next(texts_and_vectors)
            memory = _make_memory(step.chunk, text, vector, document, plan)
            new = step.action == "add"
            changes.append(Add(memory) if new else Supersede((step.memory,), memory))

    return changes


def _make_memory(
    chunk: Chunk, retold: RetoldChunk, vector: Vector, document: str, plan: ReadingPlan
) -> NewMemory:
    return NewMemory(
        text=retold.text,
        embedding=vector,
        importance=plan.importance,
        kind="semantic",
        origin=Origin(chunk.source_in(document), chunk.position, retold.role, plan.trust),
        reason=ORIGINAL + chunk.text.strip() if retold.role else "",
    )


def changed_chunks(steps: Iterable[ChunkStep]) -> Iterator[Chunk]:
    """Return the chunks that are new or changed."""
    for step in steps:
        if step.chunk is not None and step.action != "keep":
            yield step.chunk


def transition_key(
    document: str, steps: Sequence[ChunkStep], role: str, plan: ReadingPlan, version: int
) -> str:
    """Return the key of a change: a hash of the collection's version, the document, the role, the
    settings, the document's memories and the new chunks. So the same change is applied only once,
    even by several processes."""
    parameters = (
        version,
        document,
        role,
        plan.chunk_tokens,
        plan.trust,
        plan.importance,
        plan.seed,
    )
    hasher = hashlib.sha256(repr(parameters).encode())
    for step in steps:
        words = "" if step.chunk is None else digest(step.chunk.text) + str(step.chunk.headings)
        hasher.update(f"\n{step.action}\0{step.memory}\0{words}".encode())

    return hasher.hexdigest()


async def voice_chunk(
    model: Model, chunk: Chunk, document: str, role: str, seed: int
) -> RetoldChunk:
    """Let the model retell a chunk from a role's point of view. If its answer is unusable, return
    the document's own words.

    Raises:
        ModelError: the model cannot be asked.
    """
    words = chunk.text.strip()
    nonce = draw_nonce((words, ""), seed)
    prompt = memory_prompt("voice").render(
        role=role,
        persona="",
        source=join_lines(sanitize(chunk.source_in(document), nonce)[0]),
        passage=fenced("passage", words, nonce),
    )
    most = 2 * count_tokens(words) + 100
    try:
        response = await model(text_request(prompt, most, seed))
        text = require_text(response, "the retold text")
    except AnswerError as error:
        return RetoldChunk(words, failure=str(error))

    if nonce in text or sanitize(text, nonce)[1]:
        return RetoldChunk(words, failure="the retold text holds marks of the prompt")

    return RetoldChunk(text, role)
