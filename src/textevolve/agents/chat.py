"""A chat with an agent: recall, answer piece by piece, keep, learn.

It knows no terminal, no HTTP and no database: what it needs is handed to it, and what happens is
told in events. `studies/chats.py` puts one together.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias, TypeVar

from textevolve.agents.session import (
    FinishedTurn,
    HistorySummary,
    MessageDetails,
    SessionKeeper,
    SessionMessage,
    Speaker,
    title_of,
)
from textevolve.errors import (
    AnswerError,
    BudgetError,
    InputError,
    ModelError,
    TextEvolveError,
    TooLongError,
    public_message,
)
from textevolve.evaluation import Usage, check_text
from textevolve.llm.fence import draw_nonce, fence, quote, sanitize
from textevolve.llm.mapreduce import SMALLEST_BUDGET
from textevolve.llm.model import Message, Model, Request, Response, Role, ToolCall
from textevolve.llm.reasoning import why_without_text
from textevolve.llm.streaming import AnswerPiece, ask_streaming
from textevolve.llm.template import Template, load_template
from textevolve.llm.token_count import count_tokens
from textevolve.memory.recall import Memory, Recalled

Learn: TypeAlias = Callable[[FinishedTurn], Awaitable[tuple[str, ...]]]
"""Makes memories of a turn, once however often it is called; the ids of those that were kept."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of a turn. `ids`: of the memories that were kept; `error`: why none could be."""

    turn: FinishedTurn
    ids: tuple[str, ...] = ()
    error: str = ""

    @property
    def memories(self) -> int:
        """How many were kept."""
        return len(self.ids)


class Learner:
    """Learns turns in their order. `free` is set while no answer is being written."""

    def __init__(self, learn: Learn, free: asyncio.Event) -> None:
        self._learn = learn
        self.free = free
        self._waiting: deque[FinishedTurn] = deque()
        self._told: list[Learned] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many turns are still to be learned."""
        return len(self._waiting)

    def add(self, turn: FinishedTurn) -> None:
        self._waiting.append(turn)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            await self.free.wait()
            turn = self._waiting[0]
            try:
                learned = Learned(turn, await self._learn(turn))
            except TextEvolveError as error:
                learned = Learned(turn, error=public_message(error))
            self._told.append(learned)
            self._waiting.popleft()

    def tell(self) -> list[Learned]:
        """What became of turns since it was asked for last."""
        told, self._told = self._told, []
        return told

    async def finish(self) -> None:
        """Wait until all is learned."""
        if self._task is not None:
            await self._task

    async def aclose(self) -> None:
        """Stop; what is left is learned another time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class StandAside:
    """A model whose calls wait while somebody waits for an answer."""

    def __init__(self, model: Model, free: asyncio.Event) -> None:
        self.model = model
        self._free = free

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        await self._free.wait()
        return await self.model(request)


