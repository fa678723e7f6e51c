"""Integration (reflection): insights from memories, each with the memories that it rests on.

After Park et al., Generative Agents (arXiv 2304.03442, section 4.2): salient questions about the
newest memories, recall for each of them, insights that cite what was recalled. What is shown and
kept is the business of `studies`; memories are data from strangers and stand between marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from textevolve.llm.model import Model
from textevolve.llm.template import Template
from textevolve.memory.extraction import DialoguePoint
from textevolve.memory.recall import Memory
from textevolve.memory.reconciliation import PointDecision
from textevolve.memory.record import MemoryRecord
from textevolve.memory.sameness import lacks, words_of
from textevolve.memory.shown import (
    CitingAnswer,
    ask_about,
    citations,
    count_fitting,
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
    templates = (_questions_prompt(), _insights_prompt())
    return {f"memory.{template.name}": template.version for template in templates}


def _questions_prompt() -> Template:
    return memory_prompt("integration_questions", "memories", "number")


def _insights_prompt() -> Template:
    return memory_prompt("integration_insights", "memories", "question", "number")


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


def as_points(
    insights: Sequence[Insight], question: str, cited: Mapping[str, MemoryRecord]
) -> list[DialoguePoint]:
    """Insights as points, which are compared with what is known as those of dialogues are.
    `cited`: the memories that they rest on, by id."""
    points = list[DialoguePoint]()
    for one in insights:
        folded = one.text.casefold()
        named = (name for id in one.cites for name in cited[id].entities)
        entities = tuple(dict.fromkeys(name for name in named if name.casefold() in folded))
        point = DialoguePoint(
            text=one.text,
            turn=None,
            author="",
            importance=one.importance,
            trust=one.trust,
            entities=entities,
            cites=one.cites,
            question=question,
        )
        points.append(point)
    return points


def decided_insight(made: PointDecision, question: str) -> DecidedInsight:
    """Return what became of an insight out of what became of its point."""
    asked, reason = f"{question} (", made.reason
    reason = reason[len(asked) : -1] if reason.startswith(asked) else reason
    point, superseded = made.point, made.action in ("merge", "update")
    insight = Insight(made.text or point.text, point.cites, point.importance, point.trust)
    decision = "supersede" if superseded else "drop" if made.action == "drop" else "add"
    other = made.near[0].id if made.near and decision != "add" else ""
    return DecidedInsight(insight, decision, reason, other, made.id)
