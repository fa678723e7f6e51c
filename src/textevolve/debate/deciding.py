"""The readouts `decide`, `after-argument` and `pointwise`.

The latter two ask a yes / no question for each component about each candidate: `after-argument`
after an agent's argument, with all that the agent has seen; `pointwise` shows one candidate and
nothing else. With `decide` one request of typed questions fills a turn's scores.

For each candidate and component one question: which level of its rubric is reached, or the
component's yes / no question where the rubric has no two levels. The agent's model answers them, or
the profile's `decider`, which may be a model that cannot argue. The state grows at its end: input
and candidates, what was said, then who judges; turns with one order share its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.profile import Agent, Component
from textevolve.debate.readout import HIGHEST, probe_score
from textevolve.debate.result import DecidedBy
from textevolve.engine.local import gather_bounded
from textevolve.events import StepStarted
from textevolve.llm.case_images import image_rules, images_of, user_message
from textevolve.llm.choice_logprobs import TOP_LOGPROBS, read_log_odds
from textevolve.llm.decisions import Answer, Question, decide, predicate, score
from textevolve.llm.model import Message, Model, Request

ScoreMatrix = tuple[tuple[float, ...], ...]
"""A row for each candidate, in the case's order, with a number for each component."""


def probe_scores(log_odds: ScoreMatrix) -> ScoreMatrix:
    return tuple(tuple(probe_score(value) for value in row) for row in log_odds)


async def probe_after(
    context: DebateContext, model: Model, speaker: Agent, round: int, spoken: tuple[Message, ...]
) -> ScoreMatrix:
    """The log-odds of yes after an argument: `spoken` are the turn's messages with its answer.

    The questions share these as their prefix. Each shows its response again: a small model tells
    responses apart better so, and all questions on one response, which follow each other, share
    that too.
    """

    def messages(candidate: int, component: int) -> tuple[Message, ...]:
        question = prompt("probe").render(
            label=f"Response {context.labels[candidate]}",
            response=context.fenced(candidate),
            agent=speaker.name,
            question=context.profile.components[component].probe,
        )
        return (*spoken, Message("user", (question,)))

    return await _ask_all(context, model, speaker, round, 0, messages)


async def probe_alone(
    context: DebateContext,
    model: Model,
    speaker: Agent,
    round: int,
    sample: int,
    remembered: str = "",
) -> ScoreMatrix:
    """The log-odds of yes from one candidate alone, quoted. All agents share input and candidate as
    their prefix; `remembered`, which shows the agent's memories, persona and question come last."""
    between = (remembered,) if remembered else ()
    rules = prompt("alone_rules").render(rules=context.profile.rules)
    system = Message("system", (rules, *image_rules(context.case)))
    input = context.quoted()
    shown = [
        prompt("alone").render(input=input, response=context.quoted(j))
        for j in range(len(context.candidates))
    ]

    def messages(candidate: int, component: int) -> tuple[Message, ...]:
        question = prompt("alone_question").render(
            agent=speaker.name,
            persona=speaker.persona,
            question=context.profile.components[component].probe,
        )
        parts = (shown[candidate], *between, question)
        return (system, user_message(context.case, parts, (candidate,)))

    return await _ask_all(context, model, speaker, round, sample, messages)


async def _ask_all(
    context: DebateContext,
    model: Model,
    speaker: Agent,
    round: int,
    sample: int,
    messages: Callable[[int, int], tuple[Message, ...]],
) -> ScoreMatrix:
    components = range(len(context.profile.components))
    cells = [(j, k) for j in range(len(context.labels)) for k in components]
    done = 0

    async def ask(candidate: int, component: int) -> float:
        nonlocal done
        response = await model(
            Request(
                messages=messages(candidate, component),
                temperature=0.0,
                max_tokens=1,
                seed=context.profile.seed,
                sample=sample,
                top_logprobs=TOP_LOGPROBS,
            )
        )
        done += 1
        details = {"round": round, "agent": speaker.name, "done": done, "total": len(cells)}
        context.listener(StepStarted(context.case.id, "probe", details))
        return read_log_odds(response)

    values = await gather_bounded(
        [lambda j=j, k=k: ask(j, k) for j, k in cells], context.concurrency
    )
    width = len(components)
    return tuple(tuple(values[j * width : (j + 1) * width]) for j in range(len(context.labels)))


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
        model,
        state,
        list(asked.values()),
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
