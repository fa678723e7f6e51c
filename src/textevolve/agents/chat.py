"""A chat with an agent. In each turn it recalls memories, streams the answer, stores it, and makes
new memories from it.

The module has no terminal, HTTP or database code: these parts are passed in, and progress is
reported as events. `desk/chats.py` assembles a chat.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import ConfigDict

from textevolve.engine.local import cancel
from textevolve.errors import (
    AnswerError,
    ConflictError,
    InputError,
    TextEvolveError,
    TooLongError,
    public_message,
)
from textevolve.evaluation import Usage, check_text
from textevolve.llm.model import Message, Model, Request, Response, ToolCall
from textevolve.llm.prompts import count_tokens, draw_nonce, fence, load_template, quote, sanitize
from textevolve.llm.structured import describe_fault
from textevolve.llm.wire import AnswerPiece, ask_streaming
from textevolve.memory.recall import Memory, Recalled
from textevolve.spans import Span, span
from textevolve.spec import Frozen
from textevolve.texts.prose import join_lines

# The stored form of a chat: a session with its messages in order.
#
# Each message is stored durably before it is used. The package `store` implements `SessionKeeper`.

Speaker: TypeAlias = Literal["user", "assistant"]
Learning: TypeAlias = Literal["no", "pending", "done", "failed"]
"""The state of making memories from a turn (a message and its answer): not intended, pending, done,
or failed because the model's answers were unusable."""

TITLE = 60
"""The number of characters of the first message that become the title of a session."""


class MessageDetails(Frozen):
    """Metadata of a message. All fields are about answers; messages of users have the defaults.

    Attributes:
        memories: The ids of the recalled memories.
        interrupted: Whether the answer was stopped; the text is the part written so far.
        finish_reason: Why the model stopped, in the words of its endpoint.
        model: The spec of the model that answered.
        learning: Whether memories are made from the turn, and whether that is done.
    """

    model_config = ConfigDict(extra="ignore")  # older ones had a summary of those before

    memories: tuple[str, ...] = ()
    interrupted: bool = False
    finish_reason: str = ""
    model: str = ""
    learning: Learning = "no"


NO_DETAILS = MessageDetails()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessage:
    """A message of a session. `position`: its number in the session, from 1; `created`: Unix
    time."""

    position: int
    role: Speaker
    text: str
    created: float
    details: MessageDetails = NO_DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSession:
    """The summary of a chat session in a list of sessions.

    Attributes:
        agent: The agent's name, NAMESPACE/NAME.
        user: The user's name; empty if unknown.
        title: The beginning of the first message.
        created: Unix time, like `updated`.
        messages: The number of messages.
    """

    id: str
    agent: str
    user: str
    title: str
    created: float
    updated: float
    messages: int


CHAT_SOURCE = "chat "
"""The beginning of the source of a memory of a stored chat; the id of its session follows."""


