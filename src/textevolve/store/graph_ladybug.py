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
from textevolve.store.memory_rows import Held, holds, read_held
from textevolve.store.tables import memories, mentions

_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Loaded(collection STRING PRIMARY KEY, version INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Memory(seq INT64 PRIMARY KEY, collection STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, collection STRING)",
    "CREATE REL TABLE IF NOT EXISTS Mentions(FROM Memory TO Entity)",
)
_STEP = """
    MATCH (a:Memory)-[:Mentions]->(:Entity)<-[:Mentions]-(m:Memory)
    WHERE a.seq IN $reached AND m.collection = $collection RETURN DISTINCT m.seq ORDER BY m.seq"""


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
                reached, newest, order = set(starts), list(starts), list[int]()
                for _ in range(hops):
                    values = {"reached": newest, "collection": collection.id}
                    step = [seq for (seq,) in self._ask(_STEP, values) if seq not in reached]
                    current = read_held(connection, held, step)
                    newest = [seq for seq in step if seq in current]
                    order += newest
                    reached.update(newest)
                return order
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
        pairs = select(mentions.c.seq, mentions.c.entity)
        named = connection.execute(pairs.where(mentions.c.collection_id == collection.id)).all()
        edges = [{"seq": seq, "id": f"{collection.id} {entity}"} for seq, entity in named]
        nodes = [{"seq": seq} for seq in dict.fromkeys(edge["seq"] for edge in edges)]
        entities = [{"id": id} for id in dict.fromkeys(edge["id"] for edge in edges)]
        self._graph.execute("BEGIN TRANSACTION")
        try:
            self._ask("MATCH (m:Memory {collection: $id}) DETACH DELETE m", own)
            self._ask("MATCH (e:Entity {collection: $id}) DETACH DELETE e", own)
            if edges:
                create = "UNWIND $rows AS r CREATE (:Memory {collection: $id, seq: r.seq})"
                self._ask(create, {"rows": nodes, **own})
                create = "UNWIND $rows AS r CREATE (:Entity {collection: $id, id: r.id})"
                self._ask(create, {"rows": entities, **own})
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


class LadybugMemories(StoredMemories):
    """The collections and memories of one namespace, associated by a graph database."""

    def __init__(
        self,
        database: Callable[[], Database],
        namespace: str,
        graph: Callable[[], LadybugGraph],
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
        return self._graph().reach(connection, collection, held, first, hops)
