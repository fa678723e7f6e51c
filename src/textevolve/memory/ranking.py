"""The models by which memories are found: embeddings find candidates, and late interaction or a
cross-encoder orders them.

Late interaction (Khattab and Zaharia, ColBERT, SIGIR 2020) compares each token of a query with its
nearest token of a memory. The vectors of a memory's tokens are stored with it; those that an older
store lacks are computed when they are needed. Searches and scores of candidates are in `recall`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from textevolve.engine.local import gather_bounded
from textevolve.errors import FatalModelError, InputError, SettingsError
from textevolve.ledger import log
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.embeddings import (
    PackedTokens,
    embed_texts,
    embed_tokens,
    score_pair,
    unpack_tokens,
)
from textevolve.llm.model import Model
from textevolve.memory.record import (
    Change,
    Collection,
    Embed,
    Forget,
    MemoryRecord,
    TokenVectors,
    Vector,
)
from textevolve.settings import Rerank

LATE_MODEL = "local/colbert-small"
CROSS_MODEL = "local/cross-minilm"
AT_ONCE = 32
"""The number of texts that are encoded concurrently."""
CROSS_CANDIDATES = 20
"""The number of the best candidates that a cross-encoder orders."""
COSINE_WEIGHT = 0.05
EARLIER_WEIGHT = 0.2
LATER_WEIGHT = 0.1
"""The weights of three terms that are added to the score of a memory by late interaction: its
cosine, and the scores of the turns before and after it, as far as they exceed the median, since an
answer stands beside its question. Chosen on three conversations of LoCoMo and
on five people of `benchmarks/recall_people.txt` (docs/measurements.md)."""
LATE_SHARE = 0.3
"""The weight of the first order beside that of a cross-encoder."""


@dataclass(frozen=True, slots=True)
class MemoryModels:
    """The models that find memories; to be called like an `Embed`.

    Attributes:
        model_of: Opens the model of a spec.
        rerank: How candidates are ordered. `auto` is `late` for collections that are embedded by a
            local model, and `off` for others; without the weights of late interaction `auto` warns
            once and does without.
        made_up: Whether to replace each vector by a constant one after the call, as in a cost
            estimate.
    """

    model_of: Callable[[str], Awaitable[Model]]
    rerank: Rerank = "auto"
    made_up: bool = False
    _missing: list[str] = field(default_factory=list[str])

    async def __call__(self, collection: Collection, text: str, /) -> Vector:
        """Embed a text with the embedder of a collection.

        Raises:
            InputError: the embedder gives vectors of another dimension than the collection has.
            ModelError: the embedder gave no vector.
        """
        model = await self.model_of(collection.embedder)
        (vector,) = await embed_texts(model, [text])
        if self.made_up:
            return np.eye(1, collection.dimension, dtype=np.float32)[0]
        if len(vector) != collection.dimension:
            raise InputError(
                f"{collection.embedder} gives embeddings of {len(vector)} numbers, and the"
                f" collection {collection.full_name} has {collection.dimension}: if its model was"
                " replaced, embed the memories again with `textevolve memories re-embed"
                f" {collection.full_name} --embedder {collection.embedder}`"
            )

        return vector

    def token_model(self, collection: Collection) -> str:
        """Return the spec of the model whose token vectors order the memories of a collection;
        empty if they are not ordered so."""
        if self.made_up or self.rerank == "off" or self._missing:
            return ""
        if self.rerank == "auto" and embedder_of(collection.embedder) is None:
            return ""
        return LATE_MODEL

    async def tokens(self, texts: Sequence[str]) -> list[PackedTokens] | None:
        """Return the token vectors of texts; None if `rerank` is auto and the model cannot be had.

        Raises:
            ModelError: there is no answer.
        """
        try:
            model = await self.model_of(LATE_MODEL)
            return await gather_bounded(
                [lambda text=text: embed_tokens(model, text) for text in texts], AT_ONCE
            )
        except (FatalModelError, SettingsError) as error:
            if self.rerank != "auto":
                raise
            if not self._missing:
                log.warning(
                    "memories are ranked by their embeddings alone: %s (rerank = off in [memory]"
                    " ends this warning)",
                    error,
                )
            self._missing.append(str(error))

        return None

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers the query, by the cross-encoder.

        Raises:
            ModelError: there is no answer.
        """
        model = await self.model_of(CROSS_MODEL)
        return await gather_bounded(
            [lambda text=text: score_pair(model, query, text) for text in texts], AT_ONCE
        )


