"""One agent's turn: the prompt, and the turn that is parsed from the answer.

The parts of a prompt that vary most come last: rules, input and candidates, history, then memories,
persona and the request. All turns of a debate share the beginning, which a server keeps in its
prefix cache. The texts of memories are untrusted data: they stand between marks, or in quotes if
the prompt quotes texts, each below its source, which is outside of the quoted text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from textevolve.debate.arguing import argue, ask_points, quote_argument
from textevolve.debate.context import DebateContext, DebateMessage, Speech, load_prompt
from textevolve.debate.deciding import (
    answer_type,
    decide_scores,
    keep_words,
    probe_after,
    probe_alone,
    read_points,
    read_verbalized,
    read_weighted,
)
from textevolve.debate.modes import place_candidates
from textevolve.debate.profile import STATED, Profile
from textevolve.debate.result import ScoreMatrix, Turn
from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
    describe_error,
)
from textevolve.evaluation import Failure, Usage, attempt, failure_of
from textevolve.events import StepFinished, StepStarted, silence
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Request, draw_sample
from textevolve.llm.prompts import fence, quote, sanitize
from textevolve.llm.structured import answer_schema, ask_structured, describe_fault
from textevolve.llm.verdicts import TOP_LOGPROBS
from textevolve.memory.cue import Cue, Memory, nothing
from textevolve.spans import span
from textevolve.texts.prose import join_lines

SOURCE_CHARACTERS = 160
"""The maximum number of characters of a memory's source in a prompt."""


async def remember(speech: Speech) -> tuple[Memory, ...]:
    """Recall the agent's memories that are relevant to the input, the candidates and the
    discussion.

    Raises:
        InputError: the recall, which may be the caller's own code, failed.
    """
    context = speech.context
    speaker = speech.speaker
    settings = speaker.recall_settings
    if context.recall is nothing or (settings is None and not context.recalls_all):
        return ()
    cue = Cue(
        speaker.name,
        () if settings is None else settings.collections,
        context.case.input,
        context.case.candidates,
        _plain([message.marked for message in speech.history], context.nonce),
        settings,
    )

    try:
        return await context.recall(cue)
    except TextEvolveError:
        raise
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = describe_error(error)
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
    return (load_prompt("memory_rules").render(), *lines) if lines else ()


def quote_memories(speech: Speech, memories: Sequence[Memory]) -> str:
    """Return the memories as a quotation, for a question on one candidate alone; empty without
    memories."""
    if not memories:
        return ""
    lines = [_show(speech.context.nonce, memory, quote) for memory in memories]
    rules = load_prompt("memory_rules").render()
    return load_prompt("memory_alone").render(
        agent=speech.speaker.name, memories=lines, rules=rules
    )


