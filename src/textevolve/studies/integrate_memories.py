"""Integrate memories (reflection): an agent's newest memories give insights, when enough importance
has gathered.

How questions and insights are asked for is in `textevolve.memory.integration`. How far memories
were integrated stands in the collection of insights, with what it was made from.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from textevolve.agents.resources import split_name
from textevolve.engine.local import stream
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import Case, Failure, Usage, attempt, empty_default
from textevolve.events import StepStarted
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.creation import Start, keep_points, read_decisions
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.integration import (
    DecidedInsight,
    DrawnInsights,
    IntegrationPlan,
    RefusedInsight,
    as_points,
    decided_insight,
    draw_insights,
    find_questions,
    prompts_version,
)
from textevolve.memory.recall import Memory, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.reconciliation import Ground
from textevolve.memory.record import ChangeSource, Collection
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Column, Report, Table, Tree
from textevolve.settings import Settings
from textevolve.spec import option
from textevolve.store import Store
from textevolve.store.memories import list_source_labels
from textevolve.studies.memory_work import (
    change_key,
    find_agent,
    find_collection,
    memories_of_agent,
    read_newest,
)
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_decoder, note_step, row_of
from textevolve.wiring import Workbench

NEAR = 0.7
"""The least similarity of a known insight with which a new one is compared."""
MARK = "integrated "
"""What the label begins with that says how far memories were integrated; see `_write_mark`."""


class IntegrateMemoriesSpec(IntegrationPlan, StudySpec):
    """Draw insights from an agent's memories, each with the memories that it rests on.

    Known as reflection (Park et al., Generative Agents). It does nothing until enough importance
    has gathered since the last time, so it can be run as often as you like.
    """

    kind: ClassVar[str] = "integrate-memories"

    agent: str = option(
        description="The agent, as NAME or NAMESPACE/NAME.", argument=True, min_length=1
    )


class Snapshot(BaseModel):
    """What a run works on. `sources`: the version of each collection that is read; `since`: the
    version up to which each was integrated before. `into`: where insights go; `known`: the version
    of it that recall reads, 0 for none."""

    sources: dict[str, int]
    since: dict[str, int]
    into: str
    known: int


def ask(_spec: IntegrateMemoriesSpec) -> Asks:
    return Asks(writes=True, prompts=prompts_version())


def read_cases(spec: IntegrateMemoriesSpec) -> list[Case]:
    return [Case(spec.agent, (), "1")]


async def describe(
    spec: IntegrateMemoriesSpec, settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    """The versions that are read, and how far they were integrated before. That of the collection
    of insights is not among them, since the run itself changes it: stopped half-way and begun once
    more it is the same run."""
    with closing(Store(settings.memory_location)) as resources:
        agent = await find_agent(resources, spec.agent, settings.namespace)
        if agent.spec.insights is None:
            raise InputError(
                f"agent {agent.full_name} has no collection of insights; name one with: textevolve"
                f" agents update {agent.full_name} --insights NAME"
            )
        target = await find_collection(resources, agent.spec.insights, agent.namespace)
        named = memories_of_agent(agent)
        held = [await find_collection(resources, name, agent.namespace) for name in named]
        for one in held:
            if one.namespace != target.namespace:
                raise InputError(
                    f"{target.full_name} cannot rest on {one.full_name}: insights cite memories of"
                    " their own namespace"
                )
        since, known = _read_marks(resources.read(list_source_labels, target, MARK), held)
        return Snapshot(
            sources={one.full_name: one.version for one in held},
            since=since,
            into=target.full_name,
            known=known,
        ).model_dump(mode="json")


_MARKED = re.compile(r"(?P<name>[^\s@]+)@(?P<version>\d+)")


def _write_mark(sources: Mapping[str, int]) -> str:
    """`integrated NAME@VERSION, ...`."""
    return MARK + ", ".join(f"{name}@{version}" for name, version in sources.items())


def _read_marks(
    marks: Sequence[tuple[str, int]], held: Sequence[Collection]
) -> tuple[dict[str, int], int]:
    """How far each collection was integrated, by labels that are newest first; and the version of
    the collection of insights that the newest of them made."""
    wanted, since, known = {one.full_name for one in held}, dict[str, int](), 0
    for label, version in marks:
        for found in _MARKED.finditer(label):
            if found["name"] in wanted and found["name"] not in since:
                since[found["name"]] = int(found["version"])
                known = max(known, version)
    return since, known


async def run(
    spec: IntegrateMemoriesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[IntegrationRecord]:
    """What has gathered; and, if that is enough, what became of each question."""
    list(cases)
    snapshot = Snapshot.model_validate(bench.described)
    work = _Integrating(spec, bench, snapshot)
    new = await read_newest(bench, snapshot.sources, spec.newest, spec.min_trust, snapshot.since)
    due = bool(new.number) and (spec.always or new.importance >= spec.threshold)
    gathered = GatheredMemories(new.number, new.importance, spec.threshold, due)
    if not due:
        yield IntegrationRecord(gathered)
        return
    bench.listener(StepStarted("1", "questions", {"memories": new.number}))
    meter = UsageMeter(bench.model)
    questions = await attempt(find_questions(meter, new.memories, spec))
    if isinstance(questions, Failure):
        yield IntegrationRecord(replace(gathered, usage=meter.usage, failure=questions))
        return
    yield IntegrationRecord(replace(gathered, questions=questions, usage=meter.usage))
    failures = list[Failure | None]()
    async with aclosing(stream(enumerate(questions, 1), work.draw, bench.concurrency)) as drawn:
        async for one in drawn:
            made = await work.settle(one)
            failures.append(made.failure)
            yield IntegrationRecord(made)
    if None in failures and not any(one and one.kind == "skipped" for one in failures):
        await work.mark()


@dataclass(frozen=True, slots=True)
class _Drawn:
    number: int
    question: str
    shown: tuple[Memory, ...]
    meter: UsageMeter
    found: DrawnInsights | Failure


class _Integrating:
    """One run at work."""

    def __init__(self, spec: IntegrateMemoriesSpec, bench: Workbench, snapshot: Snapshot) -> None:
        self._spec, self._bench, self._snapshot = spec, bench, snapshot
        namespace, self._into = split_name(snapshot.into, bench.settings.namespace)
        self._store = bench.resources.memories(namespace)
        self._embed = bench.embed

    async def draw(self, asked: tuple[int, str]) -> _Drawn:
        """What follows from what is recalled for a question."""
        number, question = asked
        spec, meter = self._spec, UsageMeter(self._bench.model)
        self._bench.listener(StepStarted("1", "insights", {"question": question}))
        versions = dict(self._snapshot.sources)
        if self._snapshot.known:
            versions[self._snapshot.into] = self._snapshot.known
        settings = RecallSettings(
            collections=tuple(versions),
            limit=spec.recalled,
            budget=spec.budget,
            min_trust=spec.min_trust,
        )
        recalled = await attempt(
            recall_memories(self._store, self._embed, settings, question, versions=versions)
        )
        if isinstance(recalled, Failure):
            return _Drawn(number, question, (), meter, recalled)
        shown = recalled.memories
        drawn = await attempt(draw_insights(meter, question, shown, spec))
        return _Drawn(number, question, shown, meter, drawn)

    async def settle(self, drawn: _Drawn) -> QuestionInsights:
        """Keep the insights of a question, all or none of them, once."""
        made = QuestionInsights(drawn.number, drawn.question, len(drawn.shown))
        if isinstance(drawn.found, Failure):
            return replace(made, usage=drawn.meter.usage, failure=drawn.found)
        cited = dict.fromkeys(id for one in drawn.found.insights for id in one.cites)
        texts = {one.id: one.text for one in drawn.shown if one.id in cited}
        made = replace(made, refused=drawn.found.refused, cited=texts)
        try:
            kept = await attempt(self._keep(drawn, drawn.found, list(cited)))
        except ConflictError as error:  # somebody changed what they would take the place of
            kept = Failure("skipped", str(error))
        if isinstance(kept, Failure):
            return replace(made, usage=drawn.meter.usage, failure=kept)
        return replace(made, insights=kept, usage=drawn.meter.usage)

    async def _keep(
        self, drawn: _Drawn, found: DrawnInsights, cited: list[str]
    ) -> tuple[DecidedInsight, ...]:
        """Insights that were kept before are told from their memories."""
        store, live = self._store, self._bench.mode == "live"
        settings = CreationSettings(neighbours=1, floor=NEAR)
        held = await store.collection(self._into)
        ground = Ground(store, self._embed, drawn.meter, held, settings)
        key = change_key(self._bench, self._spec, drawn.number)
        if (known := await store.applied(self._into, key)) is not None:
            made = await read_decisions(ground, known)
        else:
            records = {one.id: one for one in await store.get(cited)}
            points = as_points(found.insights, drawn.question, records)
            source = ChangeSource(key, f"integration of {', '.join(self._snapshot.sources)}")
            made = await keep_points(ground, points, Start(key), source, write=live)
        return tuple(decided_insight(one, drawn.question) for one in made.decisions)

    async def mark(self) -> None:
        """Note how far memories are integrated now."""
        if self._bench.mode == "live":
            key = change_key(self._bench, self._spec, "done")
            label = _write_mark(self._snapshot.sources)
            await self._store.apply(self._into, [], ChangeSource(key, label))


@dataclass(frozen=True, slots=True)
class GatheredMemories:
    """What is new. `importance`: their sum. `questions`: those that they raise, if it is due."""

    memories: int
    importance: float
    threshold: float
    due: bool
    questions: tuple[str, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None
    step: Literal["gathered"] = "gathered"


@dataclass(frozen=True, slots=True)
class QuestionInsights:
    """What became of one question. `recalled`: how many memories were shown; `cited`: the texts of
    those that insights rest on, by id."""

    number: int
    question: str
    recalled: int = 0
    insights: tuple[DecidedInsight, ...] = ()
    refused: tuple[RefusedInsight, ...] = ()
    cited: Mapping[str, str] = empty_default(dict)
    usage: Usage = Usage()
    failure: Failure | None = None
    step: Literal["question"] = "question"


@dataclass(frozen=True, slots=True)
class IntegrationRecord:
    """One of the two."""

    made: GatheredMemories | QuestionInsights


@dataclass(frozen=True, slots=True)
class Integration:
    """What a run found: what had gathered, and what each question gave."""

    gathered: GatheredMemories | None
    questions: tuple[QuestionInsights, ...]

    @property
    def insights(self) -> tuple[DecidedInsight, ...]:
        """Those that were kept."""
        return tuple(
            one for each in self.questions for one in each.insights if one.decision != "drop"
        )

    def count(self, decision: str) -> int:
        return sum(one.decision == decision for each in self.questions for one in each.insights)

    @property
    def refused(self) -> tuple[RefusedInsight, ...]:
        return tuple(one for each in self.questions for one in each.refused)


def find_row(record: IntegrationRecord) -> Row:
    made = record.made
    if isinstance(made, GatheredMemories):
        return row_of("gathered", 0, made.failure)
    return row_of(f"question {made.number}", made.number, made.failure)


def summarise(_spec: IntegrateMemoriesSpec, records: Iterable[IntegrationRecord]) -> Integration:
    parts = [record.made for record in records]
    gathered = next((part for part in parts if isinstance(part, GatheredMemories)), None)
    return Integration(gathered, tuple(p for p in parts if isinstance(p, QuestionInsights)))


def report(spec: IntegrateMemoriesSpec, found: Integration) -> Report:
    title = f"Integration of {spec.agent}"
    if found.gathered is None:
        return Report(title, "Nothing was read.", [])
    new = found.gathered
    noun = "memory" if new.memories == 1 else "memories"
    sums = f"{new.memories:,} new {noun}, importance {new.importance:.1f} of {new.threshold:g}"
    if not new.due:
        advice = " Use --always to integrate all the same." if new.memories else ""
        return Report(title, f"Not due: {sums}.{advice}", [])
    blocks: list[Block] = []
    if found.questions:
        blocks.append(Tree("Insights", [_branch(one) for one in found.questions]))
    if found.refused:
        columns = (Column("refused"), Column("why"))
        rows = [(one.text, one.reason) for one in found.refused]
        blocks.append(Table("What was refused", columns, rows))
    return Report(title, _say_found(found, new), blocks, {"Memories": sums})


def _say_found(found: Integration, gathered: GatheredMemories) -> str:
    if gathered.failure is not None:
        return f"No questions were found: {gathered.failure.reason}"
    failed = sum(one.failure is not None for one in found.questions)
    return (
        f"{wording.count(len(found.questions), 'question')}:"
        f" {wording.count(found.count('add'), 'insight')} added, {found.count('supersede')} in"
        f" place of earlier ones, {found.count('drop')} known already;"
        f" {len(found.refused)} refused"
        + (f"; {wording.count(failed, 'question')} without an answer." if failed else ".")
    )


def _branch(one: QuestionInsights) -> Branch:
    if one.failure is not None:
        return Branch(one.question, one.failure.reason, "bad")
    if not one.insights:
        return Branch(one.question, "no insight", "dim")
    return Branch(one.question, children=[_insight_branch(each, one) for each in one.insights])


_SAID = {"add": "added", "supersede": "takes the place of an earlier one", "drop": "dropped"}


def _insight_branch(one: DecidedInsight, of: QuestionInsights) -> Branch:
    why = f" ({one.reason})" if one.decision == "drop" else ""
    note = f"{_SAID[one.decision]}{why}, importance {one.insight.importance:.1f}"
    tone = "dim" if one.decision == "drop" else ""
    cited = [Branch(of.cited.get(id, id), tone="dim") for id in one.insight.cites]
    return Branch(one.insight.text, note, tone, cited)


def data(_spec: IntegrateMemoriesSpec, found: Integration) -> Mapping[str, Any]:
    return {
        "gathered": None if found.gathered is None else asdict(found.gathered),
        "questions": [asdict(one) for one in found.questions],
    }


def flatten(record: IntegrationRecord) -> Iterator[Mapping[str, Any]]:
    """A row for each insight."""
    made = record.made
    for one in made.insights if isinstance(made, QuestionInsights) else ():
        yield {
            "question": made.question if isinstance(made, QuestionInsights) else "",
            "insight": one.insight.text,
            "decision": one.decision,
            "reason": one.reason,
            "importance": one.insight.importance,
            "trust": one.insight.trust,
            "cites": list(one.insight.cites),
            "id": one.id,
            "other": one.other,
        }


STUDY = Study(
    spec=IntegrateMemoriesSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(IntegrationRecord),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    describe=describe,
)
