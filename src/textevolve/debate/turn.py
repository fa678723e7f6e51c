"""One agent's turn: the prompt, and the turn that is parsed from the answer.

The parts of a prompt that vary most come last: rules, input and candidates, history, then memories,
persona and the request. All turns of a debate share the beginning, which a server keeps in its
prefix cache. The texts of memories are untrusted data: they stand between marks, or in quotes if
the prompt quotes texts, each below its source, which is outside of the quoted text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from textevolve.debate.candidate_order import place_candidates
from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.deciding import (
    ScoreMatrix,
    answer_type,
    decide_scores,
    keep_words,
    probe_after,
    probe_alone,
    probe_score,
    read_points,
    read_verbalized,
    read_weighted,
)
from textevolve.debate.profile import Agent
from textevolve.debate.result import Turn
from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
)
from textevolve.evaluation import Failure, Usage, failure_of
from textevolve.events import StepFinished, StepStarted, silence
from textevolve.llm.choice_logprobs import TOP_LOGPROBS
from textevolve.llm.fence import fence, quote, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import answer_schema, ask_structured
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory.cue import Cue, Memory, nothing
from textevolve.spans import span

SOURCE_CHARACTERS = 160
"""The maximum number of characters of a memory's source in a prompt."""


async def remember(
    context: DebateContext, speaker: Agent, history: Sequence[str]
) -> tuple[Memory, ...]:
    """Recall the agent's memories that are relevant to the input, the candidates and the
    discussion.

    Raises:
        InputError: the recall, which may be the caller's own code, failed.
    """
    if context.recall is nothing:
        return ()
    settings = speaker.recall_settings
    cue = Cue(
        speaker.name,
        () if settings is None else settings.collections,
        context.case.input,
        context.case.candidates,
        _plain(history, context.nonce),
        settings,
    )
    try:
        return await context.recall(cue)
    except TextEvolveError:
        raise
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the recall of {speaker.name} failed: {reason}") from error


def _plain(history: Sequence[str], nonce: str) -> str:
    """Return the discussion without marks and scores, which would only disturb a search."""
    left_out = (f"[[{nonce}", f"[[/{nonce}", "Scores by ")
    lines = "".join(history).splitlines()
    return "\n".join(line for line in lines if line and not line.startswith(left_out))


def fence_memories(context: DebateContext, memories: Sequence[Memory]) -> tuple[str, ...]:
    """Return the memories between marks for a turn's prompt, after the rules about memories; empty
    without memories."""
    nonce = context.nonce
    lines = [_show(nonce, m, lambda text: fence("memory", text, nonce)) for m in memories]
    return (prompt("memory_rules").render(), *lines) if lines else ()


def quote_memories(context: DebateContext, speaker: Agent, memories: Sequence[Memory]) -> str:
    """Return the memories as a quotation, for a question on one candidate alone; empty without
    memories."""
    if not memories:
        return ""
    lines = [_show(context.nonce, memory, quote) for memory in memories]
    rules = prompt("memory_rules").render()
    return prompt("memory_alone").render(agent=speaker.name, memories=lines, rules=rules)