async def token_vectors(
    embed: Embed, collection: Collection, texts: Sequence[str]
) -> list[TokenVectors]:
    """Return the token vectors of the texts of memories, to be stored with them; empty if the
    collection's memories are not ordered by them."""
    if not isinstance(embed, MemoryModels) or not (name := embed.token_model(collection)):
        return []
    packed = await embed.tokens(texts)
    return [TokenVectors(name, each) for each in packed or ()]


async def with_tokens(
    embed: Embed,
    collection: Collection,
    changes: Sequence[Change],
    evidence: Sequence[str] = (),
) -> Sequence[Change]:
    """Return changes whose new memories have token vectors, if those of the collection are ordered
    by them. `evidence`: for each new memory the turn behind it, by whose words it is found, too."""
    new = [change for change in changes if not isinstance(change, Forget)]
    turns = evidence or [""] * len(new)
    texts = [f"{e.memory.text} {turn}".strip() for e, turn in zip(new, turns, strict=True)]
    tokens = await token_vectors(embed, collection, texts)

    # No token vectors at all: the collection is not ordered by them.
    with_vectors = {
        id(change): replace(change, memory=replace(change.memory, tokens=vectors))
        for change, vectors in zip(new, tokens, strict=bool(tokens))
    }

    return [with_vectors.get(id(change), change) for change in changes]


async def interact(
    models: MemoryModels,
    queries: Sequence[str],
    memories: Mapping[str, MemoryRecord],
    stored: Mapping[str, PackedTokens],
) -> list[dict[str, float]] | None:
    """Return for each query the late interaction with all memories, by their ids; None if the model
    cannot be had. `stored`: the token vectors that the store has."""
    missing = [id for id in memories if id not in stored]
    packed = await models.tokens([*queries, *(memories[id].text for id in missing)])
    if packed is None:
        return None
    all_packed = {**stored, **dict(zip(missing, packed[len(queries) :], strict=True))}
    tokens = [all_packed[id] for id in memories]
    starts = np.cumsum([0, *(len(each) for each in tokens[:-1])])
    vectors = unpack_tokens(np.concatenate(tokens))
    earlier, later = _find_neighbours(list(memories.values()))
    scores: list[dict[str, float]] = []

    for query in packed[: len(queries)]:
        # Not a matrix product, whose threads wait for each other on a busy machine.
        cosines = np.einsum("ij,kj->ik", unpack_tokens(query), vectors)
        means = np.maximum.reduceat(cosines, starts, axis=1).mean(axis=0)
        # The last entry stands for a neighbour that is not there.
        excess = np.append(np.maximum(0.0, means - np.median(means)), 0.0)
        means = means + EARLIER_WEIGHT * excess[earlier] + LATER_WEIGHT * excess[later]
        scores.append(dict(zip(memories, means.tolist(), strict=True)))

    return scores


def _find_neighbours(memories: Sequence[MemoryRecord]) -> tuple[list[int], list[int]]:
    """Return, for each memory, the position of one from the turn before in the same source, and
    from the turn after; -1 if there is none."""
    places = {
        (memory.origin.source, memory.origin.turn): place
        for place, memory in enumerate(memories)
        if memory.origin.turn is not None
    }

    def find(memory: MemoryRecord, step: int) -> int:
        turn = memory.origin.turn
        return -1 if turn is None else places.get((memory.origin.source, turn + step), -1)

    return [find(memory, -1) for memory in memories], [find(memory, 1) for memory in memories]