def learned_messages(messages: Sequence[SessionMessage]) -> list[SessionMessage]:
    """Return the messages and answers of which memories have been made, or are still to be made;
    the turns of memories count these alone."""
    learned: list[SessionMessage] = []
    for question, answer in pairwise(messages):
        if answer.role == "assistant" and answer.details.learning in ("pending", "done"):
            learned += [question, answer]

    return learned


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A message of a user and the agent's answer, from which memories are made. `position`: the
    position of the answer in the session; `created`: Unix time."""

    session: str
    position: int
    user: str
    message: str
    answer: str
    created: float


class SessionKeeper(Protocol):
    """The storage of the sessions of one agent with one user."""

    async def begin(self, title: str) -> str:
        """Begin a session; return its id."""
        ...

    async def append(self, session: str, message: SessionMessage) -> None:
        """Store a message of a session at its position. An answer takes the place of an interrupted
        answer at the end of the session.

        Raises:
            ConflictError: the session has a message at this position already, as another client
                has continued it.
        """
        ...


def title_of(text: str) -> str:
    line = join_lines(text)
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"


def as_openai(messages: Sequence[SessionMessage]) -> list[dict[str, Any]]:
    """Return the messages in the form of the chat API, with the additional fields `created` and
    `interrupted`. `memories create` and other tools read this form."""
    return [
        {
            "role": message.role,
            "content": message.text,
            "created": message.created,
            **({"interrupted": True} if message.details.interrupted else {}),
        }
        for message in messages
    ]


Learn: TypeAlias = Callable[[FinishedTurn], Awaitable[tuple[str, ...]]]
"""A function that creates the memories of a turn, only once even if called again, and returns their
ids."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of making memories from a turn (a message and its answer). `ids`: the ids of the
    new memories; `error`: the error that prevented it, empty if there was none."""

    turn: FinishedTurn
    ids: tuple[str, ...] = ()
    error: str = ""


class Learner:
    """Makes memories from turns (messages with their answers), one turn after another, in the
    background of a chat."""

    def __init__(self, learn: Learn) -> None:
        self._learn = learn
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Learned]] = set()

    def add(self, turn: FinishedTurn) -> asyncio.Task[Learned]:
        """Queue a turn, from which memories are then made; the returned task has the result."""
        task = asyncio.create_task(self._work(turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, turn: FinishedTurn) -> Learned:
        async with self._turn:
            try:
                return Learned(turn, await self._learn(turn))
            except TextEvolveError as error:
                return Learned(turn, error=public_message(error))

    async def aclose(self, patience: float = 0.0) -> None:
        """Stop making memories after at most `patience` seconds, in which calls that are paid
        already may come to their end. The store keeps queued turns as pending, so a later chat
        makes memories from them."""
        tasks = list(self._tasks)
        if tasks and patience:
            await asyncio.wait(tasks, timeout=patience)
        await cancel(tasks)


MESSAGE_TOKENS = 8
"""The estimated tokens of a message in addition to its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """The agent that speaks, and its user.

    Attributes:
        agent: The agent's name, NAMESPACE/NAME.
        text: The persona: who the agent is and how it speaks.
        user: The user's name; empty if unknown.
        user_description: Facts about the user that the agent knows from the start.
    """

    agent: str
    text: str
    user: str
    user_description: str


def _clean(text: str, nonce: str) -> str:
    return sanitize(text, nonce)[0]


def _format_memory(memory: Memory, nonce: str) -> str:
    """Return the text with its date, its source, and its trust if that is below 1."""
    day = None if memory.created is None else datetime.date.fromtimestamp(memory.created)
    details = [str(day)] if day else []
    if memory.source:
        details.append(memory.source)
    if memory.trust is not None and memory.trust < 1:
        details.append(f"trust {memory.trust:.1f}")

    where = f" ({', '.join(details)})" if details else ""

    return _clean(join_lines(memory.text) + where, nonce)


def count_omitted(sizes: Sequence[int], budget: int) -> int:
    """Return how many of the oldest messages to omit, so that the others fit into a budget of
    tokens.

    If they exceed it, the oldest are omitted until half of the budget is free. So the beginning of
    the prompt stays the same for many turns, which the server's prompt cache needs. The last
    message is never omitted.
    """
    omitted = total = 0

    for place, size in enumerate(sizes):
        total += size
        if total > budget:
            while omitted < place and total > budget // 2:
                total -= sizes[omitted]
                omitted += 1

    return omitted


CUE_MESSAGES = 4
"""The number of messages before the last one that are part of the query for memories."""
SHARES = (1.0, 0.5, 0.25, 0.0)
"""The shares of the room for earlier messages that are tried one after the other while the model
rejects the prompt as too long."""