def _show(nonce: str, memory: Memory, mark: Callable[[str], str]) -> str:
    source = join_lines(sanitize(memory.source, nonce)[0])[:SOURCE_CHARACTERS]
    source = source or "a source that is not known"
    trust = None if memory.trust is None else f"{memory.trust:g}"
    return load_prompt("memory").render(
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
    *others, last = labels_text
    listed = f"{', '.join(others)} and {last}" if others else last

    return load_prompt("request").render(
        memories=memories,
        agent=agent,
        persona=persona,
        round=round,
        rounds=rounds,
        today=today,
        labels=listed,
    )


async def take_turn(
    context: DebateContext,
    round: int,
    agent: int,
    history: Sequence[DebateMessage],
    spoken: Sequence[str] = (),
) -> Turn:
    """Let one agent speak, and return its turn. A failed turn has a `failure` and no scores.
    `history`: the messages that the agent sees. `spoken`: the arguments that it should not repeat.

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
    meter = UsageMeter(model)
    deciding_meter = meter
    if context.profile.readout == "decide":
        decider = context.profile.decider or speaker.model
        deciding = speaker.model_copy(update={"model": decider})
        deciding_meter = UsageMeter(context.model_of(deciding))

    sample = _number_sample(context.profile, round, agent)
    speech = Speech(context, meter, deciding_meter, speaker, tuple(history), sample, tuple(spoken))

    with span("agent", speaker.name, agent=speaker.name, round=round + 1) as here:
        turn = await _speak(speech, Turn(round, agent, model.name, order))
        usage = meter.usage
        seconds = meter.seconds
        if deciding_meter is not meter:
            usage += deciding_meter.usage
            seconds += deciding_meter.seconds
        turn = replace(turn, usage=usage, seconds=seconds)
        here.note(output=turn.argument)

    if heard:
        context.listener(StepFinished(context.case.id, "turn", turn))

    return turn


def _number_sample(profile: Profile, round: int, agent: int) -> int:
    """Return the number of a turn among those that ask the same question, so that each is a draw of
    its own: those of all rounds if no agent sees another's turn, and those of agents that differ
    only in their names."""
    speaker = profile.agents[agent]
    equals = [
        place
        for place, other in enumerate(profile.agents)
        if other is speaker
        or (
            other.persona == speaker.persona
            and other.model_copy(update={"name": speaker.name}) == speaker
        )
    ]
    if profile.protocol != "independent" and len(equals) == 1:
        return 0

    return round * len(equals) + equals.index(agent)


async def _speak(speech: Speech, turn: Turn) -> Turn:
    """Ask the agent, and return the turn with its answer and memories, or with a failure."""
    context = speech.context
    memories: tuple[Memory, ...] = ()
    say = _argue if context.profile.argue else _score_only

    try:
        memories = await remember(speech)
        spoken = await say(speech, memories, turn)
        profile = context.profile
        several = len(turn.order) > 1
        if profile.order == "swap" and several and profile.readout != "pointwise":
            turned = replace(turn, order=turn.order[::-1])
            spoken = _average(spoken, await say(speech, memories, turned))
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        spoken = replace(turn, failure=failure_of(error))

    return replace(spoken, memories=memories) if memories else spoken


async def _score_only(speech: Speech, memories: Sequence[Memory], turn: Turn) -> Turn:
    if speech.context.profile.readout == "decide":
        return await decide_scores(speech, turn, (), fence_memories(speech.context, memories))
    return await probe_alone(speech, turn, quote_memories(speech, memories))


async def _argue(speech: Speech, memories: Sequence[Memory], turn: Turn) -> Turn:
    """Ask for the argument, and for the scores in the way that the readout says."""
    profile = speech.context.profile
    readout = profile.readout
    if readout in STATED:
        return await _argue_and_state(speech, memories, turn)

    remembered = quote_memories(speech, memories)
    argument = await argue(speech, turn, remembered)
    answered = replace(turn, argument=argument.text, sanitized=argument.sanitized)
    # A later round of a rebuttal asks for one thing that was overlooked: no new remarks on all.
    rebuts = profile.protocol == "rebuttal" and turn.round > 0
    if profile.argument_words is None and not rebuts and not answered.is_silent:
        answered = await ask_points(speech, answered, argument)

    match readout:
        case "pointwise":
            return await probe_alone(speech, answered, remembered)
        case "after-argument":
            return await probe_after(speech, answered, argument.spoken)
        case _:
            marked = [message.marked for message in speech.history]
            heard = (*marked, _quote(speech.context, answered))
            fenced = fence_memories(speech.context, memories)
            return await decide_scores(speech, answered, heard, fenced)


async def _argue_and_state(speech: Speech, memories: Sequence[Memory], turn: Turn) -> Turn:
    """Ask for one JSON object with the argument, the remarks and the scores."""
    context = speech.context
    profile = speech.context.profile
    speaker = speech.speaker
    names = context.components
    visible = tuple(context.labels[j] for j in turn.order)
    words = profile.argument_words
    ending = _ending(
        fence_memories(context, memories),
        speaker.name,
        speaker.persona,
        turn.round + 1,
        profile.rounds,
        context.today,
        visible,
    )
    marked = [message.marked for message in speech.history]
    kind = answer_type(visible, names, profile.readout, words)
    request = Request(
        messages=(
            context.system,
            context.user(context.opening(turn.order), *marked, ending),
        ),
        schema=answer_schema(kind),
        temperature=profile.sampling_temperature,
        max_tokens=profile.max_answer_tokens,
        seed=profile.seed,
        top_logprobs=TOP_LOGPROBS if profile.readout == "logprob-weighted" else 0,
    )
    request = draw_sample(request, speech.sample)
    answer = await ask_structured(speech.model, request, kind)
    argument = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
    text, sanitized = sanitize(keep_words(argument, words), context.nonce)
    if profile.readout == "logprob-weighted":
        scores = read_weighted(answer.responses[-1], context.labels, visible, names)
    else:
        scores = read_verbalized(answer.value, context.labels)

    return Turn(
        turn.round,
        turn.agent,
        turn.model,
        turn.order,
        argument=text,
        points=read_points(answer.value, context.labels) if words is None else (),
        scores=scores,
        parse_mode=answer.parse_mode,
        sanitized=sanitized,
    )


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


def quote_turn(context: DebateContext, turn: Turn, scores: ScoreMatrix) -> DebateMessage:
    """Return a turn as later turns see it in their history."""
    lines: list[str] = []
    for j in context.listed:
        named_scores = zip(context.components, scores[j], strict=True)
        cells = [f"{name} {score:.1f}" for name, score in named_scores]
        lines.append(f"Response {context.labels[j]}: {', '.join(cells)}")
    marked = _quote(context, turn, f"{'; '.join(lines)}.")

    # Readouts that state the scores with the argument never show an argument alone.
    quotes = not turn.is_silent and context.profile.readout not in STATED

    return DebateMessage(marked, quote_argument(context, turn) if quotes else "")


def _quote(context: DebateContext, turn: Turn, scores: str = "") -> str:
    """Render an agent's argument in a fence, with its scores if there are any."""
    return load_prompt("spoken").render(
        round=turn.round + 1,
        agent=context.profile.agents[turn.agent].name,
        argument=fence("argument", turn.argument, context.nonce),
        scores=scores,
    )


async def sum_up(
    context: DebateContext, history: Sequence[DebateMessage], round: int
) -> tuple[str | Failure, Usage]:
    """Ask the first agent's model for a neutral summary of the debate so far. Return the summary or
    the failure of the call, and the usage."""
    context.listener(StepStarted(context.case.id, "summary", {"round": round}))
    meter = UsageMeter(context.model_of(context.profile.agents[0]))
    marked = [message.marked for message in history]
    text = (context.opening(context.listed), *marked, load_prompt("summary").render())
    request = Request(
        messages=(context.system, context.user(*text)),
        temperature=context.profile.sampling_temperature,
        max_tokens=context.profile.max_answer_tokens,
        seed=context.profile.seed,
    )
    response = await attempt(meter(request))
    if isinstance(response, Failure):
        return response, meter.usage
    if fault := describe_fault(response, "the summary", may_be_cut=True):
        return Failure("failed", fault), meter.usage

    return sanitize(response.text.strip(), context.nonce)[0], meter.usage
