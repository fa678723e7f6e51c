"""One turn: what an agent is shown, what it is asked, and what its answer becomes.

A turn's prompt grows at its end: rules, input and candidates, history, then memories, persona and
the request. All turns of a debate share its beginning, which a server keeps in its prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from textevolve.debate.candidate_order import place_candidates
from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.probing import probe_after, probe_alone, probe_scores
from textevolve.debate.profile import Agent
from textevolve.debate.readout import (
    answer_type,
    keep_words,
    read_points,
    read_verbalized,
    read_weighted,
)
from textevolve.debate.result import Points, Turn
from textevolve.errors import AnswerError, BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Failure, Usage
from textevolve.events import StepFinished, StepStarted
from textevolve.llm.choice_logprobs import TOP_LOGPROBS
from textevolve.llm.fence import fence, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ParseMode, UnusableAnswer, ask_structured
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.recall import Cue, Memory


@lru_cache(maxsize=256)
def _ending(
    memories: tuple[str, ...],
    agent: str,
    persona: str,
    round: int,
    rounds: int,
    today: str,
    labels: tuple[int, ...],
) -> str:
    """The end of a turn's prompt: where nothing is remembered, that of other debates too."""
    named = [f"Response {n}" for n in labels]
    listed = ", ".join(named[:-1]) + " and " + named[-1] if len(named) > 1 else named[0]
    return prompt("request").render(
        memories=memories,
        agent=agent,
        persona=persona,
        round=round,
        rounds=rounds,
        today=today,
        labels=listed,
    )


async def take_turn(
    context: DebateContext, round: int, agent: int, history: Sequence[str], *, sample: int = 0
) -> Turn:
    """Let one agent speak. A turn that fails says so in its `failure` and has no scores.

    Raises:
        FatalModelError: no later call could succeed either.
    """
    speaker = context.profile.agents[agent]
    number = round * len(context.profile.agents) + agent
    order = place_candidates(number, context.labels, context.profile.order)
    model = context.model_of(speaker)
    details = {"round": round, "agent": speaker.name, "model": model.name}
    context.listener(StepStarted(context.case.id, "turn", details))
    meter = UsageMeter(model)
    asked = _Ask(context, meter, speaker, round, tuple(history), sample)
    said = await _speak(asked, order)
    turn = Turn(
        round=round,
        agent=agent,
        model=model.name,
        order=order,
        argument=said.argument,
        points=said.points,
        scores=said.scores,
        log_odds=said.log_odds,
        failure=said.failure,
        parse_mode=said.parse_mode,
        memories=said.memories,
        sanitized=said.sanitized,
        usage=meter.usage,
        seconds=meter.seconds,
    )
    context.listener(StepFinished(context.case.id, "turn", turn))
    return turn


