"""The verbs that create memories, draw conclusions from them, and evaluate memory systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textevolve.api.opener import AnyJudge, Opener, split_rows
from textevolve.api.results import Objects

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

    async def evaluate_memory(
        self,
        data: str | Path,
        system: str | object,
        *,
        judge: AnyJudge | None = None,
        answer_model: str | None = None,
        users: int | None = None,
        sessions: int | None = None,
        fresh: str | None = None,
        model: str | None = None,
        seed: int | None = None,
        name: str = "",
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
            answer_model=answer_model,
            users=users,
            sessions=sessions,
            fresh=fresh,
            model=model,
            seed=seed,
        )

    async def create_memories(
        self,
        dialogues: str | Path | Iterable[DialogueLike],
        collection: str,
        *,
        about: str | None = None,
        focus: str | None = None,
        window: int | None = None,
        overlap: int | None = None,
        entities: bool | None = None,
        trust_user: float | None = None,
        trust_assistant: float | None = None,
        trust_others: float | None = None,
        model: str | None = None,
        seed: int | None = None,
        name: str = "",
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
            about=about,
            focus=focus,
            window=window,
            overlap=overlap,
            entities=entities,
            trust_user=trust_user,
            trust_assistant=trust_assistant,
            trust_others=trust_others,
            model=model,
            seed=seed,
        )

    async def integrate_memories(
        self,
        agent: str,
        *,
        threshold: float | None = None,
        always: bool | None = None,
        questions: int | None = None,
        insights: int | None = None,
        newest: int | None = None,
        budget: int | None = None,
        min_trust: float | None = None,
        model: str | None = None,
        seed: int | None = None,
        name: str = "",
    ) -> Integration:
        """Draw insights from an agent's memories (reflection) if the importance of its new memories
        adds up to `threshold`, or with `always` if there is any new memory. `agent`: NAME or
        NAMESPACE/NAME."""
        return await self._run_kind(
            "integrate-memories",
            name,
            agent=agent,
            threshold=threshold,
            always=always,
            questions=questions,
            insights=insights,
            newest=newest,
            budget=budget,
            min_trust=min_trust,
            model=model,
            seed=seed,
        )

    async def read_corpus(
        self,
        files: str | Sequence[str],
        *,
        collection: str,
        chunk_tokens: int | None = None,
        trust: float | None = None,
        importance: float | None = None,
        role: str | None = None,
        model: str | None = None,
        seed: int | None = None,
        name: str = "",
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
            chunk_tokens=chunk_tokens,
            trust=trust,
            importance=importance,
            role=role,
            model=model,
            seed=seed,
        )

    async def evolve_persona(
        self,
        agent: str,
        *,
        propose: bool | None = None,
        changes: int | None = None,
        persona_tokens: int | None = None,
        newest: int | None = None,
        budget: int | None = None,
        min_trust: float | None = None,
        model: str | None = None,
        seed: int | None = None,
        name: str = "",
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
            propose=propose,
            changes=changes,
            persona_tokens=persona_tokens,
            newest=newest,
            budget=budget,
            min_trust=min_trust,
            model=model,
            seed=seed,
        )
