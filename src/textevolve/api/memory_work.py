"""Work on what agents remember, async and sync: integrate, read documents, evolve a persona."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from textevolve.api.running import arun, in_sync, split_keywords, takes_fields
from textevolve.studies.create_memories import CreateMemoriesSpec, Creation
from textevolve.studies.dialogue_rows import DialogueLike, take_dialogues
from textevolve.studies.evolve_persona import EvolvedPersona, EvolvePersonaSpec
from textevolve.studies.integrate_memories import IntegrateMemoriesSpec, Integration
from textevolve.studies.read_corpus import DocumentReading, ReadCorpusSpec


@takes_fields(CreateMemoriesSpec)
async def acreate_memories(
    dialogues: str | Path | Iterable[DialogueLike], collection: str, **fields: Any
) -> Creation:
    """Make memories of dialogues, and keep them in a collection, as NAME or NAMESPACE/NAME.

    `dialogues`: a file or folder, or lists of messages (`{"role": ..., "content": ...}`, with a
    `timestamp` where it is known); a single list of messages is one dialogue. The other names are
    those of `CreateMemoriesSpec` and `RunKeywords`. The same dialogue twice adds nothing; of one
    that has gone on, only the new turns are read.

    Raises:
        InputError: a dialogue cannot be used, or there is no such collection.
        FatalModelError: no call can succeed; what was done is kept.
    """
    own, keywords = split_keywords(CreateMemoriesSpec, fields)
    if isinstance(dialogues, str | Path):
        spec = CreateMemoriesSpec(data=str(dialogues), collection=collection, **own)
        return await arun(spec, **keywords)
    cases = [one.as_case() for one in take_dialogues(dialogues)]
    spec = CreateMemoriesSpec(data="from Python", collection=collection, **own)
    return await arun(spec, cases=cases, **keywords)


create_memories = in_sync(acreate_memories)


@takes_fields(IntegrateMemoriesSpec)
async def aintegrate_memories(agent: str | None = None, **fields: Any) -> Integration:
    """Draw insights from an agent's memories (reflection), when enough importance has gathered.

    `agent`: NAME or NAMESPACE/NAME; or `sources` and `into` name collections. The other names are
    those of `IntegrateMemoriesSpec` and `RunKeywords`.

    Raises:
        InputError: the agent, a collection or a number cannot be used.
        FatalModelError: no call can succeed.
    """
    own, keywords = split_keywords(IntegrateMemoriesSpec, fields)
    return await arun(IntegrateMemoriesSpec(agent=agent, **own), **keywords)


@takes_fields(ReadCorpusSpec)
async def aread_corpus(
    files: str | Sequence[str], *, collection: str, **fields: Any
) -> tuple[DocumentReading, ...]:
    """Read documents into a collection, a memory for each chunk. What was read before and has not
    changed stays as it is. The names are those of `ReadCorpusSpec` and `RunKeywords`.

    Raises:
        InputError: a file, the collection or a number cannot be used.
        ConflictError: somebody else changed a document's memories meanwhile.
    """
    own, keywords = split_keywords(ReadCorpusSpec, fields)
    named = (files,) if isinstance(files, str) else tuple(files)
    return await arun(ReadCorpusSpec(files=named, collection=collection, **own), **keywords)


@takes_fields(EvolvePersonaSpec)
async def aevolve_persona(agent: str, **fields: Any) -> EvolvedPersona:
    """Change an agent's persona by a few small edits that follow from its memories; with `propose`
    only say which. The names are those of `EvolvePersonaSpec` and `RunKeywords`.

    Raises:
        InputError: the agent or a number cannot be used.
        ConflictError: the persona was changed meanwhile.
        FatalModelError: no call can succeed.
    """
    own, keywords = split_keywords(EvolvePersonaSpec, fields)
    return await arun(EvolvePersonaSpec(agent=agent, **own), **keywords)


integrate_memories = in_sync(aintegrate_memories)
read_corpus = in_sync(aread_corpus)
evolve_persona = in_sync(aevolve_persona)
