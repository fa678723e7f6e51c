"""Integration of memories (reflection): a model draws insights from memories, each with the
memories that support it.

After Park et al., Generative Agents (arXiv 2304.03442, section 4.2): ask salient questions about
the newest memories, recall memories for each question, and draw insights that cite the recalled
memories. `studies` selects the memories and stores the insights. The texts of memories are
untrusted data, so prompts show them between marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from textevolve.llm.model import Model, text_request
from textevolve.llm.prompts import (
    Template,
    count_tokens,
    draw_nonce,
    fenced,
    load_template,
    number_lines,
)
from textevolve.llm.structured import ask_structured
from textevolve.memory.creation import PointDecision
from textevolve.memory.extraction import DialoguePoint
from textevolve.memory.recall import Memory
from textevolve.memory.record import MemoryRecord
from textevolve.memory.sameness import lacks, words_of
from textevolve.spec import Frozen, Share, option
from textevolve.texts.prose import fold_case, join_lines

# Format memories for prompts: numbered, one per line, between marks that the text of a memory
# cannot imitate.

A = TypeVar("A", bound=BaseModel)


def memory_prompt(name: str) -> Template:
    """Load a prompt of this package."""
    return load_template("textevolve.memory", name)


def number_texts(texts: Iterable[str], name: str, nonce: str) -> str:
    """Format texts for a prompt: numbered from 1, each on one line, between marks."""
    return fenced(name, number_lines(join_lines(text) for text in texts), nonce)


def count_fitting(texts: Sequence[str], budget: int) -> int:
    """Return how many of the first texts fit into a budget of tokens; at least one if there is
    any."""
    room = budget
    for number, text in enumerate(texts):
        room -= count_tokens(text) + 3  # its number and the end of its line
        if room < 0:
            return max(1, number)

    return len(texts)


class CitingAnswer(BaseModel):
    """An answer that cites memories by their numbers."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)


async def ask_about(
    model: Model,
    template: Template,
    answer: type[A],
    seed: int,
    max_tokens: int,
    number: int,
    **texts: Sequence[str],
) -> A:
    """Ask the model about texts, which the prompt shows numbered, each group between marks with its
    name. `number`: how many answers, such as insights, to ask for.

    Raises:
        AnswerError: no usable answer came.
    """
    nonce = draw_nonce([text for group in texts.values() for text in group], seed)
    groups = {name: number_texts(group, name, nonce) for name, group in texts.items()}
    request = text_request(template.render(**groups, number=number), max_tokens, seed)

    return (await ask_structured(model, request, answer)).value


def find_citation_fault(cited: Sequence[int], number: int) -> str:
    """Return why citations of `number` memories are invalid; empty if they are valid."""
    if not cited:
        return "cites no memory"
    wrong = [n for n in cited if not 1 <= n <= number]
    return f"cites memory {wrong[0]}, and {number} were shown" if wrong else ""


def _take_number(value: Any) -> int:
    """Replace an unreadable number by 0, which no memory has, so a bad citation only spoils the
    edit or insight that has it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0
    try:
        number = float(value)
        return int(number) if number.is_integer() else 0
    except (ValueError, OverflowError):
        return 0


def citations(most: int) -> Any:
    """Return the type of a list of numbers of `most` memories. The schema names the valid range;
    other numbers are accepted, so that they can be counted as faults."""
    constraints: dict[str, Any] = {"items": {"type": "integer", "minimum": 1, "maximum": most}}
    constraints |= {"minItems": 1, "maxItems": min(most, 10)}
    number = Annotated[int, BeforeValidator(_take_number)]
    return Annotated[list[number], Field(max_length=50, json_schema_extra=constraints)]


LONGEST = 400
"""The maximum number of characters of a question, and of an insight."""
QUESTION_TOKENS = 60
INSIGHT_TOKENS = 110
"""The maximum number of tokens for each requested question and insight."""


class IntegrationPlan(Frozen):
    """The options of integrating memories: when, and how."""

    threshold: float = option(
        15.0,
        "Integrate memories when the importance (0 to 1 each) of the new ones adds up to this."
        " Park et al. use 150 on a scale of 10.",
        ge=0,
    )
    always: bool = option(
        False, "Integrate new memories even if their importance is below --threshold."
    )
    questions: int = option(
        5, "The number of questions that the model asks about the new memories.", ge=1, le=20
    )
    insights: int = option(5, "The most insights for each question.", ge=1, le=20)
    newest: int = option(
        100,
        "The most memories, the newest ones, from which the questions are written.",
        ge=1,
        le=1000,
    )
    recalled: int = option(15, "The most memories that are recalled for a question.", ge=1, le=200)
    budget: int = option(
        2000, "The most tokens that memories may have together in one prompt.", ge=64, le=100_000
    )
    min_trust: Share = option(
        0.0,
        "The least trust of a memory, from 0 to 1; memories with less trust are left out.",
    )
    seed: int = option(0, "The seed of the model's answers; another seed may give other insights.")


@dataclass(frozen=True, slots=True)
class Insight:
    """An insight from memories. `cites`: ids of the memories that the model cites for it. `trust`:
    the lowest trust of these, and of other memories that are the only source of a name or number in
    the text."""

    text: str
    cites: tuple[str, ...]
    importance: float
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class RefusedInsight:
    """A rejected insight of a model, and the reason."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrawnInsights:
    """The insights that a model draws for one question, and those that were rejected."""

    insights: tuple[Insight, ...] = ()
    refused: tuple[RefusedInsight, ...] = ()


