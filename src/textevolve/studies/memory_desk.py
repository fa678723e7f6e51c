"""What somebody works with who puts memories into a namespace and looks for them, outside a study:
the store, and models that embed, which are opened with the first text that has to be embedded.
"""

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
    """`source`: who works here, such as the command line. `opened`: where models are asked, once it
    is open, or where somebody else has opened it."""

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
        """Where models are asked; what they answer is kept as a run. `embedder`: the model that is
        wanted first.

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
        """A text as the memories of a collection are embedded.

        Raises:
            InputError: the embedder's dimension is another by now. ModelError: nothing came.
        """
        return await (await self.bench(collection.embedder)).embed(collection, text)

    async def embed_all(self, collection: Collection, texts: Sequence[str]) -> list[Vector]:
        """The same for several texts, in their order."""
        work = [lambda text=text: self.embed(collection, text) for text in texts]
        return await gather_bounded(work, EMBEDDED_AT_ONCE)

    @asynccontextmanager
    async def erasing(self, texts: Sequence[str]) -> AsyncGenerator[None]:
        """Erase texts from the journal and all that was made of it; their memories are deleted in
        the body. In the end no page of a store holds them.

        Raises:
            StoreError: a store cannot be written.
        """
        if texts:
            await self._visit_stores(partial(erase_texts, texts=texts))
        yield
        if texts:
            await self._visit_stores(scrub_store)

    async def _visit_stores(self, visit: Callable[[StoreLocation], None]) -> None:
        """Of runs, where there is one yet, and of memories."""
        for one in dict.fromkeys((self.settings.store, self.settings.memory_location)):
            if not isinstance(one, Path) or one.expanduser().is_file():
                await asyncio.to_thread(visit, one)

    async def settle(self, embedder: str | None, dimension: int | None) -> tuple[str, int]:
        """The full spec of an embedder, that of the settings where none is named, and its
        dimension, for which it is asked where nobody says it.

        Raises:
            SettingsError: there is no such model. ModelError: it gives no embedding.
        """
        named = embedder or self.settings.embedder
        found, _ = await choose_model(self.settings, named, asks=dimension is None)
        if dimension is None:
            bench = await self.bench(found)
            (vector,) = await embed_texts(bench.model_of(found), ["dimension"])
            dimension = len(vector)
        return found, dimension
