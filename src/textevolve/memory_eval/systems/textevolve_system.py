"""TextEvolve's own memories as a memory system: what `memories create` does, then recall.

Where memories are kept is handed in, since no store is known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.llm.model import Model
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.creation import create_memories
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.index import Embed, MemoryStore
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import ChangeSource
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.system import Capabilities, MemorySystem
from textevolve.spec import suggest

NAME = "textevolve"
CAPABILITIES = Capabilities(durable=True)

OpenMemories: TypeAlias = Callable[[str], Awaitable[tuple[MemoryStore, str]]]
"""From a user to where that user's memories are kept: a store, and the name of a collection."""


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """What `textevolve:OPTIONS` says. `model`, `embedder`: None are those of the run."""

    settings: CreationSettings
    model: str | None = None
    embedder: str | None = None
    given: str = ""

    @property
    def name(self) -> str:
        return f"{NAME}:{self.given}" if self.given else NAME


def names_own(spec: str) -> bool:
    """Whether a spec names this system."""
    return spec.strip().partition(":")[0] == NAME


def read_own(spec: str) -> OwnPlan:
    """`textevolve`, or `textevolve:NAME=VALUE,NAME=VALUE` with `model`, `embedder` and what
    `CreationSettings` has.

    Raises:
        InputError: an option cannot be used; says which there are.
    """
    _, colon, said = spec.strip().partition(":")
    known = ("model", "embedder", *CreationSettings.model_fields)
    given: dict[str, Any] = {}
    for part in said.split(",") if colon else ():
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (equals and value) or name not in known:
            raise InputError(
                f"system '{spec}': '{part}' is no option, give NAME=VALUE{suggest(name, known)}"
            )
        given[name] = value
    models = {name: given.pop(name, None) for name in ("model", "embedder")}
    try:
        settings = CreationSettings(**given)
    except InputError as error:
        raise InputError(f"system '{spec}': {error}") from None
    return OwnPlan(settings, models["model"], models["embedder"], said.strip())


@dataclass
class TextEvolveSystem(MemorySystem):
    """Each user has a collection. `close` is called when the system is let go."""

    plan: OwnPlan
    open_memories: OpenMemories
    embed: Embed
    model: Model
    close: Callable[[], None]
    _tokens: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.name, self.capabilities = self.plan.name, CAPABILITIES

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        store, collection = await self.open_memories(user)
        meter = UsageMeter(self.model)
        source = ChangeSource("", user)
        try:
            created = await create_memories(
                store, self.embed, meter, collection, dialogue, self.plan.settings, source
            )
        finally:
            self._tokens[user] = meter.usage.tokens
        return created.texts

    def spent(self, user: str) -> int:
        """Return the chat model's tokens of the user's last `add`, without embeddings."""
        return self._tokens.get(user, 0)

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        """Return the texts of the most relevant memories, with the default weights of recall."""
        store, collection = await self.open_memories(user)
        settings = RecallSettings(collections=(collection,), limit=limit)
        recalled = await recall_memories(store, self.embed, settings, query)
        return [memory.text for memory in recalled.memories]

    async def aclose(self) -> None:
        self.close()


def describe_own(plan: OwnPlan, embedder: str, prompts: Mapping[str, str]) -> dict[str, Any]:
    """What makes two systems of this name different, beside their options."""
    return {"embedder": plan.embedder or embedder, "prompts": dict(prompts)}
