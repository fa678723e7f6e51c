"""Collections of memories as they stood when a run began, and what debaters recall from them.

A run pins the version of each collection that its debaters name, so that it goes on with what they
knew at its beginning, and another version makes another run. How memories are found is in `memory`;
what is kept of them, in `store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from textevolve import store
from textevolve.agents.resources import split_name
from textevolve.errors import InputError
from textevolve.llm.embeddings import embed_texts
from textevolve.llm.model import Model
from textevolve.memory.cue import Cue, Memory, Recall
from textevolve.memory.index import Embed
from textevolve.memory.recall import RecallSource, Summarize, pinned, recall_from
from textevolve.memory.record import Collection, Vector
from textevolve.settings import Settings

if TYPE_CHECKING:
    from textevolve.store import Store


async def pin_collections(names: Iterable[str], settings: Settings) -> dict[str, int]:
    """The versions, by full names, that collections have now.

    Raises:
        InputError: there is no such collection, or it is no name. StoreError: nothing can be read.
    """
    versions = dict[str, int]()
    with closing(store.Store(settings.memory_location)) as resources:
        for name in sorted(set(names)):
            try:
                namespace, own = split_name(name, settings.namespace)
                found = await resources.memories(namespace).collection(own)
            except InputError as error:
                raise InputError(f"a debater recalls from '{name}': {error}") from None
            versions[found.full_name] = found.version
    return versions


def open_recall(
    resources: Store,
    namespace: str,
    embed: Embed,
    versions: Mapping[str, int] | None,
    summarize: Summarize | None = None,
) -> Recall:
    """What debaters remember; `namespace` is that of bare names. Of `versions` those alone are read
    that it names; None: all collections as they are now, where no run is to be made again."""

    async def recall(cue: Cue, /) -> tuple[Memory, ...]:
        if cue.settings is None:
            return ()
        sources: list[RecallSource] = []
        for name in dict.fromkeys(cue.settings.collections):
            space, own = split_name(name, namespace)
            version = pinned(versions, f"{space}/{own}")
            sources.append(RecallSource(resources.memories(space), own, version))
        found = await recall_from(sources, embed, cue.settings, cue, summarize=summarize)
        return found.memories

    return recall


def embed_with(model_of: Callable[[str], Model], *, made_up: bool = False) -> Embed:
    """Embeds texts by the embedders of collections. `made_up`: these are asked, as in a rehearsal,
    and the vectors mean nothing.

    Raises, when it is called:
        InputError: the embedder gives vectors of another dimension than the collection has.
        ModelError: no embedding came.
    """

    async def embed_text(collection: Collection, text: str) -> Vector:
        (vector,) = await embed_texts(model_of(collection.embedder), [text])
        if made_up:
            return np.eye(1, collection.dimension, dtype=np.float32)[0]
        if len(vector) != collection.dimension:
            raise InputError(
                f"{collection.embedder} gives embeddings of {len(vector)} numbers, and the"
                f" collection {collection.full_name} has {collection.dimension}: was the model"
                f" exchanged? `textevolve memories re-embed {collection.full_name}` embeds anew"
            )
        return vector

    return embed_text
