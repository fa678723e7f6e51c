"""The graph of memories and entities in ladybug, an embedded graph database that speaks Cypher.

`LadybugMemories` is a `MemoryStore` whose `associate` asks this graph in place of the database's
recursive query, with the same answers. The graph is made from the database, which stays the only
place where anything is kept: it is filled anew when a collection has another version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.memory.record import Collection
from textevolve.store.database import Database
from textevolve.store.memories import StoredMemories
from textevolve.store.memory_rows import Held, holds
from textevolve.store.tables import memories, mentions

_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Loaded(collection STRING PRIMARY KEY, version INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Memory(seq INT64 PRIMARY KEY, collection STRING, added INT64,"
    " closed INT64, forgotten BOOLEAN, superseded_at DOUBLE, valid_from DOUBLE, valid_to DOUBLE,"
    " trust DOUBLE)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, collection STRING, name STRING)",
    "CREATE REL TABLE IF NOT EXISTS Mentions(FROM Memory TO Entity)",
)
_COLUMNS = (
    *("seq", "added", "closed", "forgotten", "superseded_at"),
    *("valid_from", "valid_to", "trust"),
)

_STEP = """
    MATCH (a:Memory)-[:Mentions]->(:Entity)<-[:Mentions]-(m:Memory)
    WHERE a.seq IN $reached AND {held} RETURN DISTINCT m.seq ORDER BY m.seq"""


class LadybugGraph:
    """A folder with the graph of one database's collections; one process at a time may use it."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            StoreError: the package is missing, or the folder cannot be used.
        """
        if find_spec("ladybug") is None:
            raise StoreError('the graph needs a package: pip install "textevolve[ladybug]"')
        # Loaded after an open graph, llama.cpp's library ends the process (std::bad_alloc, with
        # ladybug 0.22.0); loaded before it, both work.
        if find_spec("xllamacpp") is not None:
            import_module("xllamacpp")
        import ladybug

        self.folder, self._lock = folder, threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._database = ladybug.Database(str(folder / "graph.lbug"))
            self._graph = ladybug.Connection(self._database)
            for statement in _SCHEMA:
                self._graph.execute(statement)
        except (OSError, RuntimeError) as error:
            raise self._explain(error) from error

    def close(self) -> None:
        with self._lock:
            self._graph.close()
            self._database.close()

    def reach(
        self,
        connection: Connection,
        collection: Collection,
        held: Held,
        starts: Sequence[int],
        hops: int,
    ) -> list[int]:
        """`seq` of what shares entities with the starts or with what was reached, nearest first."""
        with self._lock:
            try:
                self._fill(connection, collection)
                condition, values = _hold(held)
                reached, newest, found = set(starts), list(starts), list[int]()
                for _ in range(hops):
                    given = {"reached": newest, "collection": collection.id, **values}
                    step = self._ask(_STEP.format(held=condition), given)
                    newest = [seq for (seq,) in step if seq not in reached]
                    found += newest
                    reached.update(newest)
                return found
            except RuntimeError as error:
                raise self._explain(error) from error

    def _ask(self, statement: str, given: dict[str, Any]) -> list[list[Any]]:
        result: Any = self._graph.execute(statement, given)
        return list(result)

    def _fill(self, connection: Connection, collection: Collection) -> None:
        """Make the graph of the collection's version, all or nothing."""
        own = {"id": collection.id}
        known = self._ask("MATCH (l:Loaded {collection: $id}) RETURN l.version", own)
        if known == [[collection.version]]:
            return
        asked = select(*(memories.c[name] for name in _COLUMNS))
        rows = connection.execute(asked.where(memories.c.collection_id == collection.id))
        nodes = [dict(row) for row in rows.mappings()]
        pairs = select(mentions.c.seq, mentions.c.entity)
        named = connection.execute(pairs.where(mentions.c.collection_id == collection.id)).all()
        edges = [{"seq": seq, "id": f"{collection.id} {entity}"} for seq, entity in named]
        entities = [{"id": id} for id in dict.fromkeys(edge["id"] for edge in edges)]
        filled = ", ".join(f"{name}: r.{name}" for name in _COLUMNS)
        self._graph.execute("BEGIN TRANSACTION")
        try:
            self._ask("MATCH (m:Memory {collection: $id}) DETACH DELETE m", own)
            self._ask("MATCH (e:Entity {collection: $id}) DETACH DELETE e", own)
            if nodes:
                made = f"UNWIND $rows AS r CREATE (:Memory {{collection: $id, {filled}}})"
                self._ask(made, {"rows": nodes, **own})
            if edges:
                made = "UNWIND $rows AS r CREATE (:Entity {collection: $id, id: r.id})"
                self._ask(made, {"rows": entities, **own})
                self._ask(
                    "UNWIND $rows AS r MATCH (m:Memory {seq: r.seq}), (e:Entity {id: r.id})"
                    " CREATE (m)-[:Mentions]->(e)",
                    {"rows": edges},
                )
            self._ask(
                "MERGE (l:Loaded {collection: $id}) SET l.version = $version",
                {**own, "version": collection.version},
            )
            self._graph.execute("COMMIT")
        except BaseException:
            self._graph.execute("ROLLBACK")
            raise

    def _explain(self, error: Exception) -> StoreError:
        said = " ".join(str(error).split())[:300]
        return StoreError(
            f"graph {self.folder}: cannot be used ({said}); end the other process that uses it, or"
            " delete the folder, which is made again"
        )


def _hold(held: Held) -> tuple[str, dict[str, Any]]:
    """`memory_rows.holds` in Cypher."""
    parts = [
        "m.collection = $collection",
        "(m.valid_from IS NULL OR m.valid_from <= $moment)",
        "(m.valid_to IS NULL OR m.valid_to > $moment)",
    ]
    values: dict[str, Any] = {"moment": held.moment}
    if held.version is not None:
        parts += ["m.added <= $version", "(m.closed IS NULL OR m.closed > $version)"]
        values["version"] = held.version
    elif held.past:
        parts += ["NOT m.forgotten", "(m.superseded_at IS NULL OR m.superseded_at > $moment)"]
    else:
        parts.append("m.closed IS NULL")
    if held.least_trust > 0:
        parts.append("m.trust >= $trust")
        values["trust"] = held.least_trust
    return " AND ".join(parts), values


class LadybugMemories(StoredMemories):
    """The collections and memories of one namespace, associated by a graph database."""

    def __init__(
        self, database: Callable[[], Database], namespace: str, graph: LadybugGraph
    ) -> None:
        super().__init__(database, namespace)
        self._graph = graph

    def _reach(
        self,
        connection: Connection,
        collection: Collection,
        held: Held,
        starts: Sequence[str],
        hops: int,
    ) -> list[int]:
        own = select(memories.c.seq).where(memories.c.collection_id == collection.id, holds(held))
        first = connection.execute(own.where(memories.c.id.in_(starts))).scalars().all()
        return self._graph.reach(connection, collection, held, first, hops)