@dataclass(frozen=True, slots=True)
class HistoryShortened:
    """The event that the oldest messages were left out of the prompt. `messages`: their number."""

    messages: int


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The last event of a turn: the answer, which has been stored.

    Attributes:
        text: The answer; if it was interrupted, the part written so far.
        position: The position of the answer in the session, from 1.
        interrupted: Whether the answer was stopped. If `text` is empty then, nothing was stored.
        finish_reason: Why the model stopped, in the words of its endpoint.
        usage: The tokens and cost of the call; None if unknown.
        memories: The memories that were recalled for the message.
        tool_calls: The tools to call before the message can be answered; nothing was stored then.
    """

    text: str
    position: int
    interrupted: bool = False
    finish_reason: str = ""
    usage: Usage | None = None
    memories: tuple[Memory, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


ChatEvent: TypeAlias = Recalled | HistoryShortened | AnswerPiece | ChatAnswer
"""An event of a turn. The events come in this order; a piece of the answer with `anew` discards the
pieces before it."""

RecallFor: TypeAlias = Callable[[str, str], Awaitable[Recalled]]
"""A function that recalls memories for a message; its second argument is the text of the messages
before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParts:
    """The persona, the model and the store of a chat, and the limits of its answers.

    Attributes:
        persona: The agent that speaks, and its user.
        model: The model that answers.
        keeper: The storage of the session and its messages.
        today: The date as a text, for the prompt.
        context: The most tokens of the prompt and the answer together.
        asking: A request without messages, which sets the schema, the most tokens and the tools of
            each answer.
        exchange: The tool calls since the last message, and their results.
        recall: The function that recalls memories; None for an agent without memories.
        use: A function that records the ids of the memories that were shown to the model, and the
            time.
        learner: The object that makes memories from turns; None if no memories are made.
        tracing: The parent of the trace spans of the turns.
    """

    persona: Persona
    model: Model
    keeper: SessionKeeper
    today: str
    context: int
    asking: Request
    exchange: tuple[Message, ...]
    recall: RecallFor | None
    use: Callable[[Sequence[str], float], Awaitable[None]] | None
    learner: Learner | None
    tracing: Span


