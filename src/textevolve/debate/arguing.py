"""An agent's argument as plain text, for the readouts that ask for scores by themselves.

A small model that is asked for one JSON object writes the same sentence for every agent, and speaks
of the marks and codes around the texts. Asked in plain text for the few words that matter most to
it, without the other arguments before it, it says something of its own. So texts are quoted by a
sign before each line, without a code.

The agent is first asked to copy a line of one response, which differs from agent to agent and from
round to round, and then for what the words tell it. Words that stand in no response are asked for
again. An argument that repeats another one, or is mostly quoted, is asked for again from the
beginning, with a line of another response. If that does not help, invented quotations are left out,
and a repetition becomes `NOTHING_TO_ADD`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from textevolve.debate.context import DebateContext, Speech, load_prompt
from textevolve.debate.deciding import answer_type, keep_words, read_points
from textevolve.debate.quoting import (
    MOST_QUOTED,
    copied_words,
    drop_inventions,
    quote_first,
    repeats,
    share_of_candidates,
    without_quotation,
)
from textevolve.debate.result import NOTHING_TO_ADD, Turn
from textevolve.errors import AnswerError
from textevolve.llm.model import Message, Request, draw_sample
from textevolve.llm.prompts import image_rules, quote, sanitize
from textevolve.llm.structured import answer_schema, ask_structured, describe_fault
from textevolve.texts.prose import split_words

MOST_WORDS = 40
"""The words of an argument after its quotation, unless the profile limits them."""
TOKENS_A_WORD = 3
ARGUMENT_ATTEMPTS = 3
WORD_ATTEMPTS = 3
"""How often an agent is asked for words of a response; each question costs a few tokens."""
WORD_TOKENS = 40
"""The tokens of a copied line: more than the longest quotation needs."""
HEARD_WORDS = 24
"""The words that a rebuttal shows of the argument to be answered. A small model copies a longer
one."""

# What is added to a question that is asked again.
NOT_QUOTED = "Copy it from the lines below the word Response, as it stands there."
REPEATED = "Others have said this already: say something else."
OWN_WORDS = "Use your own words."


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument with the messages that asked for it. `sanitized`: the number of forged marks that
    were removed."""

    text: str
    messages: tuple[Message, ...]
    sanitized: int

    @property
    def spoken(self) -> tuple[Message, ...]:
        """Return the conversation up to the argument."""
        return (*self.messages, Message("assistant", (self.text,)))


async def argue(speech: Speech, turn: Turn, remembered: str) -> Argument:
    """Ask the agent for words of a response, and then for what they tell it. Both questions are
    asked again, about another response, if the argument repeats another one or consists of the
    candidates' words.

    Raises:
        AnswerError: there is no whole answer.
    """
    context = speech.context
    heard = [message.quoted for message in speech.history if message.quoted]
    sources = (*context.candidates, context.input, *heard, remembered)
    # What another one said is shown after the words are chosen: a small model copies it otherwise.
    beginning = _open(speech, turn, remembered)
    most = context.profile.argument_words or MOST_WORDS
    spoken = speech.spoken
    text = ""
    fault = ""
    request = beginning

    for attempt in range(ARGUMENT_ATTEMPTS):
        messages, quotation = await _choose_words(speech, turn, beginning, spoken, attempt)
        question = load_prompt("argue").render(
            arguments=heard,
            agent=speech.speaker.name,
            quotation=quotation,
            words=most,
            # Agents that are asked the same answer the same.
            question=turn.agent + attempt,
            fault=fault,
        )
        request = _add(messages, question)
        answer = await _ask(speech, turn, request, attempt, TOKENS_A_WORD * most)
        reason = drop_inventions(keep_words(answer, most), sources)
        text = quote_first(quotation, reason, context.candidates)
        # An answer of a mere sign, such as a dot, is none.
        if not split_words(reason, "parts") or repeats(text, speech.spoken):
            fault = REPEATED
        elif share_of_candidates(text, context.candidates) > MOST_QUOTED:
            fault = OWN_WORDS
        else:
            break
        spoken = (*spoken, text)
    else:
        # In the first round all speak: nobody has seen what another one said.
        if turn.round > 0 and fault == REPEATED:
            text = NOTHING_TO_ADD

    clean_text, sanitized = sanitize(text, context.nonce)

    return Argument(clean_text, request, sanitized)


def _open(speech: Speech, turn: Turn, remembered: str) -> tuple[Message, ...]:
    """Return the messages before the first question: what is judged, and by whom."""
    context = speech.context
    speaker = load_prompt("argue_speaker").render(
        memories=remembered,
        agent=speech.speaker.name,
        persona=speech.speaker.persona,
        today=context.today,
    )

    return (
        Message("system", (_rules(context), *image_rules(context.case))),
        context.user(_show_case(context, turn.order), speaker),
    )


