"""Erasing texts from a store: a tombstone stands wherever something held one of them.

Texts are compared by their words, since prompts quote them, break their lines and escape them. A
call that was sent a text, or answered with it, loses its whole answer, which may say the same in
other words; its tokens, cost and times stay. It also loses its key, so that no replay finds it and
it can be asked anew.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from sqlalchemy import Table, delete, select, update
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.llm.fence import JOINER
from textevolve.settings import StoreLocation
from textevolve.store import memory_tables, server_tables, tables
from textevolve.store.copying import read_pages, row_keys
from textevolve.store.database import open_backend
from textevolve.store.dialects import insert_into
from textevolve.store.documents import (
    DAMAGES,
    bytes_to_text,
    dump_json,
    hash_bytes,
    image_keys,
    load_json,
    pack,
    split_hashes,
    text_to_bytes,
    unpack,
    unpack_json_bytes,
)
from textevolve.store.memory_rows import chunks
from textevolve.store.memory_search_sqlite import words_to_find

ERASED = "[erased]"
"""What is kept, and shown, instead of an erased text."""

COLUMNS: Mapping[Table, tuple[str, ...]] = {
    tables.runs: ("spec",),
    tables.cases: ("body",),
    tables.records: ("reason", "body"),
    memory_tables.messages: ("text", "details"),
    memory_tables.sessions: ("title",),
    memory_tables.personas: ("text", "changes"),
    memory_tables.memories: ("reason",),
    server_tables.labelling_items: ("item",),
    server_tables.labels: ("label",),
}
"""Where texts stand inside others, in JSON or plain. Other memories with the same words stay."""

Losses: TypeAlias = Mapping[str, Mapping[str, int]]
"""How many rows of which tables lose something, by the id of their run; '' for those of no run."""

_ESCAPE = re.compile(r'\\+(?:u([0-9a-fA-F]{4})|[bfnrt"/\\])')


def find_losses(location: StoreLocation, texts: Sequence[str]) -> Losses:
    """What `erase_texts` would take from a store.

    Raises:
        StoreError: it cannot be read.
    """
    with closing(open_backend(location)) as backend:
        try:
            with closing(backend.open_reader()) as reader:
                return reader.read(lambda c: _erase(c, texts, writes=False))
        except backend.errors as error:
            raise backend.explain(error) from error


def erase_texts(location: StoreLocation, texts: Sequence[str]) -> None:
    """Put tombstones in place of texts, all or nothing. Pages that are free now may hold them
    until `upkeep.scrub_store`.

    Raises:
        StoreError: it cannot be written.
    """
    with closing(open_backend(location)) as backend:
        try:
            with closing(backend.open_session()) as session:
                session.change(lambda c: _erase(c, texts, writes=True), None)
        except backend.errors as error:
            raise backend.explain(error) from error


def _erase(connection: Connection, texts: Sequence[str], *, writes: bool) -> Losses:
    holds = _make_matcher(texts)
    lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
    holding = {row["hash"] for row in _rows(connection, tables.texts) if _holds_text(row, holds)}
    for row in _rows(connection, tables.calls):
        if changed := _erase_call(row, holding, holds):
            again = select(tables.reuses.c.run_id).where(tables.reuses.c.call_id == row["id"])
            for run_id in (row["run_id"], *connection.execute(again).scalars()):
                lost[run_id]["calls"] += 1
            _change(connection, tables.calls, row, changed if writes else {})
    for table, names in COLUMNS.items():
        for row in _rows(connection, table):
            cleaned = {name: _clean(row[name], holds) for name in names}
            changed = {name: value for name, value in cleaned.items() if value != row[name]}
            if changed:
                run_id = row["id"] if table is tables.runs else row.get("run_id", "")
                lost[run_id][table.name] += 1
                _change(connection, table, row, changed if writes else {})
    if writes and holding:
        for chunk in chunks(list(holding)):
            connection.execute(delete(tables.texts).where(tables.texts.c.hash.in_(chunk)))
        body = text_to_bytes(ERASED)
        tombstone = {"hash": hash_bytes(ERASED), "size": len(body), "body": body}
        made = insert_into(connection, tables.texts).values(tombstone)
        connection.execute(made.on_conflict_do_nothing())
        connection.execute(sql("UPDATE counters SET value = value + 1 WHERE name = 'sweeps'"))
    return lost


def _rows(connection: Connection, table: Table) -> Iterable[dict[str, Any]]:
    return (row for page in read_pages(connection, table) for row in page)


def _change(
    connection: Connection, table: Table, row: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    if values:
        same = [key == row[key.name] for key in row_keys(table)]
        connection.execute(update(table).where(*same).values(values))


def _make_matcher(texts: Sequence[str]) -> Callable[[str], bool]:
    """Whether a text holds the words of any of these, one behind the other. Each of them is looked
    for where its rarest word stands, since there may be thousands."""
    needles = {tuple(_list_words(text)) for text in texts} - {()}
    counts = Counter(word for needle in needles for word in set(needle))
    index: defaultdict[str, list[str]] = defaultdict(list)
    for needle in needles:
        index[min(needle, key=counts.__getitem__)].append(f" {' '.join(needle)} ")

    def holds(text: str) -> bool:
        words = _list_words(text)
        rare = index.keys() & set(words)
        joined = f" {' '.join(words)} " if rare else ""
        return any(needle in joined for word in rare for needle in index[word])

    return holds


def _list_words(text: str) -> list[str]:
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else " ", text)
    return words_to_find(plain.replace(JOINER, ""))


def _holds_text(row: Mapping[str, Any], holds: Callable[[str], bool]) -> bool:
    try:
        text = bytes_to_text(unpack(row["body"], row["size"]))
    except DAMAGES:
        return False
    return not text.startswith("data:image/") and holds(text)


def _erase_call(
    row: Mapping[str, Any], holding: set[bytes], holds: Callable[[str], bool]
) -> dict[str, Any]:
    """The columns of a call that change; none where it has nothing of a text."""
    answer, parts = row["response"], split_hashes(row["parts"])
    same = all(_clean(row[name], holds) == row[name] for name in ("response", "error", "request"))
    if same and not holding.intersection(parts):
        return {}
    if answer is not None:
        left = ("finish_reason", "calls", "seconds", "attempts", "member", "reasoning_tokens")
        stored = load_json(unpack_json_bytes(answer))
        stored = {"text": ERASED} | {name: stored[name] for name in left if name in stored}
        answer = dump_json(stored, "an answer")
    mark = hash_bytes(ERASED)
    return {
        "key": tables.ERASED_KEY,
        "parts": b"".join(mark if part in holding else part for part in parts),
        "request": _clean(row["request"], holds),
        "error": None if row["error"] is None else text_to_bytes(ERASED),
        "response": answer,
    }


def _clean(value: Any, holds: Callable[[str], bool]) -> Any:
    """A column's value with tombstones instead of the strings that hold a text. What is damaged
    stays as it is."""
    if isinstance(value, bytes):
        try:
            keys = image_keys(value)
            head = value[: 6 + 32 * len(keys)] if keys else b""
            body = value[len(head) :]
            text = bytes_to_text(zlib.decompress(body) if body[:2] == b"x\x01" else body)
        except DAMAGES:
            return value
        cleaned = _clean(text, holds)
        return value if cleaned == text else head + pack(text_to_bytes(cleaned))
    if value is None or not holds(value):
        return value
    try:
        document = json.loads(value)
    except ValueError:
        return ERASED
    if not isinstance(document, dict | list):
        return ERASED
    cleaned = _walk(document, holds)
    return value if cleaned == document else bytes_to_text(dump_json(cleaned, "a text"))


def _walk(value: Any, holds: Callable[[str], bool]) -> Any:
    match value:
        case str():
            return ERASED if holds(value) else value
        case list():
            return [_walk(one, holds) for one in value]
        case dict():
            return {_walk(name, holds): _walk(one, holds) for name, one in value.items()}
        case _:
            return value
