"""The study that integrates memories (reflection): a model draws insights from an agent's newest
memories, once the sum of their importance is large enough.

`textevolve.memory.integration` has the model raise questions and draw insights. Each agent has a
collection of insights, whose change log records which versions of the other collections were
integrated.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from textevolve.engine.local import stream
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import (
    Case,
    Failure,
    Result,
    Usage,
    attempt,
    empty_default,
    select_skipped,
)
from textevolve.events import StepStarted
from textevolve.llm.meter import Tab, sum_calls
from textevolve.llm.prompts import prompt_versions
from textevolve.memory.creation import find_start, keep_points, read_decisions
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
)
from textevolve.memory.recall import Memory, recall_memories
from textevolve.memory.recall_settings import RecallScope, RecallSettings, is_usual_scope
from textevolve.memory.record import ChangeSource, Collection
from textevolve.memory_snapshots import find_agent, find_collection
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Report, Table, Tree
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, note_step, row_of
from textevolve.store.memories import list_source_labels
from textevolve.store.repository import Store
from textevolve.studies.memories.base import (
    AgentName,
    NewestMemories,
    change_key,
    describe_by,
    find_collections,
    open_changed_collection,
    read_agent_case,
    read_newest,
    versions_of,
)
from textevolve.wiring import Workbench

NEAR = 0.7
"""The least cosine similarity at which a new insight is compared with an existing one."""
MARK = "integrated "
"""The prefix of the labels that record integrated versions, such as "integrated NAME@VERSION"."""


class IntegrateMemoriesSpec(AgentName, IntegrationPlan, StudySpec):
    """Draw insights from an agent's memories, each with the memories that support it.

    Known as reflection (Park et al., Generative Agents). It does nothing until
    the importance of new memories reaches --threshold, so it can be run at any time.
    """

    kind: ClassVar[str] = "integrate-memories"
    scored: ClassVar[bool] = False


class Snapshot(BaseModel):
    """The versions of collections that a run reads.

    Attributes:
        sources: The version of each collection of memories.
        since: The version up to which each collection was integrated before.
        into: The name of the collection of insights.
        known: The version of the collection of insights that recall searches; 0 for none.
        scope: Whether memories of single users are read, too (`agent`).
    """

    sources: dict[str, int]
    since: dict[str, int]
    into: str
    known: int
    scope: RecallScope = Field("user", exclude_if=is_usual_scope)


def ask(_spec: IntegrateMemoriesSpec) -> Asks:
    prompts = prompt_versions("memory", "integration_questions", "integration_insights")
    return Asks(writes=True, prompts=prompts)


def pin(spec: IntegrateMemoriesSpec, resources: Store, namespace: str) -> Mapping[str, Any]:
    """Return the versions of the collections that are read, and the versions that were integrated
    before. The current version of the collection of insights is left out, since the run itself
    changes it, and a resumed run must have the same description; `known` is the version that the
    last integration made."""
    agent = find_agent(resources, spec.agent, namespace)
    if agent.spec.insights is None:
        raise InputError(
            f"agent {agent.full_name} has no collection of insights; name one with: textevolve"
            f" agents update {agent.full_name} --insights NAME"
        )

    target = find_collection(resources, agent.spec.insights, agent.namespace)
    collections = find_collections(resources, agent)

    for collection in collections:
        if collection.namespace != target.namespace:
            raise InputError(
                f"the insights of {target.full_name} cannot cite memories of"
                f" {collection.full_name}, which is in another namespace"
            )

    marks = resources.read(list_source_labels, target, MARK)
    since, insights_version = _read_marks(marks, collections)

    return Snapshot(
        sources=versions_of(collections),
        since=since,
        into=target.full_name,
        known=insights_version,
        scope=agent.spec.memory.scope,
    ).model_dump(mode="json")


def _read_marks(
    marks: Sequence[tuple[str, int]], collections: Sequence[Collection]
) -> tuple[dict[str, int], int]:
    """Return the integrated version of each collection, as read from labels, the newest first, and
    the version of the collection of insights that the newest label made."""
    names = {collection.full_name for collection in collections}
    since: dict[str, int] = {}
    insights_version = 0

    for label, version in marks:
        for match in re.finditer(r"(?P<name>[^\s@]+)@(?P<version>\d+)", label):
            if match["name"] in names and match["name"] not in since:
                since[match["name"]] = int(match["version"])
                insights_version = max(insights_version, version)

    return since, insights_version


async def run(
    spec: IntegrateMemoriesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[IntegrationRecord]:
    """Yield the new memories; then, if they are important enough or `always` is set, the insights
    for each question that they raise."""
    list(cases)
    snapshot = Snapshot.model_validate(bench.described)
    work = _Integrating(spec, bench, snapshot)
    new = await read_newest(
        bench, snapshot.sources, spec.newest, spec.min_trust, snapshot.scope, snapshot.since
    )
    due = bool(new.number) and (spec.always or new.importance >= spec.threshold)
    gathered = GatheredMemories(
        new.number, new.importance, spec.threshold, due, private=new.private
    )
    if not due:
        yield IntegrationRecord(gathered)
        return
    bench.listener(StepStarted("1", "questions", {"memories": new.number}))
    with Tab() as tab:
        questions = await attempt(find_questions(bench.model, new.memories, spec))
    usage = sum_calls(tab)
    if isinstance(questions, Failure):
        yield IntegrationRecord(replace(gathered, usage=usage, failure=questions))
        return
    yield IntegrationRecord(replace(gathered, questions=questions, usage=usage))
    failures: list[Failure | None] = []

    async with aclosing(stream(enumerate(questions, 1), work.draw, bench.concurrency)) as drawn:
        async for drawn_question in drawn:
            result = await work.settle(drawn_question)
            failures.append(result.failure)
            yield IntegrationRecord(result)

    if None in failures and not select_skipped(failures):
        await work.mark()


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The insights that a model drew for one question, before they are stored. `memories`: the
    memories that were recalled for it; `tab`: the model calls so far."""

    number: int
    question: str
    memories: tuple[Memory, ...]
    tab: Tab
    result: DrawnInsights | Failure