def _show(nonce: str, memory: Memory, mark: Callable[[str], str]) -> str:
    source = " ".join(sanitize(memory.source, nonce)[0].split())[:SOURCE_CHARACTERS]
    source = source or "a source that is not known"
    trust = None if memory.trust is None else f"{memory.trust:g}"
    return prompt("memory").render(
        source=source, trust=trust, text=mark(sanitize(memory.text, nonce)[0])
    )


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
    """Render the end of a turn's prompt: memories, persona and request. Debates without memories
    share it in the cache."""
    labels_text = [f"Response {n}" for n in labels]
    listed = (
        ", ".join(labels_text[:-1]) + " and " + labels_text[-1]
        if len(labels_text) > 1
        else labels_text[0]
    )
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
    """Let one agent speak, and return its turn. A failed turn has a `failure` and no scores.

    Raises:
        FatalModelError: no later call could succeed either.
    """
    speaker = context.profile.agents[agent]
    number = round * len(context.profile.agents) + agent
    order = place_candidates(number, context.labels, context.profile.order)
    model = context.model_of(speaker)
    if heard := context.listener is not silence:
        details = {"round": round, "agent": speaker.name, "model": model.name}
        context.listener(StepStarted(context.case.id, "turn", details))
    meters = [UsageMeter(model)]
    if context.profile.readout == "decide":
        meters.append(UsageMeter(context.decider_of(speaker)))
    request = _TurnRequest(context, meters[0], meters[-1], speaker, round, tuple(history), sample)
    with span("agent", speaker.name, agent=speaker.name, round=round + 1) as here:
        turn = replace(
            await _speak(request, Turn(round, agent, model.name, order)),
            usage=sum((meter.usage for meter in meters), Usage()),
            seconds=sum(meter.seconds for meter in meters),
        )
        here.note(output=turn.argument)
    if heard:
        context.listener(StepFinished(context.case.id, "turn", turn))
    return turn


@dataclass(frozen=True, slots=True)
class _TurnRequest:
    """The data of one turn's question, except the order of the candidates. `history`: the messages
    that the turn sees. `sample`: the number of the sample, from 0, if the same question is asked
    several times. `decider`: the model that answers with the readout `decide`."""

    context: DebateContext
    model: Model
    decider: Model
    speaker: Agent
    round: int
    history: tuple[str, ...]
    sample: int

    def request(self, order: tuple[int, ...], fenced: tuple[str, ...], schema: str) -> Request:
        """Make the request for the candidates in `order`. `fenced`: the memories with their rules;
        `schema`: the JSON schema of the answer."""
        context, profile = self.context, self.context.profile
        visible = tuple(context.labels[j] for j in order)
        speaker, number = self.speaker, self.round + 1
        ending = _ending(
            fenced, speaker.name, speaker.persona, number, profile.rounds, context.today, visible
        )
        return Request(
            messages=(
                context.system,
                context.user(context.opening(order), *self.history, ending),
            ),
            schema=schema,
            temperature=profile.sampling_temperature,
            max_tokens=profile.max_answer_tokens,
            seed=profile.seed,
            sample=self.sample,
            top_logprobs=TOP_LOGPROBS if context.profile.readout == "logprob-weighted" else 0,
        )


async def _speak(request: _TurnRequest, turn: Turn) -> Turn:
    """Ask the agent, and return the turn with its answer and memories, or with a failure."""
    memories: tuple[Memory, ...] = ()
    say = _answer if request.context.profile.argue else _score_only
    try:
        memories = await remember(request.context, request.speaker, request.history)
        spoken = await say(request, memories, turn)
        if request.context.swaps(turn.order):
            spoken = _average(
                spoken, await say(request, memories, replace(turn, order=turn.order[::-1]))
            )
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        spoken = replace(turn, failure=failure_of(error))
    return replace(spoken, memories=memories)


async def _score_only(request: _TurnRequest, memories: tuple[Memory, ...], turn: Turn) -> Turn:
    if request.context.profile.readout == "decide":
        return await _decide(request, turn, (), fence_memories(request.context, memories))
    return await _probe_alone(request, memories, turn)


def _probed(turn: Turn, log_odds: ScoreMatrix) -> Turn:
    scores = tuple(tuple(map(probe_score, row)) for row in log_odds)
    return replace(turn, scores=scores, log_odds=log_odds)


async def _probe_alone(request: _TurnRequest, memories: tuple[Memory, ...], turn: Turn) -> Turn:
    quoted = quote_memories(request.context, request.speaker, memories)
    log_odds = await probe_alone(
        request.context, request.model, request.speaker, request.round, request.sample, quoted
    )
    return _probed(turn, log_odds)


async def _decide(
    request: _TurnRequest, turn: Turn, heard: tuple[str, ...], memories: tuple[str, ...]
) -> Turn:
    context, sample = request.context, request.sample
    return await decide_scores(
        context, request.decider, request.speaker, turn, heard, memories, sample=sample
    )