MESSAGE_TOKENS = 8
"""What a message takes beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """Who speaks, and with whom. `agent`: NAMESPACE/NAME; `user`: empty where nobody said;
    `known`: what the agent may know of this user from the start."""

    agent: str
    text: str
    user: str = ""
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """What a prompt is made of. `history`: all messages that are not left out, the one to be
    answered last. `summary`: what stands for those that are. `exchange`: what follows on the last
    message: calls of tools, and their results."""

    persona: Persona
    today: str
    history: Sequence[SessionMessage]
    memories: Sequence[Memory] = ()
    remembers: bool = True
    summary: HistorySummary | None = None
    exchange: Sequence[Message] = ()

    def messages(self) -> tuple[Message, ...]:
        """The messages of the request. Those of one speaker in a row are one, since many models
        take only turns that alternate."""
        own = self.history[-1]
        texts = [one.text for one in (*self.history, *self.memories, *self.exchange)]
        texts += [self.summary.text] if self.summary else []
        nonce = draw_nonce([*texts, self.persona.known], 0)
        rules = _template().render(
            persona=self.persona.text.strip(),
            user=self.persona.user,
            known=quote(_clean(self.persona.known, nonce)) if self.persona.known else "",
            today=self.today,
            remembers=self.remembers,
        )
        made = [Message("system", (rules,))]
        if self.summary is not None:
            said = fence("earlier messages, summarised", _clean(self.summary.text, nonce), nonce)
            made.append(Message("user", (said,)))
        for one in self.history:
            recalled = self._recalled(nonce) if one is own else ""
            text = f"{recalled}{_clean(one.text, nonce)}"
            if text.strip():
                _join(made, one.role, text)
        made += [replace(one, parts=(_clean(one.text, nonce),)) for one in self.exchange]
        return tuple(made)

    def _recalled(self, nonce: str) -> str:
        if not self.memories:
            return ""
        lines = [f"- {_say_memory(one, nonce)}" for one in self.memories]
        return fence("what you remember", "\n".join(lines), nonce) + "\n"


def _join(made: list[Message], role: Role, text: str) -> None:
    if made[-1].role == role:
        made[-1] = Message(role, (*made[-1].parts, f"\n\n{text}"))
    else:
        made.append(Message(role, (text,)))


def _clean(text: str, nonce: str) -> str:
    return sanitize(text, nonce)[0]


def _say_memory(memory: Memory, nonce: str) -> str:
    """The text with its date, its source, and how far it is trusted where that is not wholly."""
    day = None if memory.created is None else datetime.date.fromtimestamp(memory.created)
    said = [str(day)] if day else []
    said += [memory.source] if memory.source else []
    said += [f"trust {memory.trust:.1f}"] if memory.trust is not None and memory.trust < 1 else []
    where = f" ({', '.join(said)})" if said else ""
    return _clean(" ".join(memory.text.split()) + where, nonce)


@cache
def _template() -> Template:
    variables = ("persona", "user", "known", "today", "remembers")
    return load_template("textevolve.agents", "chat", variables)


def size_of(messages: Sequence[SessionMessage]) -> list[int]:
    """About how many tokens each message takes in a prompt."""
    return [count_tokens(one.text) + MESSAGE_TOKENS for one in messages]


def first_shown(sizes: Sequence[int], budget: int) -> int:
    """How many of the oldest messages are left out, so that the others fit into a budget of tokens.

    Where they outgrow it, the oldest are left out until half of it is free: so what is left out
    stays the same for many turns, and with it the beginning of the prompt. The last one is always
    shown.
    """
    first = total = 0
    for place, size in enumerate(sizes):
        total += size
        if total > budget:
            while first < place and total > budget // 2:
                total -= sizes[first]
                first += 1
    return first


T = TypeVar("T")

CUE_MESSAGES = 4
"""How many of the messages before the last one are a part of the cue for recall."""
SHARES = (1.0, 0.5, 0.25, 0.0)
"""Of the room for earlier messages, where the model says that a prompt is too long."""


@dataclass(frozen=True, slots=True)
class HistoryShortened:
    """So many of the oldest messages are not in the prompt; `summarised`: a summary stands for
    them. `reason`: why there is none."""

    messages: int
    summarised: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer is kept; nothing more comes. `interrupted`: it was stopped, and the text is what
    had been written; it may be empty, and then nothing was kept. `usage`: None where that is
    unknown. `tool_calls`: what is to be called before there is an answer; nothing was kept, and the
    message is answered once their results are there."""

    text: str
    position: int
    interrupted: bool = False
    finish_reason: str = ""
    usage: Usage | None = None
    memories: tuple[Memory, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


ChatEvent: TypeAlias = Recalled | HistoryShortened | AnswerPiece | ChatAnswer
"""What happens in a turn, in this order; a piece may be `anew`."""

RecallFor: TypeAlias = Callable[[str, str], Awaitable[Recalled]]
"""From a message and what was said before it to what is remembered."""
Condense: TypeAlias = Callable[[Sequence[str], int], Awaitable[str]]
"""From texts, and how many tokens there may be, to one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParts:
    """What a chat works with. `context`: tokens that the prompt and the answer may have together;
    `max_tokens`: of them, those of the answer; `schema`: the JSON schema that it is to keep to.
    `recall`: None for an agent without memories; `use` notes which memories were shown, `forget`
    closes one. `learner`: None where nothing is to be learned. `condense` makes a summary of what
    the prompt has no room for; None: it is left out. `free` is set while nobody waits for an
    answer. `tools`, `tool_choice`: functions that may be called, as `Request` has them; `exchange`:
    calls and results since the last message."""

    persona: Persona
    model: Model
    keeper: SessionKeeper
    today: str
    context: int
    max_tokens: int
    temperature: float | None = None
    schema: str | None = None
    tools: str | None = None
    tool_choice: str | None = None
    exchange: tuple[Message, ...] = ()
    recall: RecallFor | None = None
    use: Callable[[Sequence[str], float], Awaitable[None]] | None = None
    forget: Callable[[Memory], Awaitable[None]] | None = None
    learner: Learner | None = None
    condense: Condense | None = None
    free: asyncio.Event = field(default_factory=asyncio.Event)


class _Stopped(Exception):
    """Somebody ended the turn."""


class AgentChat:
    """One session with an agent. Its turns come one after the other.

    `session`: its id, empty before the first message; `messages`: all that was said.
    """

    def __init__(
        self, parts: ChatParts, session: str = "", messages: Sequence[SessionMessage] = ()
    ) -> None:
        self.parts, self.session = parts, session
        self.messages = list(messages)
        self.recalled = Recalled()
        self._asking: asyncio.Task[Any] | None = None
        parts.free.set()

    @property
    def unanswered(self) -> bool:
        """Whether the last message has no answer yet, as after a failure."""
        return bool(self.messages) and self.messages[-1].role == "user"

    async def say(self, text: str) -> AsyncGenerator[ChatEvent]:
        """Say something, and be answered. The message is kept before the model is asked. Where the
        events are not read to their end, what was written so far is kept as interrupted.

        Raises:
            InputError: the text is blank, or an answer is being written.
            ConflictError: somebody else has gone on with the session.
            ModelError, BudgetError: no answer came; the message stays, and `answer` asks again.
        """
        check_text("the message", text)
        with self._turn():
            if not self.session:
                self.session = await self.parts.keeper.begin(title_of(text))
            await self._keep("user", text, MessageDetails())
            async with aclosing(self._answer()) as events:
                async for event in events:
                    yield event

    async def answer(self) -> AsyncGenerator[ChatEvent]:
        """Answer what has no answer yet. As `say`.

        Raises:
            InputError: there is nothing to be answered.
        """
        with self._turn():
            if not self.unanswered:
                raise InputError("there is no message without an answer")
            async with aclosing(self._answer()) as events:
                async for event in events:
                    yield event

    def stop(self) -> None:
        """End the turn that is under way, if there is one; its events come to their end."""
        if self._asking is not None:
            self._asking.cancel()

    async def finish(self) -> None:
        """Wait until memories are made of all turns."""
        if self.parts.learner is not None:
            await self.parts.learner.finish()

    @contextmanager
    def _turn(self) -> Generator[None]:
        if not self.parts.free.is_set():
            raise InputError("an answer is being written; wait for it, or stop it")
        self.parts.free.clear()
        try:
            yield
        finally:
            self.parts.free.set()

    async def _answer(self) -> AsyncGenerator[ChatEvent]:
        try:
            self.recalled = await self._do(self._recall())
            yield self.recalled
            for share in SHARES:
                prompt, shortened = await self._do(self._lay_out(share))
                if shortened is not None:
                    yield shortened
                try:
                    async with aclosing(self._write(prompt)) as events:
                        async for event in events:
                            yield event
                    return
                except TooLongError:
                    if share == SHARES[-1]:
                        raise
        except _Stopped:
            yield ChatAnswer("", len(self.messages), True, memories=self.recalled.memories)

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives, which `stop` ends."""
        self._asking = task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
        finally:
            self._asking = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise _Stopped
        return task.result()

    async def _recall(self) -> Recalled:
        if self.parts.recall is None:
            return Recalled()
        before = self.messages[-1 - CUE_MESSAGES : -1]
        history = "\n".join(one.text for one in before)
        return await self.parts.recall(self.messages[-1].text, history)

    async def _lay_out(self, share: float) -> tuple[ChatPrompt, HistoryShortened | None]:
        """The prompt whose earlier messages have so large a share of their room: of the half of the
        context that persona, memories and the message do not need."""
        room = int((self.parts.context - self.parts.max_tokens) // 2 * share)
        left_out = [one.details.summary.until for one in self.messages if one.details.summary]
        first = max([first_shown(size_of(self.messages), room), *left_out])
        if not share:
            first = len(self.messages) - 1
        elif first and self.messages[first].role == "assistant":
            first += 1  # its question is not shown, either
        summary, reason = await self._summarise(first, room // 4)
        prompt = ChatPrompt(
            persona=self.parts.persona,
            today=self.parts.today,
            history=self.messages[first:],
            memories=self.recalled.memories if share else (),
            remembers=self.parts.recall is not None or summary is not None,
            summary=summary,
            exchange=self.parts.exchange,
        )
        told = HistoryShortened(first, summary is not None, reason) if first else None
        return prompt, told

    async def _summarise(self, first: int, room: int) -> tuple[HistorySummary | None, str]:
        """What stands for the first messages; else why nothing does."""
        if not first:
            return None, ""
        kept = [one.details.summary for one in self.messages if one.details.summary]
        earlier = next((one for one in reversed(kept) if one.until <= first), None)
        if earlier is not None and earlier.until == first:
            return earlier, ""
        if self.parts.condense is None or room < SMALLEST_BUDGET:
            return None, ""
        left = self.messages[earlier.until if earlier else 0 : first]
        texts = [earlier.text] if earlier else []
        texts += [f"{one.role}: {one.text}" for one in left]
        try:
            said = await self.parts.condense(texts, room)
        except (ModelError, BudgetError) as error:
            return None, str(error)
        return (HistorySummary(until=first, text=said), "") if said.strip() else (None, "")

    async def _write(self, prompt: ChatPrompt) -> AsyncGenerator[AnswerPiece | ChatAnswer]:
        """The pieces of the answer, which is kept in the end; also where it is stopped."""
        told = ""
        pieces: asyncio.Queue[AnswerPiece | None] = asyncio.Queue()
        asked = ask_streaming(self.parts.model, self._request(prompt), pieces.put_nowait)
        self._asking = task = asyncio.ensure_future(asked)
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                told = piece.text if piece.anew else told + piece.text
                yield piece
        except (GeneratorExit, asyncio.CancelledError):
            task.cancel()
            await self._interrupt(told, prompt)
            raise
        finally:
            self._asking = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            yield await self._interrupt(told, prompt)
        else:
            yield await self._finish(task.result(), prompt)

    def _request(self, prompt: ChatPrompt) -> Request:
        """Each turn of each session is a question of its own in the journal; where it broke off
        after the model had answered, the answer is found there."""
        key = f"{self.session}:{self.messages[-1].position}"
        sample = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")
        return Request(
            messages=prompt.messages(),
            schema=self.parts.schema,
            temperature=self.parts.temperature,
            max_tokens=self.parts.max_tokens,
            sample=sample,
            tools=self.parts.tools,
            tool_choice=self.parts.tool_choice,
        )

    async def _interrupt(self, told: str, prompt: ChatPrompt) -> ChatAnswer:
        """Keep what was written, if anything was."""
        if told.strip():
            await self._end_turn(told, prompt, interrupted=True, finish_reason="interrupted")
        return ChatAnswer(told, len(self.messages), True, memories=self.recalled.memories)

    async def _finish(self, response: Response, prompt: ChatPrompt) -> ChatAnswer:
        calls = response.tool_calls if self.parts.tools is not None else ()
        unwanted = not calls and not response.text.strip()
        if unwanted and (response.tool_calls or response.reasoning):
            raise AnswerError(f"{self.parts.model.name}: {why_without_text(response)}")
        if not calls:
            await self._end_turn(response.text, prompt, finish_reason=response.finish_reason)
        return ChatAnswer(
            text=response.text,
            position=len(self.messages),
            finish_reason=response.finish_reason,
            usage=response.usage,
            memories=self.recalled.memories,
            tool_calls=calls,
        )

    async def _end_turn(
        self, text: str, prompt: ChatPrompt, *, finish_reason: str, interrupted: bool = False
    ) -> None:
        shown = tuple(one.id for one in prompt.memories if one.id)
        asked, learner = self.messages[-1], self.parts.learner
        details = MessageDetails(
            memories=shown,
            interrupted=interrupted,
            finish_reason=finish_reason,
            model=self.parts.model.name,
            learning="no" if learner is None else "pending",
            summary=prompt.summary,
        )
        answer = await self._keep("assistant", text, details)
        if learner is not None:
            user = self.parts.persona.user
            turn = FinishedTurn(
                self.session, answer.position, user, asked.text, text, answer.created
            )
            learner.add(turn)
        if shown and self.parts.use is not None:
            await self.parts.use(shown, answer.created)

    async def _keep(self, role: Speaker, text: str, details: MessageDetails) -> SessionMessage:
        """A message is a part of the chat once it is durable."""
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
