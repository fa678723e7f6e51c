"""Integration (reflection): insights from memories, each with the memories that it rests on.

After Park et al., Generative Agents (arXiv 2304.03442, section 4.2): salient questions about the
newest memories, recall for each of them, insights that cite what was recalled. What is shown and
kept is the business of `studies`; memories are data from strangers and stand between marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from textevolve.llm.model import Model
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template
from textevolve.memory.index import Embed, MemoryQuery, MemoryStore
from textevolve.memory.recall import Memory
from textevolve.memory.record import (
    Add,
    Change,
    MemoryRecord,
    NewMemory,
    Origin,
    Supersede,
    Vector,
)
from textevolve.memory.sameness import lacks, words_of
from textevolve.memory.shown import (
    CitingAnswer,
    ask_about,
    ask_once,
    citations,
    count_fitting,
    fence_one,
    find_citation_fault,
    memory_prompt,
)
from textevolve.spec import Frozen, option

LONGEST = 400
"""Characters of a question, and of an insight."""
QUESTION_TOKENS, INSIGHT_TOKENS = 60, 110
"""What is allowed for each of those that are asked for."""


class IntegrationPlan(Frozen):
    """When memories are integrated, and how."""

    threshold: float = option(
        15.0,
        "Memories are integrated when the importance (0 to 1 each) of those since the last time"
        " adds up to this. Park et al. have 150 on a scale of 10.",
        ge=0,
    )
    always: bool = option(False, "Integrate whatever is new, however little it is.")
    questions: int = option(5, "How many questions are asked about what is new.", ge=1, le=20)
    insights: int = option(5, "The most insights for each question.", ge=1, le=20)
    newest: int = option(
        100, "The questions are found from at most so many of the newest memories.", ge=1, le=1000
    )
    recalled: int = option(15, "The most memories that are recalled for a question.", ge=1, le=200)
    budget: int = option(
        2000, "The most tokens that memories may have together in one prompt.", ge=64, le=100_000
    )
    min_trust: float = option(
        0.0, "Memories whose source is trusted less are left out.", ge=0, le=1
    )
    near: float = option(
        0.7,
        "With a known insight whose embedding is at least so similar a new one is compared by the"
        " model.",
        ge=-1,
        le=1,
    )
    duplicate: float = option(
        0.95, "From this similarity on a new insight is known already, and dropped.", ge=-1, le=1
    )
    seed: int = option(0, "Seed of what is asked.")


@dataclass(frozen=True, slots=True)
class Insight:
    """`cites`: ids of the memories that it rests on, as the model says. `trust`: of the least
    trusted of them, and of those that alone hold a name or number of the text."""

    text: str
    cites: tuple[str, ...]
    importance: float
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class RefusedInsight:
    """What a model wrote that is no insight, and why."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrawnInsights:
    insights: tuple[Insight, ...] = ()
    refused: tuple[RefusedInsight, ...] = ()


InsightDecision: TypeAlias = Literal["add", "supersede", "drop"]


@dataclass(frozen=True, slots=True)
class DecidedInsight:
    """What becomes of an insight and why. `other`: the insight that it takes the place of, or that
    says it already. `id`: as it was kept."""

    insight: Insight
    decision: InsightDecision
    reason: str = ""
    other: str = ""
    id: str = ""


_Short = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class _Related(CitingAnswer):
    relation: Literal["same", "replaces", "different"]


class _Questions(CitingAnswer):
    questions: list[_Short]


class _Drawn(CitingAnswer):
    insight: _Short
    because: list[int]
    importance: Annotated[int, Field(ge=1, le=10)]


class _Insights(CitingAnswer):
    insights: Sequence[_Drawn]


@lru_cache(maxsize=64)
def _questions_of(number: int) -> type[_Questions]:
    listed: Any = Annotated[list[_Short], Field(min_length=1, max_length=2 * number)]
    return create_model(f"Questions{number}", __base__=_Questions, questions=(listed, ...))


