"""Erase texts from a store: a tombstone replaces every field that contained one of them.

Texts are compared by their words, since prompts quote them, break their lines and escape them. A
call whose prompt or answer has a text loses its whole answer, which may repeat it in other words;
its tokens, cost and times stay. It also loses its key, so no replay finds it and it can be
repeated.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from sqlalchemy import Table
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.llm.fence import JOINER
from textevolve.mappings import pick
from textevolve.settings import StoreLocation
from textevolve.store import tables
from textevolve.store.copying import read_rows, row_keys
from textevolve.store.database import open_database
from textevolve.store.documents import (
    bytes_to_text,
    dump_json,
    hash_bytes,
    load_json,
    split_body,
    split_hashes,
    text_to_bytes,
    unpack,
    unpack_json_bytes,
)
from textevolve.store.memory_search_sqlite import words_to_find
from textevolve.store.resource_rows import delete_where, insert_unless_stored, update_where

ERASED = "[erased]"
MARK = f'"{ERASED}"'
"""The text that replaces an erased text (`ERASED`), and the same as JSON (`MARK`)."""

COLUMNS: Mapping[Table, tuple[str, ...]] = {
    tables.runs: ("spec",),
    tables.cases: ("body",),
    tables.records: ("reason", "body"),
    tables.messages: ("text", "details"),
    tables.sessions: ("title",),
    tables.resource_versions: ("spec", "changes"),
    tables.memories: ("reason",),
    tables.labelling_items: ("item",),
    tables.labels: ("label",),
}
"""The columns, besides those of calls, whose texts may contain an erased text. The text of a memory
is not among them: another memory with the same text stays as it is."""
PLAIN = ("text", "reason", "title", "label")
"""The columns that hold a text; the others hold JSON."""

Matcher: TypeAlias = Callable[[str], bool]
"""A function that returns whether a text contains the words of an erased text."""

_ESCAPE = re.compile(r'\\+(?:u([0-9a-fA-F]{4})|[bfnrt"/\\])')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def erase_texts(location: StoreLocation, texts: Sequence[str]) -> None:
    """Erase texts from a store, all or none: a tombstone replaces each. Free pages of the file may
    contain the texts until `upkeep.scrub_store` runs.

    Raises:
        StoreError: the store cannot be read or written, or is damaged.
    """
    with closing(open_database(location)) as database:
        database.change(lambda c: _erase(c, texts))


def _erase(connection: Connection, texts: Sequence[str]) -> None:
    holds = _make_matcher(texts)

    def change(table: Table, row: Mapping[str, Any], cleaned: Mapping[str, Any]) -> None:
        changed = {name: value for name, value in cleaned.items() if value != row[name]}
        if changed:
            same = {key.name: row[key.name] for key in row_keys(table)}
            update_where(connection, table, changed, **same)

    holding = {
        row["hash"]
        for row in read_rows(connection, tables.texts)
        if holds(bytes_to_text(unpack(row["body"], row["size"])))
    }
    for row in read_rows(connection, tables.calls):
        change(tables.calls, row, _clean_call(row, holding, holds))
    for table, names in COLUMNS.items():
        for row in read_rows(connection, table):
            change(table, row, {n: _clean(row[n], holds, n in PLAIN) for n in names})
    if holding:
        for hash in holding:
            delete_where(connection, tables.texts, hash=hash)
        body = text_to_bytes(ERASED)
        tombstone = {"hash": hash_bytes(ERASED), "size": len(body), "body": body}
        insert_unless_stored(connection, tables.texts, tombstone)
        connection.execute(sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'"))


def _make_matcher(texts: Sequence[str]) -> Matcher:
    """Return a function that returns whether a text contains the consecutive words of any of these
    texts; an image's data URL contains none. Each of them is only compared where its rarest word
    occurs, since there may be thousands of texts."""
    needles = {tuple(_list_words(text)) for text in texts} - {()}
    counts = Counter(word for needle in needles for word in set(needle))
    index: defaultdict[str, list[str]] = defaultdict(list)
    for needle in needles:
        index[min(needle, key=counts.__getitem__)].append(f" {' '.join(needle)} ")

    def holds(text: str) -> bool:
        words = [] if text.startswith("data:image/") else _list_words(text)
        rare = index.keys() & set(words)
        joined = f" {' '.join(words)} " if rare else ""
        return any(needle in joined for word in rare for needle in index[word])

    return holds


def _list_words(text: str) -> list[str]:
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else " ", text)
    return words_to_find(plain.replace(JOINER, ""))


def _clean_call(row: Mapping[str, Any], holding: set[bytes], holds: Matcher) -> dict[str, Any]:
    """Return the new columns of a call that contains one of the texts, in a field or in a part
    whose hash is in `holding`; an empty mapping for other calls."""
    parts, answer, error = split_hashes(row["parts"]), row["response"], row["error"]
    request, response = (_clean(row[name], holds) for name in ("request", "response"))
    cleaned_error = _clean(error, holds, plain=True)
    if (request, response, cleaned_error) == (
        row["request"],
        answer,
        error,
    ) and not holding.intersection(parts):
        return {}
    if answer is not None:
        fields = ("finish_reason", "calls", "seconds", "attempts", "member", "reasoning_tokens")
        stored = load_json(unpack_json_bytes(answer))
        stored = {"text": ERASED} | pick(stored, fields)
        answer = dump_json(stored, "an answer")
    mark = hash_bytes(ERASED)
    joined = b"".join(mark if part in holding else part for part in parts)
    values = {"parts": joined, "request": request, "error": cleaned_error, "response": answer}
    return {**values, "key": tables.ERASED_KEY}


def _clean(value: Any, holds: Matcher, plain: bool = False) -> Any:
    """Return a column's value in which a tombstone replaces each JSON string that contains one of
    the texts. `plain`: the column holds a text instead of JSON, and is replaced as a whole."""
    if isinstance(value, bytes):
        head, data = split_body(value)
        packed = data[:2] == b"x\x01"
        text = bytes_to_text(zlib.decompress(data) if packed else data)
        cleaned = _clean(text, holds, plain)
        data = text_to_bytes(cleaned)
        return value if cleaned == text else head + (zlib.compress(data, 1) if packed else data)
    if value is None or not holds(value):
        return value
    return ERASED if plain else _STRING.sub(lambda m: MARK if holds(m[0]) else m[0], value)
