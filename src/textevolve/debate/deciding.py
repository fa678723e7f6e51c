"""The readout `decide`: one request of typed questions fills a turn's scores.

For each candidate and component one question: which level of its rubric is reached, or the
component's yes / no question where the rubric has no two levels. The agent's model answers them, or
the profile's `decider`, which may be a model that cannot argue. The state grows at its end: input
and candidates, what was said, then who judges; turns with one order share its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.probing import ScoreMatrix
from textevolve.debate.profile import Agent, Component
from textevolve.debate.readout import HIGHEST
from textevolve.debate.result import DecidedBy
from textevolve.llm.case_images import image_rules, images_of
from textevolve.llm.decisions import Answer, Question, decide, predicate, score
from textevolve.llm.model import Model


@dataclass(frozen=True, slots=True)
class DecidedScores:
    """`log_odds`: where every question was a yes / no question, else None."""

    scores: ScoreMatrix
    log_odds: ScoreMatrix | None
    decided_by: DecidedBy


async def decide_scores(
    context: DebateContext,
    model: Model,
    speaker: Agent,
    order: tuple[int, ...],
    heard: Sequence[str] = (),
    memories: tuple[str, ...] = (),
    *,
    sample: int = 0,
) -> DecidedScores:
    """All scores of a turn. `heard`: what was said so far, this turn's argument last; nothing where
    agents do not argue. `memories`, and all else in the state, is fenced.

    Raises:
        AnswerError: a question has no answer. ModelError: no answer came at all.
    """
    profile = context.profile
    ending = prompt("decide").render(
        memories=memories, agent=speaker.name, persona=speaker.persona, today=context.today
    )
    rules = prompt("decide_rules").render(rules=profile.rules)
    state = (rules + "".join(image_rules(context.case)), context.opening(order), *heard, ending)
    cells = [(j, component) for j in order for component in profile.components]
    asked = {(j, c.name): ask_cell(f"Response {context.labels[j]}", c) for j, c in cells}
    decision = await decide(
        *(model, state, list(asked.values())),
        seed=profile.seed,
        sample=sample,
        images=images_of(context.case, context.listed),
    )
    answers = {cell: decision.answer(question.name) for cell, question in asked.items()}
    rows = [[(j, c) for c in profile.components] for j in range(len(context.labels))]
    scores = tuple(tuple(read_score(c, answers[j, c.name]) for j, c in row) for row in rows)
    log_odds = None
    if all(question.kind == "predicate" for question in asked.values()):
        log_odds = tuple(tuple(answers[j, c.name].log_odds for j, c in row) for row in rows)
    by = DecidedBy(model.name, decision.emulated, decision.cut)
    return DecidedScores(scores, log_odds, by)


def ask_cell(label: str, component: Component) -> Question:
    """The question about one candidate, by its label, and one component."""
    name = f"{label}: {component.name}"
    if len(component.rubric) < 2:
        return predicate(name, f"{label}: {component.probe}")
    asked = f"{label}: {component.name}, that is, {component.meaning}. Which level is reached?"
    return score(name, asked, [component.rubric[points] for points in sorted(component.rubric)])


def read_score(component: Component, answer: Answer) -> float:
    """In [0, 10]: 10 x P(yes), or the points that the levels stand for, expected. For levels from 0
    to 10 with equal steps between them these are 10 x `Answer.share`."""
    if len(component.rubric) < 2:
        return HIGHEST * answer.share
    points = sorted(component.rubric)
    expected = sum(n * p for n, p in zip(points, answer.probabilities, strict=True))
    return min(max(expected, 0.0), float(HIGHEST))