@lru_cache(maxsize=512)
def _insights_of(number: int, shown: int) -> type[_Insights]:
    """The answer with the numbers of the memories in its schema."""
    drawn: Any = create_model(f"Insight{shown}", __base__=_Drawn, because=(citations(shown), ...))
    listed: Any = Annotated[list[drawn], Field(max_length=2 * number)]
    return create_model(f"Insights{number}x{shown}", __base__=_Insights, insights=(listed, ...))


def prompts_version() -> dict[str, str]:
    """A hash of each prompt that integration has; a change of one makes another run."""
    templates = (_questions_prompt(), _insights_prompt(), _near_prompt())
    return {template.name: template.version for template in templates}


def _questions_prompt() -> Template:
    return memory_prompt("integration_questions", "memories", "number")


def _insights_prompt() -> Template:
    return memory_prompt("integration_insights", "memories", "question", "number")


def _near_prompt() -> Template:
    return memory_prompt("integration_near", "known", "new")


async def find_questions(
    model: Model, memories: Sequence[MemoryRecord], plan: IntegrationPlan
) -> tuple[str, ...]:
    """Salient questions about memories, which are given oldest first; of those that do not fit the
    budget the newest are shown.

    Raises:
        AnswerError: no usable answer came.
    """
    newest = list(reversed(memories))[: plan.newest]
    fitting = newest[: count_fitting([one.text for one in newest], plan.budget)]
    texts = [one.text for one in reversed(fitting)]
    tokens = 50 + QUESTION_TOKENS * plan.questions
    answer = await ask_about(
        model,
        _questions_prompt(),
        _questions_of(plan.questions),
        plan.seed,
        tokens,
        plan.questions,
        memories=texts,
    )
    found = {" ".join(one.casefold().split()): one for one in reversed(answer.questions)}
    return tuple(reversed(found.values()))[: plan.questions]


async def draw_insights(
    model: Model, question: str, memories: Sequence[Memory], plan: IntegrationPlan
) -> DrawnInsights:
    """What follows from recalled memories for a question. What cites nothing, or cites what was not
    shown, or only repeats a memory, is refused.

    Raises:
        AnswerError: no usable answer came.
    """
    if not memories:
        return DrawnInsights()
    texts = [one.text for one in memories]
    answer = await ask_about(
        model,
        _insights_prompt(),
        _insights_of(plan.insights, len(memories)),
        plan.seed,
        50 + INSIGHT_TOKENS * plan.insights,
        plan.insights,
        memories=texts,
        question=[question],
    )
    found, refused = dict[str, Insight](), list[RefusedInsight]()
    known = {_plain(text) for text in texts}
    for one in answer.insights:
        fault = find_citation_fault(one.because, len(memories))
        if not fault and _plain(one.insight) in known:
            fault = "repeats a memory"
        if fault:
            refused.append(RefusedInsight(one.insight, fault))
        elif len(found) < plan.insights:
            cited = [memories[n - 1] for n in dict.fromkeys(one.because)]
            uncited = lacks(" ".join(each.text for each in cited), one.insight)
            rest = [each for each in memories if uncited & set(words_of(each.text))]
            trust = min((1.0 if each.trust is None else each.trust) for each in (*cited, *rest))
            made = Insight(
                one.insight, tuple(each.id for each in cited), one.importance / 10, trust
            )
            found.setdefault(_plain(one.insight), made)
    return DrawnInsights(tuple(found.values()), tuple(refused))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .!?")


