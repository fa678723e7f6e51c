"""One turn: what an agent is shown, what it is asked, and what its answer becomes.

A turn's prompt grows at its end: rules, input and candidates, history, then memories, persona and
the request. All turns of a debate share its beginning, which a server keeps in its prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from textevolve.debate.order import place_candidates
from textevolve.debate.probing import probe_after, probe_alone, probe_scores
from textevolve.debate.profile import Agent
from textevolve.debate.readout import answer_type, read_expected, read_points, read_stated
from textevolve.debate.result import Points, Turn
from textevolve.debate.stage import Stage, prompt
from textevolve.errors import AnswerError, BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Failure, Usage
from textevolve.events import StepFinished, StepStarted
from textevolve.llm.choices import TOP_LOGPROBS
from textevolve.llm.fence import disarm, fence
from textevolve.llm.meter import Meter
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import Rung, UnusableAnswer, ask_structured
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
    stage: Stage, round: int, agent: int, history: Sequence[str], *, sample: int = 0
) -> Turn:
    """Let one agent speak. A turn that fails says so in its `failure` and has no scores.

    Raises:
        FatalModelError: no later call could succeed either.
    """
    speaker = stage.profile.agents[agent]
    number = round * len(stage.profile.agents) + agent
    order = place_candidates(number, stage.labels, stage.profile.order)
    model = stage.model_of(speaker)
    details = {"round": round, "agent": speaker.name, "model": model.name}
    stage.listener(StepStarted(stage.case.id, "turn", details))
    meter = Meter(model)
    asked = _Ask(stage, meter, speaker, round, tuple(history), sample)
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
        rung=said.rung,
        memories=said.memories,
        disarmed=said.disarmed,
        usage=meter.usage,
        seconds=meter.seconds,
    )
    stage.listener(StepFinished(stage.case.id, "turn", turn))
    return turn


@dataclass(frozen=True, slots=True)
class _Ask:
    """One turn's question, before the candidates are put in an order."""

    stage: Stage
    model: Model
    speaker: Agent
    round: int
    history: tuple[str, ...]
    sample: int

    def request(self, order: tuple[int, ...], memories: Sequence[Memory]) -> Request:
        stage, profile = self.stage, self.stage.profile
        fenced = tuple(
            fence("memory", disarm(m.text, stage.nonce)[0], stage.nonce) for m in memories
        )
        shown = tuple(stage.labels[j] for j in order)
        speaker, number = self.speaker, self.round + 1
        ending = _ending(
            fenced, speaker.name, speaker.persona, number, profile.rounds, stage.today, shown
        )
        return Request(
            messages=(
                Message("system", (stage.rules,)),
                Message("user", (stage.opening(order), *self.history, ending)),
            ),
            temperature=profile.sampling_temperature,
            max_tokens=profile.max_answer_tokens,
            seed=profile.seed,
            sample=self.sample,
            top_logprobs=TOP_LOGPROBS if stage.profile.readout == "expected" else 0,
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """What came of a turn's question; the fields are those of `Turn`."""

    argument: str = ""
    points: tuple[Points, ...] = ()
    scores: tuple[tuple[float, ...], ...] | None = None
    log_odds: tuple[tuple[float, ...], ...] | None = None
    failure: Failure | None = None
    rung: Rung | None = None
    memories: tuple[str, ...] = ()
    disarmed: int = 0


async def _speak(asked: _Ask, order: tuple[int, ...]) -> _Said:
    try:
        if not asked.stage.profile.argue:
            return await _score_only(asked)
        memories = await _remember(asked.stage, asked.speaker, asked.history)
        said = await _answer(asked, order, memories)
        if asked.stage.swaps(order):
            said = _average(said, await _answer(asked, order[::-1], memories))
        return said
    except FatalModelError:
        raise
    except BudgetError as error:
        return _Said(failure=Failure("skipped", str(error)))
    except ModelError as error:
        return _Said(failure=Failure("failed", str(error)))


async def _score_only(asked: _Ask) -> _Said:
    log_odds = await probe_alone(asked.stage, asked.model, asked.speaker, asked.round, asked.sample)
    return _Said(scores=probe_scores(log_odds), log_odds=log_odds)


async def _remember(stage: Stage, agent: Agent, history: Sequence[str]) -> tuple[Memory, ...]:
    cue = Cue(
        agent.name,
        agent.collections,
        stage.case.input,
        stage.case.candidates,
        "".join(history),
    )
    try:
        return await stage.recall(cue)
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the recall of {agent.name} failed: {reason}") from error


async def _answer(asked: _Ask, order: tuple[int, ...], memories: tuple[Memory, ...]) -> _Said:
    stage = asked.stage
    names = tuple(c.name for c in stage.profile.components)
    shown = tuple(stage.labels[j] for j in order)
    request = asked.request(order, memories)
    kind = answer_type(shown, names, stage.profile.readout)
    answer = await ask_structured(asked.model, request, kind)
    argument = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
    text, disarmed = disarm(argument, stage.nonce)
    log_odds = None
    if stage.profile.readout == "alone":
        log_odds = await probe_alone(stage, asked.model, asked.speaker, asked.round, asked.sample)
    elif stage.profile.readout == "probe":
        spoken = (*request.messages, Message("assistant", (answer.responses[-1].text,)))
        log_odds = await probe_after(stage, asked.model, asked.speaker, asked.round, spoken)
    if log_odds is not None:
        scores = probe_scores(log_odds)
    elif stage.profile.readout == "expected":
        last = answer.responses[-1]
        scores = read_expected(last, stage.labels, shown, names)
    else:
        scores = read_stated(answer.value, stage.labels)
    return _Said(
        argument=text,
        points=read_points(answer.value, stage.labels),
        scores=scores,
        log_odds=log_odds,
        rung=answer.rung,
        memories=tuple(m.text for m in memories),
        disarmed=disarmed,
    )


def _average(one: _Said, other: _Said) -> _Said:
    """What was said, with the scores of both orders averaged; its argument is that of the first."""
    if one.scores is None or other.scores is None:
        raise AnswerError("one of the two orders gave no scores")
    pairs = zip(one.scores, other.scores, strict=True)
    scores = tuple(tuple((a + b) / 2 for a, b in zip(x, y, strict=True)) for x, y in pairs)
    return replace(one, scores=scores, disarmed=one.disarmed + other.disarmed, log_odds=None)


def quote_turn(stage: Stage, turn: Turn) -> str:
    """A turn as the others see it in their history."""
    name = stage.profile.agents[turn.agent].name
    if turn.scores is None:
        return ""
    lines: list[str] = []
    for j in sorted(range(len(stage.labels)), key=stage.labels.__getitem__):
        row = zip(stage.profile.components, turn.scores[j], strict=True)
        lines.append(
            f"Response {stage.labels[j]}: " + ", ".join(f"{c.name} {s:.1f}" for c, s in row)
        )
    return prompt("spoken").render(
        round=turn.round + 1,
        agent=name,
        argument=fence("argument", turn.argument, stage.nonce),
        scores="; ".join(lines) + ".",
    )


async def sum_up(
    stage: Stage, history: Sequence[str], round: int
) -> tuple[str | None, Usage, Failure | None]:
    """A neutral summary of the debate so far by the first agent's model, fenced for the history."""
    stage.listener(StepStarted(stage.case.id, "summary", {"round": round}))
    meter = Meter(stage.model_of(stage.profile.agents[0]))
    order = place_candidates(0, stage.labels, "fixed")
    text = (stage.opening(order), *history, prompt("summary").render())
    request = Request(
        messages=(Message("system", (stage.rules,)), Message("user", text)),
        temperature=stage.profile.sampling_temperature,
        max_tokens=stage.profile.max_answer_tokens,
        seed=stage.profile.seed,
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
    summary, _ = disarm(response.text.strip(), stage.nonce)
    return summary, meter.usage, None