async def _answer(asked: _TurnRequest, memories: tuple[Memory, ...], turn: Turn) -> Turn:
    context, profile = asked.context, asked.context.profile
    names = tuple(c.name for c in profile.components)
    visible = tuple(context.labels[j] for j in turn.order)
    fenced = fence_memories(context, memories)
    words = profile.argument_words
    kind = answer_type(visible, names, profile.readout, words)
    request = asked.request(turn.order, fenced, answer_schema(kind))
    answer = await ask_structured(asked.model, request, kind)
    argument = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
    text, sanitized = sanitize(keep_words(argument, words), context.nonce)
    answered = replace(
        turn,
        argument=text,
        points=read_points(answer.value, context.labels) if words is None else (),
        parse_mode=answer.parse_mode,
        sanitized=sanitized,
    )
    last = answer.responses[-1]
    match profile.readout:
        case "pointwise":
            return await _probe_alone(asked, memories, answered)
        case "after-argument":
            spoken = (*request.messages, Message("assistant", (last.text,)))
            probed = await probe_after(context, asked.model, asked.speaker, asked.round, spoken)
            return _probed(answered, probed)
        case "decide":
            quotation = _quote(context, asked.round, asked.speaker.name, text)
            return await _decide(asked, answered, (*asked.history, quotation), fenced)
        case "logprob-weighted":
            return replace(answered, scores=read_weighted(last, context.labels, visible, names))
        case _:
            return replace(answered, scores=read_verbalized(answer.value, context.labels))


def _average(first_turn: Turn, other: Turn) -> Turn:
    """Average the scores of both orders; keep the argument of the first order, and no log-odds.
    AnswerError is raised if one order has no scores."""
    if first_turn.scores is None or other.scores is None:
        raise AnswerError(
            "one of the two orders of the candidates has no scores, so the turn has none"
        )
    pairs = zip(first_turn.scores, other.scores, strict=True)
    scores = tuple(tuple((a + b) / 2 for a, b in zip(x, y, strict=True)) for x, y in pairs)
    both = replace(
        first_turn, scores=scores, sanitized=first_turn.sanitized + other.sanitized, log_odds=None
    )
    if first_turn.decided_by is None or other.decided_by is None:
        return both
    cut = max(first_turn.decided_by.cut, other.decided_by.cut)
    return replace(both, decided_by=replace(first_turn.decided_by, cut=cut))


def quote_turn(context: DebateContext, turn: Turn) -> str:
    """Return a turn, with its scores, as later turns see it in their history; empty if it has no
    scores."""
    name = context.profile.agents[turn.agent].name
    if turn.scores is None:
        return ""
    lines: list[str] = []
    for j in context.listed:
        row = zip(context.profile.components, turn.scores[j], strict=True)
        lines.append(
            f"Response {context.labels[j]}: " + ", ".join(f"{c.name} {s:.1f}" for c, s in row)
        )
    return _quote(context, turn.round, name, turn.argument, "; ".join(lines) + ".")


def _quote(context: DebateContext, round: int, name: str, argument: str, scores: str = "") -> str:
    """Render an agent's argument in a fence, with its scores if there are any."""
    quoted = fence("argument", argument, context.nonce)
    return prompt("spoken").render(round=round + 1, agent=name, argument=quoted, scores=scores)


async def sum_up(
    context: DebateContext, history: Sequence[str], round: int
) -> tuple[str | None, Usage, Failure | None]:
    """Ask the first agent's model for a neutral summary of the debate so far. Return the summary
    (None if the call failed), the usage, and the failure (None without one)."""
    context.listener(StepStarted(context.case.id, "summary", {"round": round}))
    meter = UsageMeter(context.model_of(context.profile.agents[0]))
    order = place_candidates(0, context.labels, "fixed")
    text = (context.opening(order), *history, prompt("summary").render())
    request = Request(
        messages=(context.system, context.user(*text)),
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
    except (ModelError, BudgetError) as error:
        return None, meter.usage, failure_of(error)
    summary, _ = sanitize(response.text.strip(), context.nonce)
    return summary, meter.usage, None
