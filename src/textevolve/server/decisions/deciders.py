"""Answer decision questions about a state (a text or JSON) with a model or with a judge.

A judge scores texts in [0, 1]. If the state has an input and an output, the judge scores the
output; it judges any other state as a whole. The question becomes the judge's rubric, if the judge
takes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from textevolve.engine.local import gather_bounded
from textevolve.errors import FatalModelError, InputError, StoreError, TextEvolveError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    empty_default,
    failure_of,
)
from textevolve.events import CallFinished, Event
from textevolve.json_texts import CONTAINERS, is_mapping, parse_text
from textevolve.judges.rubric import is_rubric_name
from textevolve.llm.decisions import (
    Answer,
    Decision,
    Question,
    decide,
    log_odds,
    softmax,
)
from textevolve.llm.model import Model
from textevolve.mappings import omit
from textevolve.protocol.decisions import state_text
from textevolve.rows.chats import ASSISTANT, Chat, read_chat, write_chat
from textevolve.rows.columns import find_roles, join_passages

WRAPPER = "test_case"
"""The field in which DeepEval's client sends a case."""
TURNS = ("turns",)
"""The field names of a conversation in addition to those of `find_roles`; DeepEval uses this
one."""


def read_state(state: object) -> Case:
    """Read a state as a case with one candidate, the text to judge; the input is empty if it is
    unknown. Fields of the state that are none of a case are part of the input, each under its name.
    A state without a single output is judged whole."""
    value = parse_text(state, CONTAINERS)  # some clients send their states so
    case = None
    if (chat := read_chat(value)) is not None:
        case = _read_chat(chat) or Case("", (write_chat(chat),))
    elif is_mapping(value):
        case = _read_fields(value)

    return case or Case("", (state_text(state),))


def _read_chat(chat: Chat) -> Case | None:
    """Read the assistant's reply at the end of a chat as the candidate, and the messages before it
    as the input; None if the chat does not end with a reply to other messages: it is judged whole,
    since an answer over HTTP has no place to name the turns that would be left out."""
    if len(chat) < 2 or chat[-1].speaker != ASSISTANT:
        return None
    return Case(write_chat(chat[:-1]), (write_chat((chat[-1],)),))


def _read_fields(fields: Mapping[str, Any]) -> Case | None:
    """Read a case from its fields; None if they have neither a single output nor a chat that ends
    with a reply."""
    inner = fields.get(WRAPPER)
    if is_mapping(inner):
        outer = omit(fields, [WRAPPER])
        fields = {**inner, **outer}
    roles = find_roles(tuple(fields))
    filled = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    inputs = [name for name in (*roles.inputs, *roles.chats, *TURNS) if name in filled]

    if len(roles.outputs) == 1 and fields.get(roles.outputs[0]) is not None:
        output = _text(fields[roles.outputs[0]])
        asking = dict.fromkeys((roles.instruction, *inputs[:1]))
        texts = [_text(filled[name]) for name in asking if name in filled]
        used = {*asking, roles.outputs[0]}
    else:
        chats = {name: chat for name in inputs if (chat := read_chat(filled[name])) is not None}
        name = next(iter(chats), "")
        exchange = _read_chat(chats[name]) if chats else None
        if exchange is None:
            return None
        (output,) = exchange.candidates
        texts = [exchange.input]
        used = {name}

    reference = next((n for n in roles.references if n in filled and n not in used), "")
    context = next((n for n in roles.contexts if _passages(filled.get(n))), "")
    used_names = {*used, reference, context, *roles.ids}
    texts += [f"{name}: {_text(value)}" for name, value in filled.items() if name not in used_names]

    return Case(
        "\n\n".join(filter(None, texts)),
        (output,),
        reference=_text(filled[reference]) if reference else None,
        context=_passages(filled[context]) if context else None,
    )


def _passages(value: object) -> str:
    return join_passages(cast("Any", value)) if isinstance(value, str | list) else ""


def _text(value: object) -> str:
    """Return a field as text: a chat as its messages, a list of texts as passages, anything else as
    JSON."""
    if isinstance(value, str):
        return value
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    return _passages(value) or state_text(value)


@dataclass
class RequestSpending:
    """The cost of one request.

    Attributes:
        usage: The tokens and cost of new model calls.
        replayed: The number of calls that the journal answered for free.
        causes: The errors that left questions unanswered.
        note: Is called with the tokens of each call, also of those that end after the request, such
            as what an agent learns from a chat.
    """

    usage: Usage = Usage()
    replayed: int = 0
    causes: list[Exception] = empty_default(list)
    note: Callable[[int], None] = lambda _tokens: None


_current: ContextVar[RequestSpending | None] = ContextVar("spending", default=None)


@contextmanager
def spending(note: Callable[[int], None]) -> Generator[RequestSpending]:
    """Sum up the usage within the block; `note` is called with the tokens of each call."""
    spent = RequestSpending(note=note)
    before = _current.set(spent)
    try:
        yield spent
    finally:
        _current.reset(before)


