"""The protocol of memory stores; `store` has the stores themselves.

A `MemoryStore` belongs to one namespace (an isolated workspace), and none of its methods can reach
another namespace: names and ids of other namespaces are not found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from textevolve.memory.record import (
    Applied,
    Change,
    ChangeSource,
    Collection,
    MemoryRecord,
    Vector,
)

Embed: TypeAlias = Callable[[Collection, str], Awaitable[Vector]]
"""A function that embeds a text with the embedder of a collection. May raise ModelError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery:
    """A search for memories of one collection.

    `text`: for the search by keywords; `embedding`: for the search by embedding; at least one is
    needed. `limit`: the maximum number of memories from each of the two searches. `version`: the
    version of the collection to search; None: the current one. The result for a version never
    changes, since it is read as of the time of its last change. `time`: search the memories that
    were valid at this time, in seconds since 1970, including those superseded later; None: the
    current ones. `least_trust`: the least trust of a memory, in [0, 1].
    """

    collection: str
    text: str = ""
    embedding: Vector | None = None
    limit: int = 50
    version: int | None = None
    time: float | None = None
    least_trust: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A memory that a search found. Ranks count from 1, None if that search did not find the
    memory. `similarity`: the cosine of its embedding and the query's, in [-1, 1]."""

    memory: MemoryRecord
    dense_rank: int | None = None
    keyword_rank: int | None = None
    similarity: float | None = None


class MemoryStore(Protocol):
    """The collections and memories of one namespace. Every method may raise StoreError."""

    @property
    def namespace(self) -> str: ...

    async def collection(self, name: str) -> Collection:
        """Return the collection of this name.

        Raises:
            InputError: the namespace has no collection of this name.
        """
        ...

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        """Return the matches by embedding and by keywords, joined, in no particular order.

        Raises:
            InputError: the collection does not exist, or the embedding has another dimension.
        """
        ...

    async def associate(
        self, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        """Return memories that share entities with the memories whose ids are `starts`, directly or
        over up to `hops` steps, nearest first, without the starts; at most `query.limit`."""
        ...

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        """Return the memories with these ids, in their order.

        Raises:
            InputError: a memory does not exist.
        """
        ...

    async def page(
        self,
        collection: str,
        *,
        after: str | None = None,
        limit: int = 100,
        version: int | None = None,
        closed: bool = False,
    ) -> Sequence[MemoryRecord]:
        """Return memories in the order of storing, after the one with the id `after`; with `closed`
        superseded and forgotten memories, too."""
        ...

    async def apply(
        self, collection: str, changes: Sequence[Change], source: ChangeSource | None = None
    ) -> Applied:
        """Apply all of the changes and update the indexes, or change nothing.

        Raises:
            InputError: a memory is invalid; the message says why.
            ConflictError: a memory to supersede or forget is already closed.
        """
        ...

    async def applied(self, collection: str, key: str) -> Applied | None:
        """Return the result of the changes whose source has this key; None if they were never
        applied."""
        ...
