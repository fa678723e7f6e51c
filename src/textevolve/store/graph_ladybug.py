"""The graph of memories and entities in ladybug, an embedded graph database that speaks Cypher.

`LadybugMemories` is a `MemoryStore` whose `associate` queries this graph instead of the database's
recursive query, with the same results. The graph is derived from the database, which stays the only
source of truth: it is rebuilt when a collection has another version.
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

from textevolve.errors import StoreError, shorten_error
from textevolve.memory.record import Collection
from textevolve.store.database import Database
from textevolve.store.memories import StoredMemories
from textevolve.store.memory_rows import MemoryScope, in_scope, read_in_scope
from textevolve.store.tables import memories, mentions

_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Loaded(collection STRING PRIMARY KEY, version INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Memory(seq INT64 PRIMARY KEY, collection STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, collection STRING)",
    "CREATE REL TABLE IF NOT EXISTS Mentions(FROM Memory TO Entity)",
)
"""The tables of the graph: the loaded version of each collection, memories, entities, and mentions
of entities in memories."""
_STEP = """
    MATCH (a:Memory)-[:Mentions]->(:Entity)<-[:Mentions]-(m:Memory)
    WHERE a.seq IN $reached AND m.collection = $collection RETURN DISTINCT m.seq ORDER BY m.seq"""
"""The query for the memories that share an entity with those in `reached`, the memories of the step
before. Its result may contain memories of earlier steps."""


class LadybugGraph:
    """The graph of the collections of one database, in a folder that only one process at a time can
    use."""

    def __init__(self, folder: Path) -> None:
        """Open the graph database in a folder.

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

        self.folder = folder
        self._lock = threading.Lock()

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
        scope: MemoryScope,
        starts: Sequence[int],
        hops: int,
    ) -> list[int]:
        """Return the numbers (`seq`) of the memories that share entities with the starts, over at
        most `hops` steps, nearest first. The starts and memories outside the scope are left out."""
        with self._lock:
            try:
                self._fill(connection, collection)
                reached = set(starts)
                newest = list(starts)
                order: list[int] = []

                for _ in range(hops):
                    values = {"reached": newest, "collection": collection.id}
                    step = [seq for (seq,) in self._ask(_STEP, values) if seq not in reached]
                    current = read_in_scope(connection, scope, step)
                    newest = [seq for seq in step if seq in current]
                    order += newest
                    reached.update(newest)

                return order
            except RuntimeError as error:
                raise self._explain(error) from error

    def _ask(self, statement: str, values: dict[str, Any]) -> list[list[Any]]:
        result: Any = self._graph.execute(statement, values)
        return list(result)

    def _fill(self, connection: Connection, collection: Collection) -> None:
        """Build the graph of the collection's version atomically, unless this version is loaded
        already."""
        parameters = {"id": collection.id}
        loaded_version = self._ask(
            "MATCH (l:Loaded {collection: $id}) RETURN l.version", parameters
        )
        if loaded_version == [[collection.version]]:
            return
        pairs = select(mentions.c.seq, mentions.c.entity)
        rows = connection.execute(pairs.where(mentions.c.collection_id == collection.id)).all()
        edges = [{"seq": seq, "id": f"{collection.id} {entity}"} for seq, entity in rows]
        nodes = [{"seq": seq} for seq in dict.fromkeys(edge["seq"] for edge in edges)]
        entities = [{"id": id} for id in dict.fromkeys(edge["id"] for edge in edges)]
        self._graph.execute("BEGIN TRANSACTION")

        try:
            self._ask("MATCH (m:Memory {collection: $id}) DETACH DELETE m", parameters)
            self._ask("MATCH (e:Entity {collection: $id}) DETACH DELETE e", parameters)
            if edges:
                create = "UNWIND $rows AS r CREATE (:Memory {collection: $id, seq: r.seq})"
                self._ask(create, {"rows": nodes, **parameters})
                create = "UNWIND $rows AS r CREATE (:Entity {collection: $id, id: r.id})"
                self._ask(create, {"rows": entities, **parameters})
                self._ask(
                    "UNWIND $rows AS r MATCH (m:Memory {seq: r.seq}), (e:Entity {id: r.id})"
                    " CREATE (m)-[:Mentions]->(e)",
                    {"rows": edges},
                )

            self._ask(
                "MERGE (l:Loaded {collection: $id}) SET l.version = $version",
                {**parameters, "version": collection.version},
            )
            self._graph.execute("COMMIT")
        except BaseException:
            self._graph.execute("ROLLBACK")
            raise

    def _explain(self, error: Exception) -> StoreError:
        details = shorten_error(error)
        return StoreError(
            f"graph {self.folder}: cannot be used ({details}); end the other process using it, or"
            " delete the folder, which is rebuilt"
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
        scope: MemoryScope,
        starts: Sequence[str],
        hops: int,
    ) -> list[int]:
        in_collection = select(memories.c.seq).where(
            memories.c.collection_id == collection.id, in_scope(scope)
        )
        start_seqs = (
            connection.execute(in_collection.where(memories.c.id.in_(starts))).scalars().all()
        )

        return self._graph().reach(connection, collection, scope, start_seqs, hops)
