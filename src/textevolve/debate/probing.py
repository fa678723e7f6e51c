"""The readouts `after-argument` and `pointwise`: yes / no questions on each candidate.

For each component one. `after-argument` asks after an agent's argument, with all that the agent has
seen. `pointwise` shows one candidate and nothing else: no rival, no argument, no history. A small
model judges better so, since a rival and its own words sway it.
"""

from __future__ import annotations

from collections.abc import Callable

from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.profile import Agent
from textevolve.debate.readout import probe_score
from textevolve.engine.local import gather_bounded
from textevolve.events import StepStarted
from textevolve.llm.case_images import image_rules, user_message
from textevolve.llm.choice_logprobs import TOP_LOGPROBS, read_log_odds
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
