"""`create_memories`, async and sync: memories from dialogues that a program has, or from files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textevolve.api.running import arun, in_sync, split_keywords, takes_fields
from textevolve.studies.create_memories import CreateMemoriesSpec
from textevolve.studies.create_memories_report import Creation
from textevolve.studies.dialogue_rows import DialogueLike, take_dialogues


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
