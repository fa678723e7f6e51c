"""Evolve a persona: what an agent remembers changes who it is, by a few small edits, each with the
memories behind it.

How changes are proposed, chosen and put together is in `textevolve.agents.persona`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from pydantic import BaseModel

from textevolve.agents.persona import (
    PersonaChange,
    PersonaPlan,
    Proposals,
    RefusedChange,
    batch_memories,
    choose_changes,
    compose_persona,
    prompts_version,
    propose_changes,
    split_persona,
    text_to_edit,
)
from textevolve.agents.resources import split_name
from textevolve.engine.local import stream
from textevolve.evaluation import Case, Failure, Usage, attempt, empty_default
from textevolve.events import StepStarted
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.record import MemoryRecord
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Column, Diff, Report, Table, Tree
from textevolve.settings import Settings
from textevolve.spec import option
from textevolve.store import Store, kinds
from textevolve.studies.memory_work import (
    find_agent,
    find_collection,
    memories_of_agent,
    read_newest,
)
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_decoder, note_step, row_of
from textevolve.wiring import Workbench

REFUSED_SHOWN = 30


class EvolvePersonaSpec(PersonaPlan, StudySpec):
    """Change an agent's persona by what it has come to know: a few small edits, each with the
    memories behind it.

    The new persona is a new version; `textevolve agents revert` goes back to any.
    """

    kind: ClassVar[str] = "evolve-persona"

    agent: str = option(
        description="The agent, as NAME or NAMESPACE/NAME.", argument=True, min_length=1
    )
    propose: bool = option(
        False, "Only show what would change, and write it to files; the agent stays as it is."
    )


class PersonaSnapshot(BaseModel):
    """What a run works on: the agent, its persona, and the versions of its collections."""

    agent: str
    version: int
    persona: str
    collections: dict[str, int]


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """A batch of memories (`number` from 1), or the new persona (0).

    `changes`: proposed by the batch, or made. `cited`: the texts of the memories behind changes
    that are made, by id. `text`: the new persona, empty where nothing changes; `version`: as which
    it was kept, None where it was not.
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


@dataclass(frozen=True, slots=True)
class EvolvedPersona:
    """What became of a persona. `made` is None where it did not come to that."""

    batches: tuple[EvolutionStep, ...]
    made: EvolutionStep | None

    @property
    def text(self) -> str:
        """The new persona; empty where nothing changes."""
        return self.made.text if self.made else ""

    @property
    def version(self) -> int | None:
        return self.made.version if self.made else None

    @property
    def changes(self) -> tuple[PersonaChange, ...]:
        return self.made.changes if self.made else ()

    @property
    def refused(self) -> tuple[RefusedChange, ...]:
        steps = (*self.batches, *([self.made] if self.made else []))
        return tuple(one for step in steps for one in step.refused)

    @property
    def usage(self) -> Usage:
        steps = (*self.batches, *([self.made] if self.made else []))
        return sum((step.usage for step in steps), Usage())


def ask(spec: EvolvePersonaSpec) -> Asks:
    return Asks(writes=True, prompts=prompts_version(rewrite=spec.rewrite))


def read_cases(spec: EvolvePersonaSpec) -> list[Case]:
    return [Case(spec.agent, (), "1")]


