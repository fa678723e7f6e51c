"""The verbs that create memories, draw conclusions from them, and evaluate memory systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from textevolve.api.opener import AnyJudge, Opener, split_rows
from textevolve.api.results import Objects
from textevolve.api.verb_options import (
    CreationOptions,
    EvolutionOptions,
    IntegrationOptions,
    MemoryEvaluationOptions,
    ReadingOptions,
    takes_options,
)

if TYPE_CHECKING:
    from textevolve.evaluation import Results
    from textevolve.memory_eval.evaluation import MemoryEvaluation
    from textevolve.studies.memories.create import Creation, DialogueLike
    from textevolve.studies.memories.evolve_persona import EvolvedPersona
    from textevolve.studies.memories.integrate import Integration
    from textevolve.studies.memories.read_corpus import DocumentReading


class MemoryVerbs(Opener):
    """The verbs of `AsyncClient` about memories: create them, use them, and evaluate memory
    systems."""

    @takes_options(MemoryEvaluationOptions)
    async def evaluate_memory(
        self,
        data: str | Path,
        system: str | object,
        *,
        judge: AnyJudge | None = None,
        name: str = "",
        **options: Unpack[MemoryEvaluationOptions],
    ) -> MemoryEvaluation:
        """Feed the sessions of a data set to a memory system, and judge which points it stored,
        invented and updated, and its answers.

        `system`: as on the command line (`context`, `http://...`, `mem0`, ...), or an object with
        `add` and `search`, sync or async. An object is identified by the name of its class: set
        another `fresh` after changes of its code.
        """
        objects = Objects()

        return await self._run_kind(
            "memory-eval",
            name,
            None,
            objects,
            data=str(data),
            system=objects.name(system),
            judge=objects.name(judge),
            **options,
        )

    @takes_options(CreationOptions)
    async def create_memories(
        self,
        dialogues: str | Path | Iterable[DialogueLike],
        collection: str,
        *,
        name: str = "",
        **options: Unpack[CreationOptions],
    ) -> Creation:
        """Make memories of dialogues, and store them in a collection, NAME or NAMESPACE/NAME.

        `dialogues`: a file or folder, or lists of messages (`{"role": ..., "content": ...}`, with
        an optional `timestamp`); a single list of messages is one dialogue. A repeated dialogue
        adds nothing; of a continued one only the new turns are read.
        """
        file, rows = split_rows(dialogues)

        return await self._run_kind(
            "create-memories",
            name,
            rows,
            data=file or "from Python",
            collection=collection,
            **options,
        )

    @takes_options(IntegrationOptions)
    async def integrate_memories(
        self,
        agent: str,
        *,
        name: str = "",
        **options: Unpack[IntegrationOptions],
    ) -> Integration:
        """Draw insights from an agent's memories (reflection) if the importance of its new memories
        adds up to `threshold`, or with `always` if there is any new memory. `agent`: NAME or
        NAMESPACE/NAME."""
        return await self._run_kind(
            "integrate-memories",
            name,
            agent=agent,
            **options,
        )

    @takes_options(ReadingOptions)
    async def read_corpus(
        self,
        files: str | Sequence[str],
        *,
        collection: str,
        name: str = "",
        **options: Unpack[ReadingOptions],
    ) -> Results[DocumentReading]:
        """Read documents into a collection, with a memory for each chunk. Chunks that have not
        changed since an earlier call stay as they are.

        Raises:
            ConflictError: somebody else changed a document's memories meanwhile.
        """

        return await self._run_kind(
            "read-corpus",
            name,
            files=(files,) if isinstance(files, str) else tuple(files),
            collection=collection,
            **options,
        )

    @takes_options(EvolutionOptions)
    async def evolve_persona(
        self,
        agent: str,
        *,
        name: str = "",
        **options: Unpack[EvolutionOptions],
    ) -> EvolvedPersona:
        """Change an agent's persona by a few small edits that its memories support. `propose`: only
        return the edits, without storing the new persona.

        Raises:
            ConflictError: the persona was changed meanwhile.
        """

        return await self._run_kind(
            "evolve-persona",
            name,
            agent=agent,
            **options,
        )
