"""TextEvolve's own memories, opened for an evaluation: in a file of the run's own, beside the store
of runs, so that a run that was stopped goes on, and nobody's memories are touched."""

from __future__ import annotations

import asyncio
import hashlib

from textevolve.agents.resources import CollectionSpec
from textevolve.llm.embeddings import embed
from textevolve.memory.index import MemoryStore
from textevolve.memory_eval.systems.textevolve_system import TextEvolveSystem, read_own
from textevolve.settings import folder_beside
from textevolve.store import ResourceStore
from textevolve.wiring import Workbench

NAMESPACE = "memory-eval"
FOLDER = "memory-eval"


def open_own(spec: str, bench: Workbench) -> TextEvolveSystem:
    """The system that a spec names, on the models of a run.

    Raises:
        InputError: an option cannot be used.
    """
    plan = read_own(spec)
    embedder = bench.described["textevolve"]["embedder"]
    folder = folder_beside(bench.settings.store) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    resources = ResourceStore(str(folder / f"{bench.run}.db"))
    opened: dict[str, str] = {}
    opening = asyncio.Lock()

    async def open_memories(user: str) -> tuple[MemoryStore, str]:
        async with opening:
            if user not in opened:
                opened[user] = await _create(resources, embedder, user, bench)
        return resources.memories(NAMESPACE), opened[user]

    model = bench.model if plan.model is None else bench.model_of(plan.model)
    return TextEvolveSystem(plan, open_memories, bench.embed, model, resources.close)


async def _create(resources: ResourceStore, embedder: str, user: str, bench: Workbench) -> str:
    """The collection of a user, made where it is not there yet."""
    name = f"user-{hashlib.sha256(user.encode()).hexdigest()[:24]}"

    def find() -> bool:
        resources.ensure_namespace(NAMESPACE)
        return any(one.name == name for one in resources.list_collections(NAMESPACE))

    if not await asyncio.to_thread(find):
        dimension = len(await embed(bench.model_of(embedder), "How many numbers?"))
        made = CollectionSpec(name=name, embedder=embedder, dimension=dimension)
        await asyncio.to_thread(resources.create_collection, NAMESPACE, made)
    return name
