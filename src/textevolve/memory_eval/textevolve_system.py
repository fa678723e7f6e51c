"""TextEvolve's own memories as a memory system: it creates memories as `memories create` does, and
recalls them. The caller passes the store, since this layer knows none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.model import Model
from textevolve.memory.creation import create_memories
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import ChangeSource, Embed, MemoryStore
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.systems import Capabilities, MemorySystem

NAME = "textevolve"
CAPABILITIES = Capabilities(durable=True)


class OwnPlan(CreationSettings):
    """The options of `textevolve:OPTIONS`. `model`, `embedder`: None means those of the run."""

    model: str | None = None
    embedder: str | None = None


def names_own(spec: str) -> bool:
    """Check whether a spec names TextEvolve's own memory system."""
    return spec.strip().partition(":")[0] == NAME


def read_own(spec: str) -> OwnPlan:
    """Read the options in a spec: `textevolve`, or `textevolve:NAME=VALUE,NAME=VALUE` with `model`,
    `embedder` and the fields of `CreationSettings`.

    Raises:
        InputError: an option cannot be used; the message has the reason.
    """
    _, _, text = spec.partition(":")
    options: dict[str, Any] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, value = part.partition("=")
        options[name.strip()] = value.strip()
    try:
        return OwnPlan(**options)
    except InputError as error:
        raise InputError(f"system '{spec}': {error}") from None


@dataclass
class TextEvolveSystem(MemorySystem):
    """TextEvolve's own memories as a memory system, with one collection for each user.
    `open_memories`: returns where a user's memories are stored: the store, and the name of a
    collection. `close`: called when the system is closed."""

    name: str
    plan: OwnPlan
    open_memories: Callable[[str], Awaitable[tuple[MemoryStore, str]]]
    embed: Embed
    model: Model
    close: Callable[[], None]

    capabilities = CAPABILITIES

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        store, collection = await self.open_memories(user)
        source = ChangeSource("", user)
        created = await create_memories(
            store, self.embed, self.model, collection, dialogue, self.plan, source
        )
        return created.texts

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        """Return the texts of the most relevant memories, with the default weights of recall."""
        store, collection = await self.open_memories(user)
        settings = RecallSettings(collections=(collection,), limit=limit)
        recalled = await recall_memories(store, self.embed, settings, query)
        return [memory.text for memory in recalled.memories]

    async def aclose(self) -> None:
        self.close()