@dataclass(frozen=True, slots=True)
class DecidedInsight:
    """The decision on an insight, and its reason: add it, let it supersede an existing one, or drop
    it, because it is known already. `other`: the id of the memory that a superseding insight
    replaces, or of the one most similar to a dropped insight; empty for an added one. `id`: the id
    of its stored memory."""

    insight: Insight
    decision: Literal["add", "supersede", "drop"]
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
def _insights_of(number: int, memories: int) -> type[_Insights]:
    """Return the type of an answer for `number` requested insights (twice as many are accepted),
    whose schema allows citations of the memories 1 to `memories`."""
    drawn: Any = create_model(
        f"Insight{memories}", __base__=_Drawn, because=(citations(memories), ...)
    )
    listed: Any = Annotated[list[drawn], Field(max_length=2 * number)]
    return create_model(f"Insights{number}x{memories}", __base__=_Insights, insights=(listed, ...))


async def find_questions(
    model: Model, memories: Sequence[MemoryRecord], plan: IntegrationPlan
) -> tuple[str, ...]:
    """Ask the model for salient questions about memories, and return the distinct ones, at most
    `plan.questions`. `memories`: oldest first; only the newest are shown, as many as `plan.newest`
    and the token budget allow.

    Raises:
        AnswerError: the model gave no usable answer.
    """
    newest = list(reversed(memories))[: plan.newest]
    fitting = newest[: count_fitting([memory.text for memory in newest], plan.budget)]
    texts = [memory.text for memory in reversed(fitting)]
    tokens = 50 + QUESTION_TOKENS * plan.questions
    answer = await ask_about(
        model,
        memory_prompt("integration_questions"),
        _questions_of(plan.questions),
        plan.seed,
        tokens,
        plan.questions,
        memories=texts,
    )
    by_words = {
        join_lines(fold_case(question)): question for question in reversed(answer.questions)
    }

    return tuple(reversed(by_words.values()))[: plan.questions]


async def draw_insights(
    model: Model, question: str, memories: Sequence[Memory], plan: IntegrationPlan
) -> DrawnInsights:
    """Ask the model for insights that answer a question from recalled memories. An insight is
    rejected if it cites no memory, cites one that was not shown, or only repeats a memory.
    Duplicates, and insights beyond `plan.insights`, are dropped.

    Raises:
        AnswerError: the model gave no usable answer.
    """
    if not memories:
        return DrawnInsights()
    texts = [memory.text for memory in memories]
    answer = await ask_about(
        model,
        memory_prompt("integration_insights"),
        _insights_of(plan.insights, len(memories)),
        plan.seed,
        50 + INSIGHT_TOKENS * plan.insights,
        plan.insights,
        memories=texts,
        question=[question],
    )
    insights: dict[str, Insight] = {}
    refused: list[RefusedInsight] = []
    memory_texts = {_plain(text) for text in texts}

    for drawn in answer.insights:
        fault = find_citation_fault(drawn.because, len(memories))
        if not fault and _plain(drawn.insight) in memory_texts:
            fault = "repeats a memory"
        if fault:
            refused.append(RefusedInsight(drawn.insight, fault))
        elif len(insights) < plan.insights:
            cited = [memories[n - 1] for n in dict.fromkeys(drawn.because)]
            uncited = lacks(" ".join(each.text for each in cited), drawn.insight)
            supporting = [each for each in memories if uncited & set(words_of(each.text))]
            trust = min(
                (1.0 if each.trust is None else each.trust) for each in (*cited, *supporting)
            )
            insight = Insight(
                drawn.insight, tuple(each.id for each in cited), drawn.importance / 10, trust
            )
            insights.setdefault(_plain(drawn.insight), insight)

    return DrawnInsights(tuple(insights.values()), tuple(refused))


def _plain(text: str) -> str:
    return join_lines(fold_case(text)).strip(" .!?。！？।؟۔")


def as_points(
    insights: Sequence[Insight], question: str, cited: Mapping[str, MemoryRecord]
) -> list[DialoguePoint]:
    """Convert insights into points, which are then reconciled like points of dialogues. `cited`:
    the memories that support them, by id."""
    points: list[DialoguePoint] = []
    for insight in insights:
        folded = fold_case(insight.text)
        names = (name for id in insight.cites for name in cited[id].entities)
        entities = tuple(dict.fromkeys(name for name in names if fold_case(name) in folded))
        point = DialoguePoint(
            text=insight.text,
            turn=None,
            author="",
            importance=insight.importance,
            trust=insight.trust,
            entities=entities,
            cites=insight.cites,
            question=question,
        )
        points.append(point)

    return points


def decided_insight(decided: PointDecision, question: str) -> DecidedInsight:
    """Convert the decision on a point into the decision on its insight."""
    prefix = f"{question} ("
    reason = decided.reason
    reason = reason[len(prefix) : -1] if reason.startswith(prefix) else reason
    point = decided.point
    superseded = decided.action in ("merge", "update")
    insight = Insight(decided.text or point.text, point.cites, point.importance, point.trust)
    decision = "supersede" if superseded else "drop" if decided.action == "drop" else "add"
    other_ids = [near.id for near in decided.near if not superseded or near.text in decided.before]
    other = "" if decision == "add" else next(iter(other_ids), "")

    return DecidedInsight(insight, decision, reason, other, decided.id)