def note_event(event: Event) -> None:
    """Add the event of a call to the usage of the current request."""
    spent = _current.get()
    if spent is None or not isinstance(event, CallFinished):
        return
    if event.replayed:
        spent.replayed += 1
    else:
        spent.usage += event.usage
        spent.note(event.usage.tokens)

    if event.cause is not None:
        spent.causes.append(event.cause)


_BRACKETS = re.compile(r"[\[\]|]")
QUESTIONS_AT_ONCE = 8
"""The number of questions of one request that a judge answers at a time."""


@dataclass(frozen=True, slots=True)
class DecidingModel:
    """A model as a decider: it answers the questions by `decide`, all in one request."""

    model: Model

    async def __call__(self, state: object, questions: Sequence[Question], /) -> Decision:
        return await decide(self.model, state_text(state), questions)


@dataclass(frozen=True, slots=True)
class DecidingJudge:
    """A judge as a decider: its scores become the probabilities of answers.

    A predicate is answered with the judge's score as P(yes). A score question is answered with the
    judge's score, spread over the two nearest levels so that the expected level equals the score. A
    choice is answered by judging the options as candidates, always by the judge's own rubric: the
    probabilities are the softmax of their log-odds.

    Attributes:
        open: Returns the judge for a rubric; an empty text means the judge's own rubric.
        takes_rubric: Whether the judge can use the question as its rubric.
        needs: The fields, `context` or `reference`, that a case must have.
    """

    open: Callable[[str], Evaluator]
    takes_rubric: bool
    needs: tuple[str, ...] = ()

    async def __call__(self, state: object, questions: Sequence[Question], /) -> Decision:
        """Answer questions about a state.

        Raises:
            FatalModelError: no call can succeed. StoreError: the store cannot be written.
        """

        async def attempt(question: Question) -> Answer | Failure:
            try:
                return await self._answer(state, question)
            except (FatalModelError, StoreError):
                raise
            except TextEvolveError as error:
                if (spent := _current.get()) is not None:  # no call has reported it
                    spent.causes.append(error)
                return failure_of(error)

        answers = await gather_bounded(
            [lambda each=each: attempt(each) for each in questions], QUESTIONS_AT_ONCE
        )

        return Decision({q.name: answer for q, answer in zip(questions, answers, strict=True)})

    async def _answer(self, state: object, question: Question) -> Answer | Failure:
        if question.kind == "choice":
            text = f"{state_text(state)}\n\n{question.instructions}"
            options = tuple(option.text for option in question.options)
            return share_out((await self.open("")(Case(text, options))).result)

        rubric = describe_question(question)
        case = read_state(state)
        case = replace(case, input=case.input or question.instructions)

        for name in self.needs:
            if getattr(case, name) is None:
                raise InputError(
                    f"the judge needs the field {name} in the state, and it is missing"
                )

        judge = self.open(rubric if self.takes_rubric else "")
        (result,) = (await judge(case)).result
        if isinstance(result, Failure):
            return result

        return spread(result.score, len(question.options))


Decider: TypeAlias = DecidingModel | DecidingJudge
"""An object that answers typed questions about a state."""


def describe_question(question: Question) -> str:
    """Format a question with the descriptions of its options as a rubric: in one line, since some
    judges read each line as a criterion, with the levels of a score question in brackets, separated
    by |."""
    text = " ".join(question.instructions.split())
    if is_rubric_name(text):  # which would stand for a shipped rubric
        text = f"This holds: {text}"
    descriptions = {
        option.value: " ".join(option.description.split()) for option in question.options
    }
    if question.kind == "score":
        levels = [_BRACKETS.sub("/", level) for level in descriptions.values()]
        several = all(levels) and len(set(levels)) == len(levels)
        return f"{text} [{' | '.join(levels)}]" if several else f"{text} ({'; '.join(levels)})"

    means = [
        f"{name.capitalize()} means: {descriptions[name]}"
        for name in ("yes", "no")
        if descriptions[name]
    ]

    return " ".join([*means, text])


def spread(score: float, options: int) -> Answer:
    """Convert a score in [0, 1] into probabilities of the levels 0 to `options` - 1. The two
    nearest levels share the probability, so the expected level is `score` times the highest level.
    With two levels, P(yes) is the score."""
    place = min(max(score, 0.0), 1.0) * (options - 1)
    below = min(int(place), options - 2)
    above = round(place - below, 12)  # 0.592 and not 0.5920000000000001
    shares = {below: round(1.0 - above, 12), below + 1: above}
    return Answer(tuple(shares.get(n, 0.0) for n in range(options)))


def share_out(results: Sequence[EvaluationResult | Failure]) -> Answer | Failure:
    """Return probabilities of candidates: the softmax of their log-odds, or of the log-odds of
    their scores if a judge gives none. If one candidate has no score, there is no answer."""
    odds: list[float] = []
    for result in results:
        if isinstance(result, Failure):
            return result
        value = result.metadata.get("log_odds")
        odds.append(value if isinstance(value, float) else log_odds(result.score))

    return Answer(tuple(round(share, 12) for share in softmax(odds)))
