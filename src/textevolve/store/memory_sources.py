"""What collections of memories were made from, by what people are told of it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.engine import Connection

from textevolve.memory.record import Collection
from textevolve.store.tables import sources


def list_source_labels(
    connection: Connection, collection: Collection, prefix: str
) -> list[tuple[str, int]]:
    """The labels that begin so of what a collection took in, newest first, each with the version of
    the collection that it made."""
    asked = (
        select(sources.c.label, sources.c.version)
        .where(
            sources.c.collection_id == collection.id,
            sources.c.label.startswith(prefix, autoescape=True),
        )
        .order_by(sources.c.created.desc(), sources.c.version.desc())
    )
    return [(row.label, row.version) for row in connection.execute(asked)]
