"""Rows of namespaces, agents, memories and chats that are whole in a damaged store; and of labels,
keys, jobs and what else a server keeps.

Their search indexes are not read: they are made anew from the rows that were saved.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Table, Text, select
from sqlalchemy.engine import Connection

from textevolve.store import memory_tables as kept
from textevolve.store import server_tables as served
from textevolve.store import tables as runs
from textevolve.store.database import SQLiteDatabase
from textevolve.store.labelling import TASK_ID
from textevolve.store.memory_collections import search_of
from textevolve.store.memory_rows import IndexEntry, chunks, collection_of
from textevolve.store.pages import PageRow, PageValue

TABLES = (
    served.namespace_tokens,
    served.browser_sessions,
    runs.batches,
    kept.namespaces,
    kept.agents,
    kept.personas,
    kept.users,
    kept.collections,
    kept.memories,
    kept.embeddings,
    kept.mentions,
    kept.relations,
    kept.uses,
    kept.sources,
    kept.versions,
    kept.sessions,
    kept.messages,
    served.api_keys,
    served.served_runs,
    served.jobs,
    served.job_runs,
    served.labelling_tasks,
    served.labelling_items,
    served.labels,
)
MEMORY_KINDS = tuple(table.name for table in TABLES)
COUNTED = (
    *("namespaces", "agents", "users", "collections", "memories", "sessions", "messages"),
    *("api_keys", "jobs", "labelling_tasks", "labels", "records", "erased calls"),
)
"""Kinds that are told of; the others belong to them."""

_KINDS: dict[type[Any], type | UnionType] = {
    Text: str,
    Float: int | float,  # a whole number takes less room as an integer
    LargeBinary: bytes,
    Boolean: int,
    Integer: int,
    BigInteger: int,
}
_OF_INDEXES = ((type(None), type(None), int, int), (type(None), int, type(None), str, bytes, bytes))
"""Rows of sqlite-vec's own tables that have as many columns as some of ours."""


def find_memory_row(row: PageRow) -> tuple[str, tuple[PageValue, ...]] | None:
    """The table that a row is of, and its values; None where it is of none of these."""
    for table in _BY_WIDTH.get(len(row.values), ()):
        if (values := _fit(table, row)) is not None:
            return table.name, values
    return None


def is_of_an_index(row: PageRow) -> bool:
    return tuple(type(value) for value in row.values) in _OF_INDEXES


def _fit(table: Table, row: PageRow) -> tuple[PageValue, ...] | None:
    values: list[PageValue] = []
    later = len(table.columns) - len(row.values)
    for column, value in zip(table.columns, [*row.values, *[None] * later], strict=True):
        if _is_rowid(table, column):
            if value is not None:
                return None
            value = row.rowid
        elif value is None and column.nullable:
            pass
        elif not isinstance(value, _KINDS[type(column.type)]):
            return None
        values.append(value)
    match values:
        case [_, int(dimension), bytes(vector)] if len(vector) != 4 * dimension:
            return None
        case [str(id), *_] if table is served.labelling_tasks and not id.startswith(TASK_ID):
            return None  # a row of SQLite's own schema looks alike
        case _:
            return tuple(values)


def _is_rowid(table: Table, column: Column[Any]) -> bool:
    keys = list(table.primary_key.columns)
    return keys == [column] and isinstance(column.type, Integer | BigInteger)


_BY_WIDTH: defaultdict[int, list[Table]] = defaultdict(list)
for _table in TABLES:
    _BY_WIDTH[len(_table.columns)].append(_table)
    # Rows from before a table got its last columns do not have them.
    for _width in range(len(_table.columns) - 1, 0, -1):
        if not list(_table.columns)[_width].nullable:
            break
        _BY_WIDTH[_width].append(_table)


def make_indexes(path: Path) -> None:
    """Of all memories in a store that has none yet."""
    database = SQLiteDatabase(path)
    try:
        database.write(_index_all)
    finally:
        database.close()


def _index_all(connection: Connection) -> None:
    none = np.zeros(0, dtype=np.float32)
    for each in connection.execute(select(kept.collections)).all():
        found = collection_of(each, "")
        own = kept.memories.c.collection_id == found.id
        asked = select(kept.memories).where(own, kept.memories.c.text != "")
        for chunk in chunks(connection.execute(asked)):
            entries = [
                IndexEntry(
                    row.seq, row.text, none, row.trust, row.added, row.valid_from, row.valid_to
                )
                for row in chunk
            ]
            search_of(connection).add(connection, found, entries)
