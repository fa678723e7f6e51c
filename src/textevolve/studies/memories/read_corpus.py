"""The study that reads a corpus: documents are split into chunks, and each chunk becomes a semantic
memory.

`textevolve.memory.corpus` splits documents, and compares chunks with those stored before.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from textevolve.engine.local import gather_bounded
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import Case, Failure, Result, Results, Usage, attempt
from textevolve.events import StepStarted
from textevolve.llm.meter import Tab, sum_calls
from textevolve.llm.prompts import prompt_versions
from textevolve.memory.corpus import (
    BETWEEN,
    ChunkStep,
    ReadingPlan,
    RetoldChunk,
    StoredChunk,
    align_chunks,
    change_chunks,
    changed_chunks,
    kept_chunk,
    split_document,
    transition_key,
    voice_chunk,
)
from textevolve.memory.ranking import with_tokens
from textevolve.memory.record import ChangeSource, Vector, stream_memories
from textevolve.memory_snapshots import find_collection
from textevolve.reach import allowed_path
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Report, Table
from textevolve.rows import STANDARD_INPUT, read_text
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, note_step, row_of
from textevolve.spec import NonEmpty, Several, option
from textevolve.store.repository import Store
from textevolve.studies.memories.base import describe_by, open_changed_collection
from textevolve.texts.prose import compose
from textevolve.wiring import Workbench

EMBEDDINGS_AT_ONCE = 16
MARKDOWN = (".md", ".markdown", ".mdx", ".qmd", ".rmd", "standard input")
"""The endings of the names of documents whose headings are recognised."""
# The endings of files with markup, which cannot be read as text.
MARKUP = (".html", ".htm", ".xhtml", ".xml")


class ReadCorpusSpec(ReadingPlan, StudySpec):
    """Read documents into a collection: each chunk becomes a memory with its source.

    No model is called except for embeddings, unless --as has a model retell the chunks. If a
    document was read before, only its changed chunks change.
    """

    kind: ClassVar[str] = "read-corpus"
    scored: ClassVar[bool] = False

    files: Several = option(
        description="Text or Markdown in UTF-8; - is standard input. The name given here identifies"
        " the document.",
        argument=True,
        identity=False,
        reads=True,
        min_length=1,
        metavar="FILE...",
    )
    collection: NonEmpty = option(
        description="The collection that the memories are stored in, as NAME or NAMESPACE/NAME.",
        short="-c",
        metavar="NAME",
    )
    role: str | None = option(
        None,
        "Have the model retell each chunk from this point of view, such as 'a nurse'. The"
        " document's words stay in the memory's reason. Default: no chunk is retold.",
        flag="--as",
        metavar="ROLE",
        min_length=1,
    )


def ask(spec: ReadCorpusSpec) -> Asks:
    if spec.role is None:
        return Asks()
    return Asks(writes=True, prompts=prompt_versions("memory", "voice"))


def read_cases(spec: ReadCorpusSpec) -> Iterator[Case]:
    """Yield a case for each document, with its text.

    Raises:
        InputError: a file cannot be read, is no text, or is given twice; names it.
    """
    seen: set[str] = set()

    for path in spec.files:
        name = name_document(path)
        if name in seen:
            raise InputError(f"{name}: is named twice; name each document once")
        seen.add(name)
        yield Case(_read_document(path, name), (), name)


def name_document(path: str) -> str:
    """Return the name of a document in memories: its path, normalised. macOS may list the letters
    of a name decomposed, which other systems do not."""
    if path == STANDARD_INPUT:
        return "standard input"
    return compose(Path(os.path.normpath(path)).as_posix())


# A PDF may be ASCII throughout, so that its objects would pass for text.
_FORMATS = {
    b"%PDF-": "a PDF; convert it to text first, as with pdftotext",
    b"PK\x03\x04": "a ZIP archive or an Office document; unpack it, or convert it as with pandoc",
    b"\x89PNG": "a picture, which has no text",
    b"\xff\xd8\xff": "a picture, which has no text",
    b"GIF8": "a picture, which has no text",
}


def _validate_start(file: Path, name: str) -> None:
    """Raise InputError if a file begins as one of a format that is no text."""
    with file.open("rb") as document:
        start = document.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")

    for signature, description in _FORMATS.items():
        if start.startswith(signature):
            raise InputError(f"{name}: is {description}")


def _read_document(path: str, name: str) -> str:
    if path != STANDARD_INPUT and Path(allowed_path(path)).is_dir():
        raise InputError(f"{name}: is a folder; name the files in it")
    if name.lower().endswith(MARKUP):
        raise InputError(
            f"{name}: this format cannot be read; convert the file to Markdown first, as with"
            " pandoc"
        )

    file = Path(allowed_path(path))
    if path != STANDARD_INPUT and file.is_file():
        _validate_start(file, name)

    text = read_text(path)
    if "\0" in text:
        raise InputError(
            f"{name}: is not a text file: it has a NUL character at {text.index(chr(0))}"
        )

    if not text.strip():
        raise InputError(f"{name}: is empty")

    return text


def pin(spec: ReadCorpusSpec, resources: Store, namespace: str) -> Mapping[str, Any]:
    """Return the version of the collection with which documents are compared."""
    collection = find_collection(resources, spec.collection, namespace)
    described: dict[str, Any] = {
        "collection": collection.full_name,
        "version": collection.version,
    }
    if spec.role:
        described["role"] = spec.role

    return described


async def run(
    spec: ReadCorpusSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[DocumentReading]:
    """Read the documents, and yield a record of each in their order."""
    work = _Reading(spec, bench)
    await work.begin(frozenset(map(name_document, spec.files)))
    for position, case in enumerate(cases):
        bench.listener(StepStarted(case.id, "document", {}))
        yield await work.read(position, case)


class _Reading:
    """The work of a run: it finds the changed chunks of documents, and stores them as memories."""

    def __init__(self, spec: ReadCorpusSpec, bench: Workbench) -> None:
        self._spec = spec
        self._bench = bench
        self._target = open_changed_collection(bench, bench.described["collection"])
        self._base = int(bench.described["version"])
        self._role = spec.role or ""
        self._known: Mapping[str, list[StoredChunk]] = {}

    async def begin(self, documents: frozenset[str]) -> None:
        """Find the earlier chunks of these documents in the version of the collection that the run
        compares with."""
        chunks: defaultdict[str, list[StoredChunk]] = defaultdict(list)
        target = self._target
        async for record in stream_memories(target.store, target.name, self._base):
            parts = compose(record.origin.source).split(BETWEEN)
            for number in range(1, len(parts) + 1):
                if (name := BETWEEN.join(parts[:number])) in documents:
                    chunks[name].append(kept_chunk(record))
                    break

        self._known = chunks

    async def read(self, position: int, case: Case) -> DocumentReading:
        marked = case.id.lower().endswith(MARKDOWN)
        format = "markdown" if marked else "text"
        chunks = split_document(case.input, format, self._spec.chunk_tokens)
        steps = align_chunks(self._known.get(case.id, []), chunks, case.id, self._role)
        unchanged = sum(step.action == "keep" for step in steps)
        with Tab() as tab:
            outcome = await attempt(self._change(steps, case.id), ConflictError)
        usage = sum_calls(tab)
        if isinstance(outcome, Failure):
            return DocumentReading(case.id, position, unchanged, (), usage, outcome)

        return DocumentReading(case.id, position, unchanged, outcome, usage)

    async def _change(self, steps: Sequence[ChunkStep], document: str) -> tuple[ReadChunk, ...]:
        """Embed and store the changed chunks, after a model has retold them if the specification
        names a role."""
        bench = self._bench
        role = self._role
        seed = self._spec.seed
        retold_chunks = [RetoldChunk(chunk.text.strip()) for chunk in changed_chunks(steps)]

        if role:
            voicing = [
                lambda c=chunk, m=bench.model: voice_chunk(m, c, document, role, seed)
                for chunk in changed_chunks(steps)
            ]
            retold_chunks = await gather_bounded(voicing, bench.concurrency)

        collection = await self._target.store.collection(self._target.name)
        embedding = [
            lambda text=retold.text: bench.embed(collection, text) for retold in retold_chunks
        ]
        vectors = await gather_bounded(embedding, EMBEDDINGS_AT_ONCE)
        ids = await self._apply(steps, retold_chunks, vectors, document)

        return tuple(_list_chunks(steps, retold_chunks, ids, document))

    async def _apply(
        self,
        steps: Sequence[ChunkStep],
        retold_chunks: Sequence[RetoldChunk],
        vectors: Sequence[Vector],
        document: str,
    ) -> Sequence[str]:
        """Apply the changes of a document in one transaction, only once, and return the ids of new
        memories."""
        changes = change_chunks(steps, retold_chunks, vectors, document, self._spec)
        if not changes:
            return ()
        collection = await self._target.store.collection(self._target.name)
        changes = await with_tokens(self._bench.embed, collection, changes)
        key = transition_key(document, steps, self._role, self._spec, self._base)
        applied = await self._target.apply(changes, ChangeSource(key, document))
        return () if applied is None else applied.ids


def _list_chunks(
    steps: Sequence[ChunkStep],
    retold_chunks: Sequence[RetoldChunk],
    ids: Sequence[str],
    document: str,
) -> Iterator[ReadChunk]:
    texts = iter(retold_chunks)
    new_ids = iter(ids)
    for step in steps:
        if step.action == "close":
            yield ReadChunk("close", document, 0, "", step.memory)
        elif step.chunk is not None and step.action != "keep":
            retold = next(texts)
            yield ReadChunk(
                step.action,
                step.chunk.source_in(document),
                step.chunk.position,
                wording.shorten(retold.text, SHOWN),
                next(new_ids, ""),
                retold.failure,
            )


SHOWN = 120
"""The number of characters of a chunk in a record; the collection has the full text."""
ROWS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """The change of one chunk of a document.

    Attributes:
        action: Whether the chunk was added, replaced or closed.
        source: The document, with the headings above the chunk.
        position: The number of the chunk in the document; 0 if it was closed.
        text: The beginning of the chunk; empty if it was closed.
        id: The id of its memory.
        failure: The reason why a model did not retell it; empty otherwise.
    """

    action: str
    source: str
    position: int
    text: str
    id: str = ""
    failure: str = ""


@dataclass(frozen=True)
class DocumentReading(Result):
    """The result of reading one document. `kept`: the number of unchanged chunks; `chunks`: the
    changed ones."""

    document: str
    position: int
    kept: int = 0
    chunks: tuple[ReadChunk, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None

    def count(self, action: str) -> int:
        return Counter(chunk.action for chunk in self.chunks)[action]


def find_row(reading: DocumentReading) -> Row:
    return row_of(reading.document, reading.position, reading.failure, reading.document)


def report(spec: ReadCorpusSpec, readings: Sequence[DocumentReading]) -> Report:
    facts = {"Collection": spec.collection, "Trust": f"{spec.trust:g}"}
    facts |= {"Told by": spec.role} if spec.role else {}
    columns = ["document"]
    columns += [Column(name, "count") for name in ("added", "replaced", "closed", "unchanged")]
    rows = [
        (
            reading.document,
            reading.count("add"),
            reading.count("replace"),
            reading.count("close"),
            reading.kept,
        )
        for reading in readings
        if reading.failure is None
    ]
    blocks: list[Block] = [Table("Chunks of each document", columns, rows)]
    changed = [chunk for reading in readings for chunk in reading.chunks if chunk.action != "close"]
    untold = [chunk for chunk in changed if chunk.failure]
    if untold:
        rows = [(chunk.source, chunk.position, chunk.failure) for chunk in untold[:ROWS_SHOWN]]
        heads = ("source", Column("place", "count"), "why")
        blocks.append(Table("Left in the document's own words", heads, rows))

    return Report("Documents read", _describe_readings(readings, len(untold)), blocks, facts)


def _describe_readings(readings: Sequence[DocumentReading], untold: int) -> str:
    added, replaced, closed = (
        sum(reading.count(name) for reading in readings) for name in ("add", "replace", "close")
    )
    unchanged = sum(reading.kept for reading in readings)
    failed = sum(reading.failure is not None for reading in readings)

    sentence = (
        f"{wording.count(len(readings) - failed, 'document')}:"
        f" {wording.count(added, 'chunk')} added, {replaced} replaced,"
        f" {closed} closed, {unchanged} unchanged"
    )
    if untold:
        sentence += f"; {untold} left in the document's own words"
    if failed:
        sentence += f"; {wording.count(failed, 'document')} not read"

    return f"{sentence}."


def data(_spec: ReadCorpusSpec, readings: Sequence[DocumentReading]) -> Mapping[str, Any]:
    return {"documents": list(map(asdict, readings))}


def flatten(reading: DocumentReading) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each chunk that was added, replaced or closed."""
    for chunk in reading.chunks:
        yield {"document": reading.document, **asdict(chunk)}


STUDY = Study(
    spec=ReadCorpusSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(DocumentReading),
    summarise=lambda _spec, records: Results(records),
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    describe=describe_by(pin),
)