@dataclass(frozen=True, slots=True)
class _Ask:
    """One turn's question, before the candidates are put in an order."""

    context: DebateContext
    model: Model
    speaker: Agent
    round: int
    history: tuple[str, ...]
    sample: int

    def request(self, order: tuple[int, ...], memories: Sequence[Memory]) -> Request:
        context, profile = self.context, self.context.profile
        fenced = tuple(
            fence("memory", sanitize(m.text, context.nonce)[0], context.nonce) for m in memories
        )
        shown = tuple(context.labels[j] for j in order)
        speaker, number = self.speaker, self.round + 1
        ending = _ending(
            fenced, speaker.name, speaker.persona, number, profile.rounds, context.today, shown
        )
        return Request(
            messages=(
                Message("system", (context.rules,)),
                Message("user", (context.opening(order), *self.history, ending)),
            ),
            temperature=profile.sampling_temperature,
            max_tokens=profile.max_answer_tokens,
            seed=profile.seed,
            sample=self.sample,
            top_logprobs=TOP_LOGPROBS if context.profile.readout == "logprob-weighted" else 0,
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """What came of a turn's question; the fields are those of `Turn`."""

    argument: str = ""
    points: tuple[Points, ...] = ()
    scores: tuple[tuple[float, ...], ...] | None = None
    log_odds: tuple[tuple[float, ...], ...] | None = None
    failure: Failure | None = None
    parse_mode: ParseMode | None = None
    memories: tuple[str, ...] = ()
    sanitized: int = 0


async def _speak(asked: _Ask, order: tuple[int, ...]) -> _Said:
    try:
        if not asked.context.profile.argue:
            return await _score_only(asked)
        memories = await _remember(asked.context, asked.speaker, asked.history)
        said = await _answer(asked, order, memories)
        if asked.context.swaps(order):
            said = _average(said, await _answer(asked, order[::-1], memories))
        return said
    except FatalModelError:
        raise
    except BudgetError as error:
        return _Said(failure=Failure("skipped", str(error)))
    except ModelError as error:
        return _Said(failure=Failure("failed", str(error)))


async def _score_only(asked: _Ask) -> _Said:
    log_odds = await probe_alone(
        asked.context, asked.model, asked.speaker, asked.round, asked.sample
    )
    return _Said(scores=probe_scores(log_odds), log_odds=log_odds)


async def _remember(
    context: DebateContext, agent: Agent, history: Sequence[str]
) -> tuple[Memory, ...]:
    cue = Cue(
        agent.name,
        agent.collections,
        context.case.input,
        context.case.candidates,
        "".join(history),
    )
    try:
        return await context.recall(cue)
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the recall of {agent.name} failed: {reason}") from error


async def _answer(asked: _Ask, order: tuple[int, ...], memories: tuple[Memory, ...]) -> _Said:
    context = asked.context
    names = tuple(c.name for c in context.profile.components)
    shown = tuple(context.labels[j] for j in order)
    request = asked.request(order, memories)
    words = context.profile.argument_words
    kind = answer_type(shown, names, context.profile.readout, words)
    answer = await ask_structured(asked.model, request, kind)
    argument = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
    text, sanitized = sanitize(keep_words(argument, words), context.nonce)
    log_odds = None
    if context.profile.readout == "pointwise":
        log_odds = await probe_alone(context, asked.model, asked.speaker, asked.round, asked.sample)
    elif context.profile.readout == "after-argument":
        spoken = (*request.messages, Message("assistant", (answer.responses[-1].text,)))
        log_odds = await probe_after(context, asked.model, asked.speaker, asked.round, spoken)
    if log_odds is not None:
        scores = probe_scores(log_odds)
    elif context.profile.readout == "logprob-weighted":
        last = answer.responses[-1]
        scores = read_weighted(last, context.labels, shown, names)
    else:
        scores = read_verbalized(answer.value, context.labels)
    return _Said(
        argument=text,
        points=read_points(answer.value, context.labels) if words is None else (),
        scores=scores,
        log_odds=log_odds,
        parse_mode=answer.parse_mode,
        memories=tuple(m.text for m in memories),
        sanitized=sanitized,
    )


def _average(one: _Said, other: _Said) -> _Said:
    """What was said, with the scores of both orders averaged; its argument is that of the first."""
    if one.scores is None or other.scores is None:
        raise AnswerError("one of the two orders gave no scores")
    pairs = zip(one.scores, other.scores, strict=True)
    scores = tuple(tuple((a + b) / 2 for a, b in zip(x, y, strict=True)) for x, y in pairs)
    return replace(one, scores=scores, sanitized=one.sanitized + other.sanitized, log_odds=None)


def quote_turn(context: DebateContext, turn: Turn) -> str:
    """A turn as the others see it in their history."""
    name = context.profile.agents[turn.agent].name
    if turn.scores is None:
        return ""
    lines: list[str] = []
    for j in sorted(range(len(context.labels)), key=context.labels.__getitem__):
        row = zip(context.profile.components, turn.scores[j], strict=True)
        lines.append(
            f"Response {context.labels[j]}: " + ", ".join(f"{c.name} {s:.1f}" for c, s in row)
        )
    return prompt("spoken").render(
        round=turn.round + 1,
        agent=name,
        argument=fence("argument", turn.argument, context.nonce),
        scores="; ".join(lines) + ".",
    )


async def sum_up(
    context: DebateContext, history: Sequence[str], round: int
) -> tuple[str | None, Usage, Failure | None]:
    """A neutral summary of the debate so far by the first agent's model, fenced for the history."""
    context.listener(StepStarted(context.case.id, "summary", {"round": round}))
    meter = UsageMeter(context.model_of(context.profile.agents[0]))
    order = place_candidates(0, context.labels, "fixed")
    text = (context.opening(order), *history, prompt("summary").render())
    request = Request(
        messages=(Message("system", (context.rules,)), Message("user", text)),
        temperature=context.profile.sampling_temperature,
        max_tokens=context.profile.max_answer_tokens,
        seed=context.profile.seed,
    )
    try:
        response = await meter(request)
        if not response.text.strip():
            raise AnswerError("the summary was empty")
    except FatalModelError:
        raise
    except BudgetError as error:
        return None, meter.usage, Failure("skipped", str(error))
    except (ModelError, UnusableAnswer) as error:
        return None, meter.usage, Failure("failed", str(error))
    summary, _ = sanitize(response.text.strip(), context.nonce)
    return summary, meter.usage, None