async def decide_insights(
    model: Model,
    store: MemoryStore,
    collection: str,
    embed: Embed,
    insights: Sequence[Insight],
    plan: IntegrationPlan,
    version: int,
) -> tuple[list[DecidedInsight], list[Vector]]:
    """What becomes of each insight beside those that `version` of the collection holds, and its
    embedding. A known one is never superseded by one that is trusted less.

    Raises:
        AnswerError: no usable answer came. ModelError: no embedding came.
    """
    held = await store.collection(collection)
    decided, vectors = list[DecidedInsight](), list[Vector]()
    for insight in insights:
        vector = await embed(held, insight.text)
        matches = await store.search(
            MemoryQuery(
                collection=collection,
                text=insight.text,
                embedding=vector,
                limit=plan.insights,
                version=version,
            )
        )
        near = [one for one in matches if one.similarity is not None]
        nearest = max(near, key=lambda one: (one.similarity or 0.0, one.memory.id), default=None)
        twin = next(
            (
                one
                for one, other in zip(decided, vectors, strict=True)
                if one.decision != "drop" and float(other @ vector) >= plan.duplicate
            ),
            None,
        )
        if twin is not None:
            made = DecidedInsight(insight, "drop", "another one of this question says it")
        elif nearest is None:
            made = DecidedInsight(insight, "add", "nothing like it is known")
        else:
            closed = {one.other for one in decided if one.decision == "supersede"}
            made = await _compare(
                model, insight, nearest.memory, nearest.similarity or 0.0, plan, closed
            )
        decided.append(made)
        vectors.append(vector)
    return decided, vectors


async def _compare(
    model: Model,
    insight: Insight,
    known: MemoryRecord,
    similarity: float,
    plan: IntegrationPlan,
    closed: set[str],
) -> DecidedInsight:
    """An insight beside the nearest one that is known."""
    if _plain(known.text) == _plain(insight.text) or similarity >= plan.duplicate:
        return DecidedInsight(insight, "drop", "it is known already", known.id)
    if similarity < plan.near:
        return DecidedInsight(insight, "add", "nothing like it is known")
    prompt = _near_prompt().render(
        known=fence_one("known", known.text, plan.seed),
        new=fence_one("new", insight.text, plan.seed),
    )
    answer = await ask_structured(model, ask_once(prompt, plan.seed, 40), _Related)
    if answer.value.relation == "same":
        return DecidedInsight(insight, "drop", "a known one says the same", known.id)
    if answer.value.relation == "different":
        return DecidedInsight(insight, "add", "it is about another matter than the nearest one")
    if insight.trust < known.origin.trust:
        return DecidedInsight(insight, "add", "it is trusted less than the one it would replace")
    if known.id in closed:
        return DecidedInsight(insight, "add", "another one has replaced the nearest already")
    return DecidedInsight(insight, "supersede", "says it more fully, or what holds now", known.id)


def change_insights(
    decided: Sequence[DecidedInsight],
    vectors: Sequence[Vector],
    question: str,
    source: str,
    cited: Mapping[str, MemoryRecord],
) -> list[Change]:
    """The changes of the collection of insights. `cited`: the memories that they rest on, by id."""
    changes = list[Change]()
    for one, vector in zip(decided, vectors, strict=True):
        insight = one.insight
        folded = insight.text.casefold()
        named = (name for id in insight.cites for name in cited[id].entities)
        memory = NewMemory(
            text=insight.text,
            embedding=vector,
            importance=insight.importance,
            kind="insight",
            origin=Origin(source=source, trust=insight.trust),
            entities=tuple(dict.fromkeys(name for name in named if name.casefold() in folded)),
            cites=insight.cites,
            reason=f"{question} ({one.reason})",
        )
        if one.decision == "add":
            changes.append(Add(memory))
        elif one.decision == "supersede":
            changes.append(Supersede((one.other,), memory))
    return changes


def name_kept(decided: Sequence[DecidedInsight], ids: Sequence[str]) -> tuple[DecidedInsight, ...]:
    """The decisions with the ids of what was kept, in the order of the changes."""
    left = iter(ids)
    return tuple(
        one if one.decision == "drop" else replace(one, id=next(left, "")) for one in decided
    )
