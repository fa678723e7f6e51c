"""What reading documents did, and how it is told: records, figures, the report.

How a run works is in `read_corpus.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from textevolve.evaluation import Failure, Usage
from textevolve.events import Event, StepStarted
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Report, Table
from textevolve.studies.study import Row

SHOWN = 120
"""Characters of a chunk in a record; the whole text is in the collection."""
ROWS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """What became of a chunk. `source`: its document with the headings above it; `text`: how it
    begins; `id`: of its memory; `failure`: why it was not retold."""

    action: str
    source: str
    position: int
    text: str
    id: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """What became of a document. `kept`: chunks that were known; `chunks`: those that changed."""

    document: str
    position: int
    kept: int = 0
    chunks: tuple[ReadChunk, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None

    def count(self, action: str) -> int:
        return Counter(one.action for one in self.chunks)[action]


def find_row(made: DocumentReading) -> Row:
    if made.failure is None:
        return Row(made.document, made.position, made.document)
    return Row(
        made.document,
        made.position,
        made.document,
        status=made.failure.kind,
        reason=made.failure.reason,
    )


def report_readings(facts: Mapping[str, str], found: Sequence[DocumentReading]) -> Report:
    columns = [Column("document")]
    columns += [Column(name, "count") for name in ("added", "replaced", "closed", "unchanged")]
    rows = [
        (one.document, one.count("add"), one.count("replace"), one.count("close"), one.kept)
        for one in found
        if one.failure is None
    ]
    blocks: list[Block] = [Table("Chunks of each document", columns, rows)]
    changed = [chunk for one in found for chunk in one.chunks if chunk.action != "close"]
    if changed:
        shown = [(one.source, one.position, one.text) for one in changed[:ROWS_SHOWN]]
        more = len(changed) - len(shown)
        note = f"{wording.count(more, 'more chunk')} not shown here." if more else ""
        heads = (Column("source"), Column("place", "count"), Column("text"))
        blocks.append(Table("What was read", heads, shown, note=note))
    untold = [chunk for chunk in changed if chunk.failure]
    if untold:
        rows = [(one.source, one.position, one.failure) for one in untold[:ROWS_SHOWN]]
        heads = (Column("source"), Column("place", "count"), Column("why"))
        blocks.append(Table("Left in the document's own words", heads, rows))
    return Report("Documents read", _say_found(found, len(untold)), blocks, facts)


def _say_found(found: Sequence[DocumentReading], untold: int) -> str:
    number = {name: sum(one.count(name) for one in found) for name in ("add", "replace", "close")}
    kept = sum(one.kept for one in found)
    failed = sum(one.failure is not None for one in found)
    return (
        f"{wording.count(len(found) - failed, 'document')}:"
        f" {wording.count(number['add'], 'chunk')} added, {number['replace']} replaced,"
        f" {number['close']} closed, {kept} unchanged"
        + (f"; {untold} left in the document's own words" if untold else "")
        + (f"; {wording.count(failed, 'document')} not read." if failed else ".")
    )


def describe_readings(found: Sequence[DocumentReading]) -> Mapping[str, Any]:
    return {"documents": [asdict(one) for one in found]}


def flatten(made: DocumentReading) -> Iterator[Mapping[str, Any]]:
    """A row for each chunk that was added, replaced or closed."""
    for chunk in made.chunks:
        yield {"document": made.document, **asdict(chunk)}


def note_reading(event: Event) -> str | None:
    if isinstance(event, StepStarted) and event.step == "document":
        return f"{wording.shorten(event.case, 80)} is read"
    return None