class _Integrating:
    """The work of one run: it draws insights, and stores them."""

    def __init__(self, spec: IntegrateMemoriesSpec, bench: Workbench, snapshot: Snapshot) -> None:
        self._spec = spec
        self._bench = bench
        self._snapshot = snapshot
        self._target = open_changed_collection(bench, snapshot.into)

    async def draw(self, numbered: tuple[int, str]) -> _Drawn:
        """Recall memories for a question, and have the model draw insights from them."""
        number, question = numbered
        spec = self._spec
        self._bench.listener(StepStarted("1", "insights", {"question": question}))
        versions = dict(self._snapshot.sources)
        if self._snapshot.known:
            versions[self._snapshot.into] = self._snapshot.known
        settings = RecallSettings(
            collections=tuple(versions),
            limit=spec.recalled,
            budget=spec.budget,
            min_trust=spec.min_trust,
            scope=self._snapshot.scope,
        )
        store = self._target.store
        with Tab() as tab:
            recalled = await attempt(
                recall_memories(store, self._bench.embed, settings, question, versions=versions)
            )
            if isinstance(recalled, Failure):
                return _Drawn(number, question, (), tab, recalled)
            memories = recalled.memories
            drawn = await attempt(draw_insights(self._bench.model, question, memories, spec))

        return _Drawn(number, question, memories, tab, drawn)

    async def settle(self, drawn: _Drawn) -> QuestionInsights:
        """Store the insights of a question in one transaction, and return the result of the
        question. A resumed run stores them only once."""
        result = QuestionInsights(drawn.number, drawn.question, len(drawn.memories))
        with Tab() as tab:
            if isinstance(drawn.result, Failure):
                result = replace(result, failure=drawn.result)
            else:
                result = await self._settle(result, drawn, drawn.result)

        return replace(result, usage=sum_calls(drawn.tab, tab))

    async def _settle(
        self, result: QuestionInsights, drawn: _Drawn, insights: DrawnInsights
    ) -> QuestionInsights:
        cited = dict.fromkeys(id for insight in insights.insights for id in insight.cites)
        texts = {memory.id: memory.text for memory in drawn.memories if memory.id in cited}
        result = replace(result, refused=insights.refused, cited=texts)
        try:
            decided = await attempt(self._keep(drawn, insights, list(cited)))
        except ConflictError as error:  # somebody changed a memory that they would replace
            decided = Failure("skipped", str(error))

        if isinstance(decided, Failure):
            return replace(result, failure=decided)
        return replace(result, insights=decided)

    async def _keep(
        self, drawn: _Drawn, insights: DrawnInsights, cited: list[str]
    ) -> tuple[DecidedInsight, ...]:
        """Store insights; if they were stored before, read them from their memories."""
        settings = CreationSettings(neighbours=1, floor=NEAR)
        ground = await self._target.ground(self._bench.model, settings)
        key = change_key(self._bench, self._spec, drawn.number)
        source = ChangeSource(key, f"integration of {', '.join(self._snapshot.sources)}")
        start = await find_start(ground, (), source)

        if start.applied is not None:
            created = await read_decisions(ground, start.applied)
        else:
            records = {memory.id: memory for memory in await ground.store.get(cited)}
            points = as_points(insights.insights, drawn.question, records)
            created = await keep_points(ground, points, start, source)

        return tuple(decided_insight(each, drawn.question) for each in created.decisions)

    async def mark(self) -> None:
        """Record in the collection of insights which versions of the collections are now
        integrated."""
        key = change_key(self._bench, self._spec, "done")
        marks = (f"{name}@{version}" for name, version in self._snapshot.sources.items())
        await self._target.apply([], ChangeSource(key, MARK + ", ".join(marks)))


