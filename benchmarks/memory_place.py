"""A store of memories for a benchmark, filled through a run of its own so that embeddings are kept;
used by `guide.py`, `recall_cue.py` and `recall_ranking.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textevolve import Settings, TextEvolveError
from textevolve.agents.resources import CollectionSpec
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.record import Add, NewMemory, Origin
from textevolve.runs.stored import open_standing_run
from textevolve.settings import read_settings, today
from textevolve.store import kinds
from textevolve.wiring import Setting, Workbench

NAMES = (
    *("Larkspur", "Marlowe", "Quillon", "Tamsin", "Orrery", "Pellworth", "Vesper", "Halden"),
    *("Ironwood", "Corvane", "Ashgrove", "Dunmore", "Elsinar", "Fenwick", "Galloway", "Hestia"),
    *("Juniper", "Kestrel", "Lindqvist", "Moravel", "Norrland", "Ostrava", "Pemberly", "Rosalind"),
    *("Sandrine", "Thornby", "Ulverton", "Wexcombe", "Yarrow", "Zephyrine", "Bramwell", "Calder"),
)


@dataclass
class Place:
    """A store of memories, and the models of a run of its own."""

    bench: Workbench
    embedder: str

    async def fill(self, name: str, rows: Sequence[tuple[str, float]], origin: Origin) -> None:
        """A collection with these texts, each with its importance; one that is there already, from
        a benchmark that was stopped, stays as it is."""
        namespace, resources = self.bench.settings.namespace, self.bench.resources
        resources.ensure_namespace(namespace)
        if any(
            collection.name == name and collection.version
            for collection in resources.read(kinds.list_all, kinds.COLLECTIONS, namespace)
        ):
            return
        vectors = await embed_texts(self.bench.model_of(self.embedder), [text for text, _ in rows])
        spec = CollectionSpec(name=name, embedder=self.embedder, dimension=len(vectors[0]))
        resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)
        new = [
            Add(NewMemory(text=text, embedding=vector, importance=importance, origin=origin))
            for (text, importance), vector in zip(rows, vectors, strict=True)
        ]
        await resources.memories(namespace).apply(name, new)


@asynccontextmanager
async def open_place(settings: Settings, embedder: str) -> AsyncGenerator[Place]:
    setting = Setting(embedder, (embedder,), today())
    async with open_standing_run("memory", {}, setting, settings, source="benchmark") as bench:
        yield Place(bench, embedder)


def run_benchmark(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, None]],
) -> None:
    """Do the work in a store of its own, that of the option `--store`."""
    options = parser.parse_args()
    settings = read_settings().model_copy(update={"store": options.store, "memory_store": None})
    try:
        asyncio.run(work(options, settings))
    except TextEvolveError as error:
        sys.exit(f"error: {error}")
