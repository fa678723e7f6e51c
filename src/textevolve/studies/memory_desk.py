"""Access to the memories of a namespace outside a study: the store, and embedders, which are opened
when the first text is embedded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from textevolve.engine.local import gather_bounded
from textevolve.events import Listener, silence
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.record import Collection, Vector
from textevolve.settings import Settings, StoreLocation, today
from textevolve.store.erasure import erase_texts
from textevolve.store.memories import StoredMemories
from textevolve.store.repository import Store
from textevolve.store.upkeep import scrub_store
from textevolve.studies.standing import open_standing_run
from textevolve.wiring import Limits, Setting, Workbench, choose_model

EMBEDDED_AT_ONCE = 32


@dataclass
class MemoryDesk:
    """The store of memories and its embedders. `source`: the caller, such as the command line.
    `opened`: the workbench of the models, once it is open, or if the caller has opened it."""

    settings: Settings
    namespace: str
    resources: Store
    stack: AsyncExitStack
    source: str
    limits: Limits = Limits()
    listener: Listener = silence
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: Workbench | None = None

    @property
    def memories(self) -> StoredMemories:
        return self.resources.memories(self.namespace)

    async def bench(self, embedder: str) -> Workbench:
        """Return the workbench of the models, whose answers are stored as a run. `embedder`: the
        first model.

        Raises:
            StoreError: the store of runs cannot be used.
        """
        async with self._lock:
            if self.opened is None:
                day = today()
                spec = {"namespace": self.namespace, "model": embedder, "today": day}
                opened = open_standing_run(
                    "memory",
                    spec,
                    Setting(embedder, (embedder,), day),
                    self.settings,
                    source=self.source,
                    limits=self.limits,
                    listener=self.listener,
                )
                self.opened = await self.stack.enter_async_context(opened)
            return self.opened

    async def embed(self, collection: Collection, text: str) -> Vector:
        """Embed a text like the memories of a collection.

        Raises:
            InputError: the embedder's dimension has changed. ModelError: there is no answer.
        """
        return await (await self.bench(collection.embedder)).embed(collection, text)

    async def embed_all(self, collection: Collection, texts: Sequence[str]) -> list[Vector]:
        """Embed several texts; return the vectors in their order."""
        work = [lambda text=text: self.embed(collection, text) for text in texts]
        return await gather_bounded(work, EMBEDDED_AT_ONCE)

    @asynccontextmanager
    async def erasing(self, texts: Sequence[str]) -> AsyncGenerator[None]:
        """Erase texts from the journal and everything derived from it; the body deletes their
        memories. At the end no page of a store contains them.

        Raises:
            StoreError: a store cannot be written.
        """
        if texts:
            await self._visit_stores(partial(erase_texts, texts=texts))
        yield
        if texts:
            await self._visit_stores(scrub_store)

    async def _visit_stores(self, visit: Callable[[StoreLocation], None]) -> None:
        """Visit the store of runs, if it exists, and that of memories."""
        for location in dict.fromkeys((self.settings.store, self.settings.memory_location)):
            if not isinstance(location, Path) or location.expanduser().is_file():
                await asyncio.to_thread(visit, location)

    async def settle(self, embedder: str | None, dimension: int | None) -> tuple[str, int]:
        """Return the full spec of an embedder, by default that of the settings, and its dimension,
        which is measured if it is None.

        Raises:
            SettingsError: there is no such model. ModelError: it gives no embedding.
        """
        requested_model = embedder or self.settings.embedder
        model, _ = await choose_model(self.settings, requested_model, asks=dimension is None)
        if dimension is None:
            bench = await self.bench(model)
            (vector,) = await embed_texts(bench.model_of(model), ["dimension"])
            dimension = len(vector)
        return model, dimension