@dataclass(frozen=True, slots=True)
class GatheredMemories:
    """The memories that are new since the last integration.

    Attributes:
        memories: Their number.
        importance: The sum of their importance.
        threshold: The sum from which an integration is `due`.
        questions: The questions that the memories raise, if an integration is due.
        private: The number of new memories that were left out since they belong to single users.
    """

    memories: int
    importance: float
    threshold: float
    due: bool
    questions: tuple[str, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None
    step: Literal["gathered"] = "gathered"
    private: int = 0


@dataclass(frozen=True, slots=True)
class QuestionInsights:
    """The insights for one question.

    Attributes:
        recalled: The number of memories that were recalled for it.
        insights: The insights, with the decision on each: added, replacing an earlier one, or
            dropped.
        refused: The insights that were rejected, with the reason.
        cited: The texts of the memories that insights cite, by id.
    """

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
    """A record of the run: the new memories, or the insights for one question."""

    made: GatheredMemories | QuestionInsights


@dataclass(frozen=True)
class Integration(Result):
    """The result of a run: the new memories (`gathered`; None if the run stopped before they were
    read), and the insights for each question."""

    gathered: GatheredMemories | None
    questions: tuple[QuestionInsights, ...]

    @property
    def insights(self) -> tuple[DecidedInsight, ...]:
        """The insights that were stored."""
        return tuple(
            insight
            for each in self.questions
            for insight in each.insights
            if insight.decision != "drop"
        )

    def count(self, decision: str) -> int:
        return sum(
            insight.decision == decision for each in self.questions for insight in each.insights
        )

    @property
    def refused(self) -> tuple[RefusedInsight, ...]:
        return tuple(insight for each in self.questions for insight in each.refused)


def find_row(record: IntegrationRecord) -> Row:
    part = record.made
    if isinstance(part, GatheredMemories):
        return row_of("gathered", 0, part.failure)
    return row_of(f"question {part.number}", part.number, part.failure)


def summarise(_spec: IntegrateMemoriesSpec, records: Iterable[IntegrationRecord]) -> Integration:
    parts = [record.made for record in records]
    gathered = next((part for part in parts if isinstance(part, GatheredMemories)), None)
    return Integration(gathered, tuple(p for p in parts if isinstance(p, QuestionInsights)))


def report(spec: IntegrateMemoriesSpec, integration: Integration) -> Report:
    title = f"Integration of {spec.agent}"
    if integration.gathered is None:
        return Report(title, "Nothing was read.", [])
    new = integration.gathered
    sums = (
        f"{wording.count(new.memories, 'new memory')}, importance {new.importance:.1f} of"
        f" {new.threshold:g}{NewestMemories.describe_private(new.private)}"
    )
    if not new.memories:
        return Report(title, f"Nothing to integrate: {sums}.", [])
    if not new.due:
        return Report(title, f"Not due: {sums}. Use --always to integrate anyway.", [])
    blocks: list[Block] = []
    if integration.questions:
        blocks.append(Tree("Insights", list(map(_branch, integration.questions))))
    if integration.refused:
        columns = ("refused", "why")
        rows = [(insight.text, insight.reason) for insight in integration.refused]
        blocks.append(Table("Refused insights", columns, rows))

    return Report(title, _describe_integration(integration, new), blocks, {"Memories": sums})


def _describe_integration(integration: Integration, gathered: GatheredMemories) -> str:
    if gathered.failure is not None:
        return f"No questions were found: {gathered.failure.reason}"
    failed = sum(question.failure is not None for question in integration.questions)
    return (
        f"{wording.count(len(integration.questions), 'question')}:"
        f" {wording.count(integration.count('add'), 'insight')} added,"
        f" {integration.count('supersede')} replacing earlier ones,"
        f" {integration.count('drop')} known already;"
        f" {len(integration.refused)} refused"
        + (f"; {wording.count(failed, 'question')} without an answer." if failed else ".")
    )


def _branch(question: QuestionInsights) -> Branch:
    if question.failure is not None:
        return Branch(question.question, question.failure.reason, "bad")
    if not question.insights:
        return Branch(question.question, "no insight", "dim")
    return Branch(
        question.question, children=[_insight_branch(each, question) for each in question.insights]
    )


_DECISIONS = {"add": "added", "supersede": "replaces an earlier one", "drop": "dropped"}


def _insight_branch(decided: DecidedInsight, of: QuestionInsights) -> Branch:
    note = _DECISIONS[decided.decision]
    tone = ""
    if decided.decision == "drop":
        note += f" ({decided.reason})"
        tone = "dim"

    note += f", importance {decided.insight.importance:.1f}"
    cited = [Branch(of.cited.get(id, id), tone="dim") for id in decided.insight.cites]
    return Branch(decided.insight.text, note, tone, cited)


def data(_spec: IntegrateMemoriesSpec, integration: Integration) -> Mapping[str, Any]:
    return {
        "gathered": None if integration.gathered is None else asdict(integration.gathered),
        "questions": list(map(asdict, integration.questions)),
    }


def flatten(record: IntegrationRecord) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each insight."""
    part = record.made
    if isinstance(part, GatheredMemories):
        return
    for insight in part.insights:
        yield {
            "question": part.question,
            "insight": insight.insight.text,
            "decision": insight.decision,
            "reason": insight.reason,
            "importance": insight.insight.importance,
            "trust": insight.insight.trust,
            "cites": list(insight.insight.cites),
            "id": insight.id,
            "other": insight.other,
        }


STUDY = Study(
    spec=IntegrateMemoriesSpec,
    cases=read_agent_case,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(IntegrationRecord),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    describe=describe_by(pin),
)
