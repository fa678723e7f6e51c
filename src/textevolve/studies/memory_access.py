"""How whoever works on memories gets at them: stores by name, and embeddings that fit a collection.

What is done with memories is in `textevolve.memory`.
"""

from __future__ import annotations

from textevolve.agents.resources import split_name
from textevolve.memory.index import Embed, MemoryStore
from textevolve.memory_snapshots import embed_with
from textevolve.wiring import Workbench


def embed_for(bench: Workbench) -> Embed:
    """Embeds texts by the embedders of collections. While a study is rehearsed they are asked, and
    the vectors mean nothing.

    Raises, when it is called:
        InputError: the embedder gives vectors of another dimension than the collection has.
        ModelError: no embedding came.
    """
    return embed_with(bench.model_of, made_up=bench.mode not in ("live", "replay"))


def memories_of(bench: Workbench, name: str) -> tuple[MemoryStore, str]:
    """The store that holds a collection, and the collection's own name; `name` as NAMESPACE/NAME,
    or NAME in the namespace of the settings. Whether there is one is found out by asking.

    Raises:
        InputError: it is no name.
    """
    namespace, collection = split_name(name, bench.settings.namespace)
    return bench.resources.memories(namespace), collection
