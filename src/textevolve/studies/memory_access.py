"""How whoever works on memories gets at them: stores by name, and embeddings that fit a collection.

What is done with memories is in `textevolve.memory`.
"""

from __future__ import annotations

import numpy as np

from textevolve.agents.resources import split_name
from textevolve.errors import InputError
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.index import Embed, MemoryStore
from textevolve.memory.record import Collection, Vector
from textevolve.wiring import Workbench


def embed_for(bench: Workbench) -> Embed:
    """Embeds texts by the embedders of collections. While a study is rehearsed they are asked, and
    the vectors mean nothing.

    Raises, when it is called:
        InputError: the embedder gives vectors of another dimension than the collection has.
        ModelError: no embedding came.
    """
    made_up = bench.mode not in ("live", "replay")

    async def embed_text(collection: Collection, text: str) -> Vector:
        (vector,) = await embed_texts(bench.model_of(collection.embedder), [text])
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


def memories_of(bench: Workbench, name: str) -> tuple[MemoryStore, str]:
    """The store that holds a collection, and the collection's own name; `name` as NAMESPACE/NAME,
    or NAME in the namespace of the settings. Whether there is one is found out by asking.

    Raises:
        InputError: it is no name.
    """
    namespace, collection = split_name(name, bench.settings.namespace)
    return bench.resources.memories(namespace), collection