def _add(messages: tuple[Message, ...], question: str) -> tuple[Message, ...]:
    """Append a question to the user's last message, or as a new one after the agent's answer."""
    last = messages[-1]
    if last.role == "assistant":
        return (*messages, Message("user", (question,)))
    return (*messages[:-1], replace(last, parts=(*last.parts, question)))


async def _choose_words(
    speech: Speech,
    turn: Turn,
    beginning: tuple[Message, ...],
    spoken: tuple[str, ...],
    attempt: int,
) -> tuple[tuple[Message, ...], str]:
    """Return the conversation up to the words that the agent copied from a response, and the words;
    without words if it always wrote others. Words of which nobody has `spoken` are preferred."""
    context = speech.context
    # A small model that may choose speaks of the first response, and judges in place of copying.
    candidate = context.listed[(turn.round + turn.agent + attempt) % len(context.listed)]
    label = context.labels[candidate]
    quotation = ""
    fault = ""

    for number in range(WORD_ATTEMPTS):
        question = load_prompt("argue_words").render(
            label=label, agent=speech.speaker.name, fault=fault
        )
        sample = attempt * WORD_ATTEMPTS + number
        answer = await _ask(speech, turn, _add(beginning, question), sample, WORD_TOKENS)
        if unspoken := copied_words(answer, context.candidates, spoken):
            quotation = unspoken
            break
        quotation = copied_words(answer, context.candidates) or quotation
        fault = REPEATED if quotation else NOT_QUOTED

    if not quotation:
        return beginning, ""
    # Within quotation marks others would end the quotation.
    quotation = quotation.replace('"', "'")
    # Later questions do not show what was wrong with earlier answers.
    question = load_prompt("argue_words").render(label=label, agent=speech.speaker.name, fault="")
    chosen = Message("assistant", (f'"{quotation}"',))

    return (*_add(beginning, question), chosen), quotation


async def _ask(
    speech: Speech, turn: Turn, messages: tuple[Message, ...], attempt: int, most_tokens: int
) -> str:
    """Return the agent's answer in one paragraph."""
    profile = speech.context.profile
    # A small model goes on until it is stopped. One that decides apart may think before it argues.
    limit = most_tokens if profile.readout != "decide" else profile.max_answer_tokens
    request = Request(
        messages=messages,
        temperature=profile.argument_temperature,
        max_tokens=min(limit, profile.max_answer_tokens),
        seed=profile.seed,
    )
    # A seed of its own for each turn and attempt: agents with the same one repeat each other.
    turns = profile.rounds * len(profile.agents)
    number = turn.round * len(profile.agents) + turn.agent
    response = await speech.model(draw_sample(request, attempt * turns + number))
    if reason := describe_fault(response, "the argument", may_be_cut=True):
        raise AnswerError(reason)

    text = response.text.strip()
    # A quotation that is opened and never closed would hide the one that is.
    return text.removeprefix('"') if text.count('"') % 2 else text


def _rules(context: DebateContext) -> str:
    components = [{"name": c.name, "meaning": c.meaning} for c in context.profile.components]
    return load_prompt("argue_rules").render(components=components, rules=context.profile.rules)


def _show_case(context: DebateContext, order: tuple[int, ...]) -> str:
    responses = [{"label": context.labels[j], "text": context.quoted(j)} for j in order]
    return load_prompt("argue_case").render(input=context.quoted(), responses=responses)


def quote_argument(context: DebateContext, turn: Turn) -> str:
    """Return an argument as later turns see it, without its scores: a small model would repeat
    them. A rebuttal sees the beginning of what the quoted words told the agent."""
    argument = turn.argument
    if context.profile.protocol == "rebuttal":
        argument = keep_words(without_quotation(argument), HEARD_WORDS)

    return load_prompt("argue_heard").render(
        agent=context.profile.agents[turn.agent].name, argument=quote(argument)
    )


async def ask_points(speech: Speech, turn: Turn, argument: Argument) -> Turn:
    """Ask the agent, after its argument, for its remarks on each response, and return the turn with
    argument and remarks."""
    context = speech.context
    profile = context.profile
    visible = tuple(context.labels[j] for j in turn.order)
    labels = ", ".join(f"Response {label}" for label in visible)
    question = load_prompt("argue_points").render(agent=speech.speaker.name, labels=labels)
    kind = answer_type(visible, (), "remarks")
    request = Request(
        messages=(*argument.spoken, Message("user", (question,))),
        schema=answer_schema(kind),
        temperature=profile.sampling_temperature,
        max_tokens=profile.max_answer_tokens,
        seed=profile.seed,
    )
    answer = await ask_structured(speech.model, draw_sample(request, speech.sample), kind)
    points = read_points(answer.value, context.labels)

    return replace(turn, points=points, parse_mode=answer.parse_mode)
