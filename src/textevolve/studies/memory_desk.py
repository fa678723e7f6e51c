"""Access to the memories of a namespace outside a study. It combines the store with the embedders
(embedding models), which are opened when the first text is embedded."""

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

EMBEDDED_AT_ONCE = 32  # the number of texts that are embedded concurrently


@dataclass
class MemoryDesk:
    """The memories of a namespace, and the models that embed texts for them.

    Attributes:
        resources: The store of memories.
        stack: Closes the models at the end.
        source: The caller, such as the command line.
        limits: The limits of the model calls.
        opened: The workbench (the open models); None until it is needed, unless the caller has
            opened one.
    """

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
        """Return the workbench, whose model calls are stored as a run; the first call opens it.
        `embedder`: the first model.

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
        """Embed a text with the model that embedded the memories of a collection.

        Raises:
            InputError: the dimension of its embeddings has changed. ModelError: there is no answer.
        """
        return await (await self.bench(collection.embedder)).embed(collection, text)

    async def embed_all(self, collection: Collection, texts: Sequence[str]) -> list[Vector]:
        """Embed several texts; return the vectors in their order."""
        work = [lambda text=text: self.embed(collection, text) for text in texts]
        return await gather_bounded(work, EMBEDDED_AT_ONCE)

    @asynccontextmanager
    async def erasing(self, texts: Sequence[str]) -> AsyncGenerator[None]:
        """Erase texts from the journal and from everything derived from it; the caller deletes
        their memories within the block. Afterwards no page of a store's file contains them.

        Raises:
            StoreError: a store cannot be written.
        """
        if texts:
            await self._visit_stores(partial(erase_texts, texts=texts))
        yield
        if texts:
            await self._visit_stores(scrub_store)

    async def _visit_stores(self, visit: Callable[[StoreLocation], None]) -> None:
        """Call a function with the store of runs, if it exists, and with the store of memories."""
        for location in dict.fromkeys((self.settings.store, self.settings.memory_location)):
            if not isinstance(location, Path) or location.expanduser().is_file():
                await asyncio.to_thread(visit, location)

    async def settle(self, embedder: str | None, dimension: int | None) -> tuple[str, int]:
        """Return the full name of an embedder, and the dimension of its embeddings. `embedder`:
        None means the settings' own. `dimension`: None means that it is measured by a call.

        Raises:
            SettingsError: there is no such model. ModelError: it returns no embedding.
        """
        requested_model = embedder or self.settings.embedder
        model, _ = await choose_model(self.settings, requested_model, asks=dimension is None)
        if dimension is None:
            bench = await self.bench(model)
            (vector,) = await embed_texts(bench.model_of(model), ["dimension"])
            dimension = len(vector)
        return model, dimension