async def describe(
    spec: EvolvePersonaSpec, settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    """The persona in force, and the versions of the agent's memories and insights."""
    with closing(Store(settings.memory_location)) as resources:
        agent = await find_agent(resources, spec.agent, settings.namespace)
        named = [*memories_of_agent(agent)]
        named += [agent.spec.insights] if agent.spec.insights else []
        held = [await find_collection(resources, name, agent.namespace) for name in named]
        return PersonaSnapshot(
            agent=agent.full_name,
            version=agent.spec_version,
            persona=agent.spec.persona,
            collections={one.full_name: one.version for one in held},
        ).model_dump(mode="json")


async def run(
    spec: EvolvePersonaSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[EvolutionStep]:
    """What each batch of memories proposes, then what is made of it."""
    list(cases)
    snapshot = PersonaSnapshot.model_validate(bench.described)
    newest = await read_newest(bench, snapshot.collections, spec.newest, spec.min_trust)
    sentences = split_persona(text_to_edit(snapshot.persona, spec))

    async def propose(batch: tuple[int, tuple[MemoryRecord, ...]]) -> EvolutionStep:
        number, shown = batch
        bench.listener(StepStarted("1", "batch", {"number": number}))
        meter = UsageMeter(bench.model)
        found = await attempt(propose_changes(meter, sentences, shown, spec))
        step = EvolutionStep(number, len(shown), usage=meter.usage)
        if isinstance(found, Failure):
            return replace(step, failure=found)
        return replace(step, changes=found.changes, refused=found.refused)

    batches = batch_memories(newest.memories, spec)
    steps = list[EvolutionStep]()
    async with aclosing(stream(enumerate(batches, 1), propose, bench.concurrency)) as found:
        async for step in found:
            steps.append(step)
            yield step
    if any(step.failure and step.failure.kind == "skipped" for step in steps):
        return
    texts = {one.id: one.text for batch in batches for one in batch}
    yield await _evolve(spec, snapshot, bench, steps, texts)


async def _evolve(
    spec: EvolvePersonaSpec,
    snapshot: PersonaSnapshot,
    bench: Workbench,
    steps: Sequence[EvolutionStep],
    texts: Mapping[str, str],
) -> EvolutionStep:
    """Choose among what was proposed, put it together, and keep it."""
    meter, before = UsageMeter(bench.model), snapshot.persona
    base = text_to_edit(before, spec)
    step = EvolutionStep(0, len(texts), before=before)
    proposed = [change for one in steps for change in one.changes]
    if steps and all(one.failure for one in steps):
        return replace(step, failure=steps[0].failure)
    chosen: Proposals | Failure = Proposals()
    if proposed:
        chosen = await attempt(choose_changes(meter, split_persona(base), proposed, spec))
    if isinstance(chosen, Failure):
        return replace(step, usage=meter.usage, failure=chosen)
    made = compose_persona(base, chosen.changes, spec.persona_tokens)
    text = made.text if made.changes else ""
    keeps = text and not spec.propose
    return replace(
        step,
        changes=made.changes,
        refused=(*chosen.refused, *made.refused),
        cited={id: texts[id] for change in made.changes for id in change.memories},
        text=text,
        version=await _keep(snapshot, bench, text, made.changes) if keeps else None,
        usage=meter.usage,
    )


async def _keep(
    snapshot: PersonaSnapshot, bench: Workbench, text: str, changes: Sequence[PersonaChange]
) -> int | None:
    """The new version. One that was made by this run before is found again.

    Raises:
        ConflictError: the agent has another persona meanwhile.
    """
    if bench.mode == "rehearsed":
        return None
    space, name = split_name(snapshot.agent, "")
    read, write = bench.resources.read, bench.resources.write
    source = f"evolve-persona, run {bench.run.rpartition('-')[0]}"
    versions = await asyncio.to_thread(read, kinds.list_versions, kinds.AGENTS, space, name)
    for version in versions:
        if version.source == source and version.spec["persona"] == text:
            return version.version
    if bench.mode == "replay":
        return None
    changed = await asyncio.to_thread(
        write,
        kinds.update,
        kinds.AGENTS,
        space,
        name,
        {"persona": text},
        source,
        [asdict(change) for change in changes],
        snapshot.version,
    )
    return changed.spec_version


def find_row(step: EvolutionStep) -> Row:
    key = f"batch {step.number}" if step.number else "persona"
    return row_of(key, step.number or 1_000_000, step.failure)


def summarise(_spec: EvolvePersonaSpec, records: Iterable[EvolutionStep]) -> EvolvedPersona:
    steps = list(records)
    made = next((step for step in steps if not step.number), None)
    return EvolvedPersona(tuple(step for step in steps if step.number), made)


def report(spec: EvolvePersonaSpec, found: EvolvedPersona) -> Report:
    blocks: list[Block] = []
    made = found.made
    if made is not None and made.text:
        blocks.append(Diff("The persona", made.before, made.text))
        branches = [_branch(one, made.cited) for one in made.changes]
        blocks.append(Tree("Why: the memories behind each change", branches))
    if found.refused:
        rows = [(one.action, one.text, one.reason) for one in found.refused[:REFUSED_SHOWN]]
        columns = (Column("change"), Column("text"), Column("why not"))
        more = len(found.refused) - len(rows)
        note = f"{more} more not shown here." if more else ""
        blocks.append(Table("Changes that are not made", columns, rows, note=note))
    memories = sum(step.memories for step in found.batches)
    shown = wording.count(memories, "memory") if memories == 1 else f"{memories:,} memories"
    facts = {"Looked at": f"{shown} in {wording.count(len(found.batches), 'call')}"}
    return Report(f"The persona of {spec.agent}", _say_found(spec, found), blocks, facts)


def _branch(one: PersonaChange, cited: Mapping[str, str]) -> Branch:
    said = {"add": f"added: {one.text}", "remove": f"removed: {one.before}"}
    label = said.get(one.action, f"sentence {one.sentence} is now: {one.text}")
    return Branch(
        label, one.reason, children=[Branch(cited[id], tone="dim") for id in one.memories]
    )


def _say_found(spec: EvolvePersonaSpec, found: EvolvedPersona) -> str:
    made = found.made
    if made is None:
        return "Not all memories have been looked at yet."
    if made.failure is not None:
        return f"The persona stays as it is: {made.failure.reason}"
    if not found.batches:
        return f"Nothing to go by: no memory is trusted {spec.min_trust:g} or more."
    if not made.text:
        return "The persona stays as it is: nothing that follows from the memories was chosen."
    changes = wording.count(len(made.changes), "change")
    if made.version is None:
        return f"{changes} proposed; the agent stays as it is."
    return (
        f"{changes}: version {made.version}. To go back: textevolve agents revert"
        f" {spec.agent} {made.version - 1}"
    )


def data(_spec: EvolvePersonaSpec, found: EvolvedPersona) -> Mapping[str, Any]:
    return {
        "persona": found.text or None,
        "version": found.version,
        "made": found.made and asdict(found.made),
        "batches": [asdict(step) for step in found.batches],
    }


def flatten(step: EvolutionStep) -> Iterator[Mapping[str, Any]]:
    """A row for each change that is made."""
    for one in step.changes if not step.number else ():
        yield {**asdict(one), "memories": list(one.memories), "version": step.version}


STUDY = Study(
    spec=EvolvePersonaSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(EvolutionStep),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    texts={".txt": lambda _spec, found: found.text and found.text + "\n"},
    describe=describe,
)
