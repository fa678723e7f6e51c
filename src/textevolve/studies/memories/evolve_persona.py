"""The study that revises an agent's persona by its memories, in a few small edits. Each edit cites
the memories that support it.

`textevolve.agents.persona` proposes and chooses edits, and applies them to the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from textevolve.agents.persona import (
    PersonaChange,
    PersonaPlan,
    Proposals,
    RefusedChange,
    batch_memories,
    choose_changes,
    compose_persona,
    persona_prompts,
    propose_changes,
    split_persona,
    text_to_edit,
)
from textevolve.agents.resources import split_name
from textevolve.engine.local import stream
from textevolve.evaluation import (
    Case,
    Failure,
    Result,
    Usage,
    attempt,
    empty_default,
    select_skipped,
    sum_usage,
)
from textevolve.events import StepStarted
from textevolve.llm.meter import UsageMeter
from textevolve.memory.recall_settings import RecallScope, is_usual_scope
from textevolve.memory.record import MemoryRecord
from textevolve.memory_snapshots import find_agent, find_collection
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Diff, Report, Table, Tree
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, note_step, row_of
from textevolve.spec import option
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.studies.memories.base import (
    AgentName,
    NewestMemories,
    describe_by,
    find_collections,
    read_agent_case,
    read_newest,
    versions_of,
)
from textevolve.wiring import Workbench

REFUSED_SHOWN = 30


class EvolvePersonaSpec(AgentName, PersonaPlan, StudySpec):
    """Change an agent's persona by its memories: a few small edits, each with the memories behind
    it.

    The new persona is a new version; `textevolve agents revert` goes back to any.
    """

    kind: ClassVar[str] = "evolve-persona"
    scored: ClassVar[bool] = False

    propose: bool = option(
        False, "Only propose changes, in the report and its files; the agent stays unchanged."
    )


class PersonaSnapshot(BaseModel):
    """The inputs of a run: the agent, its persona with its `version`, and the version of each of
    its collections of memories. `scope`: whether memories of single users are read, too."""

    agent: str
    version: int
    persona: str
    collections: dict[str, int]
    scope: RecallScope = Field("user", exclude_if=is_usual_scope)


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """One step of a run: the edits that a batch of memories proposes, or, in the last step, the new
    persona.

    Attributes:
        number: The number of the batch, from 1; 0 for the step with the new persona.
        memories: The number of memories that were read.
        changes: The edits that the batch proposes, or that were applied to the persona.
        refused: The proposed edits that were not taken, with the reason.
        cited: The texts of the memories that support applied edits, by id.
        before: The earlier persona.
        text: The new persona; empty if it did not change.
        version: The stored version of the new persona; None if it was not stored.
        private: The number of memories that were left out since they belong to single users.
    """

    number: int
    memories: int
    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()
    cited: Mapping[str, str] = empty_default(dict)
    before: str = ""
    text: str = ""
    version: int | None = None
    usage: Usage = Usage()
    failure: Failure | None = None
    private: int = 0


@dataclass(frozen=True)
class EvolvedPersona(Result):
    """The result of a run. `batches`: the steps with proposed edits; `made`: the step with the new
    persona, or None if the run stopped before it."""

    batches: tuple[EvolutionStep, ...]
    made: EvolutionStep | None

    @property
    def text(self) -> str:
        """The new persona; empty if it did not change."""
        return self.made.text if self.made else ""

    @property
    def version(self) -> int | None:
        return self.made.version if self.made else None

    @property
    def changes(self) -> tuple[PersonaChange, ...]:
        return self.made.changes if self.made else ()

    @property
    def _steps(self) -> tuple[EvolutionStep, ...]:
        return self.batches if self.made is None else (*self.batches, self.made)

    @property
    def refused(self) -> tuple[RefusedChange, ...]:
        return tuple(change for step in self._steps for change in step.refused)

    @property
    def usage(self) -> Usage:
        return sum_usage(self._steps)


def ask(spec: EvolvePersonaSpec) -> Asks:
    return Asks(writes=True, prompts=persona_prompts(rewrite=spec.rewrite))


def pin(spec: EvolvePersonaSpec, resources: Store, namespace: str) -> Mapping[str, Any]:
    """Return the current persona, and the versions of the agent's collections of memories and
    insights, as the inputs of the run."""
    agent = find_agent(resources, spec.agent, namespace)
    collections = find_collections(resources, agent)
    if agent.spec.insights:
        collections.append(find_collection(resources, agent.spec.insights, agent.namespace))

    return PersonaSnapshot(
        agent=agent.full_name,
        version=agent.spec_version,
        persona=agent.spec.persona,
        collections=versions_of(collections),
        scope=agent.spec.memory.scope,
    ).model_dump(mode="json")


async def run(
    spec: EvolvePersonaSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[EvolutionStep]:
    """Yield the proposals of each batch of memories, then the new persona, unless a limit was
    reached before all batches were read."""
    list(cases)
    snapshot = PersonaSnapshot.model_validate(bench.described)
    newest = await read_newest(
        bench, snapshot.collections, spec.newest, spec.min_trust, snapshot.scope
    )
    sentences = split_persona(text_to_edit(snapshot.persona, spec))

    async def propose(batch: tuple[int, tuple[MemoryRecord, ...]]) -> EvolutionStep:
        number, memories = batch
        bench.listener(StepStarted("1", "batch", {"number": number}))
        meter = UsageMeter(bench.model)
        proposals = await attempt(propose_changes(meter, sentences, memories, spec))
        step = EvolutionStep(number, len(memories), usage=meter.usage)
        if isinstance(proposals, Failure):
            return replace(step, failure=proposals)
        return replace(step, changes=proposals.changes, refused=proposals.refused)

    batches = batch_memories(newest.memories, spec)
    steps: list[EvolutionStep] = []

    async with aclosing(
        stream(enumerate(batches, 1), propose, bench.concurrency)
    ) as finished_steps:
        async for step in finished_steps:
            steps.append(step)
            yield step

    if select_skipped(step.failure for step in steps):
        return
    texts = {record.id: record.text for batch in batches for record in batch}
    made = await _evolve(spec, snapshot, bench, steps, texts)
    yield replace(made, private=newest.private)


async def _evolve(
    spec: EvolvePersonaSpec,
    snapshot: PersonaSnapshot,
    bench: Workbench,
    steps: Sequence[EvolutionStep],
    texts: Mapping[str, str],
) -> EvolutionStep:
    """Choose among the proposals, compose the new persona, and store it unless the run only
    proposes."""
    meter = UsageMeter(bench.model)
    base = text_to_edit(snapshot.persona, spec)
    step = EvolutionStep(0, len(texts), before=snapshot.persona)
    proposed = [change for batch_step in steps for change in batch_step.changes]
    if steps and all(batch_step.failure for batch_step in steps):
        return replace(step, failure=steps[0].failure)
    chosen: Proposals | Failure = Proposals()
    if proposed:
        chosen = await attempt(choose_changes(meter, split_persona(base), proposed, spec))
    if isinstance(chosen, Failure):
        return replace(step, usage=meter.usage, failure=chosen)
    composed = compose_persona(base, chosen.changes, spec.persona_tokens)
    text = composed.text if composed.changes else ""
    version = None
    if text and not spec.propose:
        version = await asyncio.to_thread(_keep, snapshot, bench, text, composed.changes)

    return replace(
        step,
        changes=composed.changes,
        refused=(*chosen.refused, *composed.refused),
        cited={id: texts[id] for change in composed.changes for id in change.memories},
        text=text,
        version=version,
        usage=meter.usage,
    )


def _keep(
    snapshot: PersonaSnapshot, bench: Workbench, text: str, changes: Sequence[PersonaChange]
) -> int | None:
    """Store the new persona as a new version, unless this run stored it before, and return the
    version's number; None in a cost estimate, or in a replay if it was never stored.

    Raises:
        ConflictError: the agent's persona has been changed in the meantime.
    """
    if bench.is_rehearsal:
        return None
    space, name = split_name(snapshot.agent, "")
    source = f"evolve-persona, run {bench.run.rpartition('-')[0]}"

    for version in bench.resources.read(kinds.list_versions, kinds.AGENTS, space, name):
        if version.source == source and version.spec["persona"] == text:
            return version.version

    if bench.is_replay:
        return None

    changed = bench.resources.write(
        kinds.update,
        kinds.AGENTS,
        space,
        name,
        {"persona": text},
        source,
        list(map(asdict, changes)),
        snapshot.version,
    )

    return changed.spec_version


def find_row(step: EvolutionStep) -> Row:
    key = f"batch {step.number}" if step.number else "persona"
    return row_of(key, step.number or 1_000_000, step.failure)


def summarise(_spec: EvolvePersonaSpec, records: Iterable[EvolutionStep]) -> EvolvedPersona:
    steps = list(records)
    final = next((step for step in steps if not step.number), None)
    return EvolvedPersona(tuple(step for step in steps if step.number), final)


def report(spec: EvolvePersonaSpec, evolved: EvolvedPersona) -> Report:
    blocks: list[Block] = []
    final = evolved.made
    if final is not None and final.text:
        blocks.append(Diff("The persona", final.before, final.text))
        branches = [_branch(change, final.cited) for change in final.changes]
        blocks.append(Tree("The memories behind each change", branches))

    if evolved.refused:
        rows = [
            (change.action, change.text, change.reason)
            for change in evolved.refused[:REFUSED_SHOWN]
        ]
        columns = ("change", "text", "why not")
        more = len(evolved.refused) - len(rows)
        note = f"{more} more not shown here." if more else ""
        blocks.append(Table("Changes that were not made", columns, rows, note=note))

    read = [step for step in evolved.batches if step.failure is None]
    memories = sum(step.memories for step in evolved.batches)
    facts = {
        "Looked at": f"{sum(step.memories for step in read):,} of"
        f" {wording.count(memories, 'memory')} in {wording.count(len(read), 'call')}"
        + NewestMemories.describe_private(0 if final is None else final.private)
    }

    return Report(f"The persona of {spec.agent}", _describe_outcome(spec, evolved), blocks, facts)


def _branch(change: PersonaChange, cited: Mapping[str, str]) -> Branch:
    labels = {"add": f"added: {change.text}", "remove": f"removed: {change.before}"}
    label = labels.get(change.action, f"sentence {change.sentence} is now: {change.text}")
    return Branch(
        label, change.reason, children=[Branch(cited[id], tone="dim") for id in change.memories]
    )


def _describe_outcome(spec: EvolvePersonaSpec, evolved: EvolvedPersona) -> str:
    final = evolved.made
    if final is None:
        return (
            "Not all memories have been read yet. The persona stays unchanged; the changes that"
            " were proposed so far are kept for when the run is resumed."
        )
    if final.failure is not None:
        return f"The persona stays unchanged: {final.failure.reason}"
    if not evolved.batches:
        return f"The persona stays unchanged: no memory has a trust of {spec.min_trust:g} or more."
    if not final.text:
        return "The persona stays unchanged: no proposed change was chosen."
    changes = wording.count(len(final.changes), "change")
    if final.version is None:
        return f"{changes} proposed; the agent stays unchanged."

    return (
        f"{changes}: version {final.version}. To go back: textevolve agents revert"
        f" {spec.agent} {final.version - 1}"
    )


def data(_spec: EvolvePersonaSpec, evolved: EvolvedPersona) -> Mapping[str, Any]:
    return {
        "persona": evolved.text or None,
        "version": evolved.version,
        "made": evolved.made and asdict(evolved.made),
        "batches": list(map(asdict, evolved.batches)),
    }


def flatten(step: EvolutionStep) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each change in the new persona; none for a step that only proposes
    changes."""
    for change in step.changes if not step.number else ():
        yield {**asdict(change), "memories": list(change.memories), "version": step.version}


STUDY = Study(
    spec=EvolvePersonaSpec,
    cases=read_agent_case,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(EvolutionStep),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    texts={".txt": lambda _spec, evolved: evolved.text and evolved.text + "\n"},
    describe=describe_by(pin),
)