class AgentChat:
    """A session with an agent. It answers one message at a time.

    Attributes:
        session: The id of the session; empty before the first message.
        messages: All messages of the session, from both sides.
        recalled: The memories that were recalled for the last message.
    """

    def __init__(self, parts: ChatParts, session: str, messages: Sequence[SessionMessage]) -> None:
        self.parts = parts
        self.session = session
        self.messages = list(messages)
        self.recalled = Recalled()
        self.learning: list[asyncio.Task[Learned]] = []
        self._shown: tuple[Memory, ...] = ()
        self._cut: SessionMessage | None = None
        self._written = ""
        self._asking: asyncio.Task[Response] | None = None
        self._busy = False

    @property
    def unanswered(self) -> bool:
        """Return whether the last message has no answer yet, as after a failure."""
        return bool(self.messages) and self.messages[-1].role == "user"

    def answer_to(self, text: str) -> SessionMessage | None:
        """Return the last message if it is an answer to a message with this text; otherwise
        None."""
        if len(self.messages) < 2 or self.unanswered or self.messages[-2].text != text:
            return None
        return self.messages[-1]

    async def begin(self, text: str) -> None:
        """Begin a session with its first message, unless the session has already begun.

        Raises:
            InputError: the text is blank.
        """
        check_text("the message", text)
        if not self.session:
            self.session = await self.parts.keeper.begin(title_of(text))

    async def say(self, text: str) -> AsyncGenerator[ChatEvent]:
        """Send a message and yield the events of its answer. The message is stored before the model
        is called; repeating the last message, if it has no answer or an interrupted one, stores it
        only once, and the new answer takes the place of the interrupted one. If the caller stops
        reading the events, the text so far is stored as interrupted.

        Raises:
            InputError: the text is blank, or an answer is being written.
            ConflictError: another client has continued the session.
            ModelError, BudgetError: there is no answer; the message stays stored, and sending it
                again calls the model again.
        """
        if self._busy:
            raise InputError(
                "this chat is still writing an answer; send the next message after it, or stop"
                " it first"
            )

        self._busy = True

        try:
            await self.begin(text)
            answered = self.answer_to(text)

            if answered is not None and answered.details.interrupted:
                self._cut = self.messages.pop()
            elif not (self.unanswered and self.messages[-1].text == text):
                self._learn_of_cut()
                await self._keep("user", text, MessageDetails())

            async with aclosing(self._answer()) as events:
                async for event in events:
                    yield event
        finally:
            if self._cut is not None:  # nothing took its place
                self.messages.append(self._cut)
                self._cut = None
            self._busy = False

    def stop(self) -> None:
        """Stop the turn that is under way, if there is one; its events then end."""
        if self._asking is not None:
            self._asking.cancel()

    @property
    def unlearned(self) -> int:
        """Return the number of turns whose memories have not been made yet."""
        return sum(not learned.done() for learned in self.learning)

    def learned(self) -> list[Learned]:
        """Return the results of making memories from turns that have finished since the last
        call."""
        done = [each for each in self.learning if each.done()]
        self.learning = [each for each in self.learning if not each.done()]
        return [each.result() for each in done if not each.cancelled()]

    async def finish(self) -> None:
        """Wait until the memories of all turns are created."""
        if self.learning:
            await asyncio.wait(self.learning)

    async def _answer(self) -> AsyncGenerator[ChatEvent]:
        """Yield the events of an answer. The model runs in a task of its own, which `stop`
        cancels."""
        self._written = ""
        self._shown = ()
        self.recalled = Recalled()
        events: asyncio.Queue[ChatEvent | None] = asyncio.Queue()
        self._asking = task = asyncio.create_task(self._ask(events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(None))

        try:
            while (event := await events.get()) is not None:
                yield event
        except (GeneratorExit, asyncio.CancelledError):
            await cancel([task])
            # Another client may have continued the session, or have got a whole answer.
            with suppress(ConflictError):
                await self._interrupt()
            raise
        finally:
            self._asking = None

        if task.cancelled():
            yield await self._interrupt()
        else:
            yield await self._finish(task.result())

    async def _ask(self, tell: Callable[[ChatEvent], None]) -> Response:
        """Recall memories, build the prompt and ask the model; if the model reports that the prompt
        is too long, ask again with a shorter history."""
        who = self.parts.persona
        message = self.messages[-1].text
        about = {"agent": who.agent, "conversation": self.session, "user": who.user or None}

        with span("agent", who.agent, self.parts.tracing, **about, input=message) as here:
            if self.parts.recall is not None:
                before = self.messages[-1 - CUE_MESSAGES : -1]
                history = "\n".join(message.text for message in before)
                self.recalled = await self.parts.recall(message, history)

            tell(self.recalled)
            response = await self._ask_model(tell)
            here.note(output=response.text)
            return response

    async def _ask_model(self, tell: Callable[[ChatEvent], None]) -> Response:
        for share in SHARES[:-1]:
            with suppress(TooLongError):
                return await self._ask_with(share, tell)
        return await self._ask_with(SHARES[-1], tell)

    async def _ask_with(self, share: float, tell: Callable[[ChatEvent], None]) -> Response:
        self._shown = self.recalled.memories if share else ()
        if omitted := self._count_omitted(share):
            tell(HistoryShortened(omitted))

        def note(piece: AnswerPiece) -> None:
            self._written = piece.text if piece.anew else self._written + piece.text
            tell(piece)

        # Each turn has its own key in the journal, so if the process ended after the model
        # answered, the stored answer is used.
        key = f"{self.session}:{self.messages[-1].position}"
        sample = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")
        messages = self._lay_out(self.messages[omitted:])
        request = replace(self.parts.asking, messages=messages, sample=sample)

        return await ask_streaming(self.parts.model, request, note)

    def _count_omitted(self, share: float) -> int:
        """Return how many of the oldest messages the prompt omits. Half of the context is for
        persona, memories and the message; earlier messages may take the fraction `share` of the
        other half."""
        if not share:
            return len(self.messages) - 1
        answer = self.parts.asking.max_tokens or 0
        room = int((self.parts.context - answer) // 2 * share)
        sizes = [count_tokens(message.text) + MESSAGE_TOKENS for message in self.messages]
        omitted = count_omitted(sizes, room)
        if omitted and self.messages[omitted].role == "assistant":
            omitted += 1  # its question is omitted, too

        return omitted

    def _lay_out(self, history: Sequence[SessionMessage]) -> tuple[Message, ...]:
        """Return the messages of the request. Consecutive messages of one speaker are merged, since
        many models accept only alternating turns.

        Args:
            history: The latest messages that fit into the prompt, ending with the one to answer.
        """
        parts = self.parts
        who = self.parts.persona
        texts = [entry.text for entry in (*history, *self._shown, *parts.exchange)]
        nonce = draw_nonce([*texts, who.user_description], 0)
        rules = load_template("textevolve.agents", "chat").render(
            persona=who.text.strip(),
            user=who.user,
            known=quote(_clean(who.user_description, nonce)) if who.user_description else "",
            today=parts.today,
            remembers=parts.recall is not None,
        )
        recalled = ""
        if self._shown:
            lines = [f"- {_format_memory(memory, nonce)}" for memory in self._shown]
            recalled = fence("what you remember", "\n".join(lines), nonce) + "\n"
        laid_out = [Message("system", (rules,))]

        for message in history:
            text = f"{recalled if message is history[-1] else ''}{_clean(message.text, nonce)}"
            if text.strip() and laid_out[-1].role == message.role:
                laid_out[-1] = Message(message.role, (*laid_out[-1].parts, f"\n\n{text}"))
            elif text.strip():
                laid_out.append(Message(message.role, (text,)))

        laid_out += [
            replace(message, parts=(_clean(message.text, nonce),)) for message in parts.exchange
        ]

        return tuple(laid_out)

    async def _interrupt(self) -> ChatAnswer:
        """Store the part of the answer written so far, if there is any."""
        if self._written.strip():
            await self._end_turn(self._written, "interrupted", interrupted=True)
        return ChatAnswer(self._written, len(self.messages), True, memories=self.recalled.memories)

    async def _finish(self, response: Response) -> ChatAnswer:
        calls = response.tool_calls if self.parts.asking.tools is not None else ()
        unwanted = not calls and not response.text.strip()
        # A part of an answer, and one without a word, are shown with their finish reason.
        if unwanted and (response.tool_calls or response.reasoning):
            raise AnswerError(f"{self.parts.model.name}: {describe_fault(response)}")
        if not calls:
            await self._end_turn(response.text, response.finish_reason)

        return ChatAnswer(
            text=response.text,
            position=len(self.messages),
            finish_reason=response.finish_reason,
            usage=response.usage,
            memories=self.recalled.memories,
            tool_calls=calls,
        )

    async def _end_turn(self, text: str, finish_reason: str, *, interrupted: bool = False) -> None:
        learner = self.parts.learner
        memory_ids = tuple(memory.id for memory in self._shown if memory.id)
        details = MessageDetails(
            memories=memory_ids,
            interrupted=interrupted,
            finish_reason=finish_reason,
            model=self.parts.model.name,
            learning="no" if learner is None else "pending",
        )
        answer = await self._keep("assistant", text, details)
        self._cut = None
        if not interrupted:
            self._learn_of(answer)
        if memory_ids and self.parts.use is not None:
            await self.parts.use(memory_ids, answer.created)

    def _learn_of_cut(self) -> None:
        """Make memories of an interrupted answer at the end of the session, which goes on. Before
        that the message may be repeated, and then another answer takes its place."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.details.interrupted and last.details.learning == "pending":
            self._learn_of(last)

    def _learn_of(self, answer: SessionMessage) -> None:
        if self.parts.learner is None:
            return
        turn = FinishedTurn(
            session=self.session,
            position=answer.position,
            user=self.parts.persona.user,
            message=self.messages[answer.position - 2].text,
            answer=answer.text,
            created=answer.created,
        )
        self.learning.append(self.parts.learner.add(turn))

    async def _keep(self, role: Speaker, text: str, details: MessageDetails) -> SessionMessage:
        """Store a message, then add it to the chat."""
        message = SessionMessage(
            position=len(self.messages) + 1,
            role=role,
            text=text,
            created=time.time(),
            details=details,
        )
        await self.parts.keeper.append(self.session, message)
        self.messages.append(message)

        return message
