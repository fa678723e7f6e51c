"""Chats that stay open between the turns of people at pages, so that memories are made of a turn
while its reader thinks about the next one. Each is closed when nobody has used it for a while.

What a chat is stands in `agents/chat.py`, how one is put together in `studies/chats.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from textevolve.agents.chat import AgentChat, ChatAnswer, ChatEvent, Learned
from textevolve.agents.resources import StoredAgent
from textevolve.agents.session import title_of
from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.server.access import Caller
from textevolve.server.decisions.spending import spending
from textevolve.server.errors import ApiError, as_api_error
from textevolve.server.limits import UsageLimits
from textevolve.studies.chats import ChatOptions, ChatPlan, open_chat_in, plan_chat
from textevolve.wiring import Workbench

MOST_OPEN = 64
"""One more closes the one that was used the longest time ago."""
IDLE_SECONDS = 600.0
"""Nobody has said anything for so long: the chat is closed; its session can be gone on with."""
GOODBYE = 2.0
"""Seconds that turns have to end with the server; what is not learned is learned later."""


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """The message is taken; it belongs to this session."""

    session: str


TurnEvent: TypeAlias = TurnBegun | ChatEvent | Learned | ApiError
"""What happens in a turn, in this order; an error ends it. What was learned comes after the answer,
and may be of an earlier turn, too."""

log = logging.getLogger("textevolve.server")


@dataclass(eq=False)
class HeldChat:
    """A chat that is open. `busy`: turns of which the answer, or what is learned of them, is still
    to come. `stopping`: the answer is not wanted any more."""

    chat: AgentChat
    agent: StoredAgent
    ended: asyncio.Event
    task: asyncio.Task[None] | None = None
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    stopping: bool = False

    def stop(self) -> None:
        """End the answer that is being written; what was written is kept."""
        self.stopping = True
        self.chat.stop()


class OpenChats:
    """The chats of one server. They share its workbench: its limits, and one model of each kind."""

    def __init__(self, bench: Workbench, limits: UsageLimits) -> None:
        self._bench, self._limits = bench, limits
        # An agent that names no model is spoken for by the one that the server serves first.
        first = bench.default_model or bench.settings.model
        self._settings = bench.settings.model_copy(update={"model": first})
        self._held: list[HeldChat] = []
        self._opening = asyncio.Lock()
        self._turns: set[asyncio.Task[None]] = set()

    def find(self, session: str) -> HeldChat | None:
        """The open chat of a session."""
        found = [one for one in self._held if session and one.chat.session == session]
        return found[0] if found else None

    async def open(self, options: ChatOptions) -> HeldChat:
        """The chat of a session, or a new one. It is opened anew where the agent was changed, or
        somebody else went on with the session.

        Raises:
            InputError: there is no such agent, collection or session.
            SettingsError: no model can be had. ApiError: 429, too many are in use.
        """
        async with self._opening:
            plan = await plan_chat(options, self._settings, self._bench.resources)
            held = self.find(plan.session)
            if held is not None:
                same = held.agent == plan.agent and len(held.chat.messages) == len(plan.messages)
                if same or not held.chat.parts.free.is_set():
                    held.used = time.monotonic()
                    return held
                await self._close(held)
            await self._make_room()
            return await self._open(plan)

    async def _make_room(self) -> None:
        if len(self._held) < MOST_OPEN:
            return
        idle = [one for one in self._held if not one.busy]
        if not idle:
            said = f"{MOST_OPEN} chats are in use already"
            raise ApiError(429, "rate_limit_exceeded", said, retry_after=10)
        await self._close(min(idle, key=lambda one: one.used))

    async def _open(self, plan: ChatPlan) -> HeldChat:
        """One task opens a chat and closes it, whoever uses it meanwhile."""
        opened: asyncio.Future[HeldChat] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            async with open_chat_in(self._bench, plan) as chat:
                held = HeldChat(chat, plan.agent, asyncio.Event())
                opened.set_result(held)
                while (left := held.used + IDLE_SECONDS - time.monotonic()) > 0 or held.busy:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(held.ended.wait(), max(left, 1.0))
                        break
                self._held.remove(held)

        task = asyncio.create_task(hold())
        await asyncio.wait([opened, task], return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await task  # raises what kept it from being opened
        held = opened.result()
        held.task = task
        self._held.append(held)
        return held

    async def _close(self, held: HeldChat) -> None:
        held.ended.set()
        if held.task is not None:
            await held.task

    async def begin(
        self, caller: Caller, held: HeldChat, text: str | None
    ) -> AsyncGenerator[TurnEvent]:
        """Begin a turn, and give its events as they come. `text`: None answers what has no answer
        yet. Who leaves before the answer is whole stops it; what is learned is learned all the
        same.

        Raises:
            InputError: the text is blank, or an answer is being written.
            ApiError: 429, what the caller may spend is spent.
        """
        chat = held.chat
        if not chat.parts.free.is_set():
            raise InputError("an answer is being written; wait for it, or stop it")
        if text is None and not chat.unanswered:
            raise InputError("there is no message without an answer")
        if text is not None:
            check_text("the message", text)
        await self._limits.check_tokens(caller, held.agent.namespace)
        if text is not None and not chat.session:
            chat.session = await chat.parts.keeper.begin(title_of(text))
        held.stopping = False
        events: asyncio.Queue[TurnEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self._answer(caller, held, text, events.put_nowait))
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)
        return _tell(held, events)

    async def _answer(
        self,
        caller: Caller,
        held: HeldChat,
        text: str | None,
        tell: Callable[[TurnEvent | None], None],
    ) -> None:
        """A task of its own, since its reader may be gone while there is something to be kept."""
        held.busy, held.used = held.busy + 1, time.monotonic()
        chat = held.chat
        with spending() as spent:
            try:
                answered = False
                turn = chat.answer() if text is None else chat.say(text)
                async with aclosing(turn) as events:
                    async for event in events:
                        tell(event)
                        answered = isinstance(event, ChatAnswer)
                        if held.stopping and not answered:
                            break
                if not answered:
                    tell(_stopped(chat))
                held.used = time.monotonic()
                await chat.finish()
                for one in chat.parts.learner.tell() if chat.parts.learner else ():
                    tell(one)
            except Exception as error:
                found = as_api_error(error)
                if found.status == 500:
                    log.error("a chat with %s failed", held.agent.full_name, exc_info=error)
                tell(found)
            finally:
                held.busy -= 1
                self._limits.note_tokens(caller, spent.usage.tokens, held.agent.namespace)
                tell(None)

    async def aclose(self) -> None:
        """Stops what is being answered, keeps what was written, and closes all."""
        for held in self._held:
            held.stop()
        if self._turns:
            await asyncio.wait(list(self._turns), timeout=GOODBYE)
        for task in list(self._turns):
            task.cancel()
        for held in list(self._held):
            await self._close(held)


async def _tell(
    held: HeldChat, events: asyncio.Queue[TurnEvent | None]
) -> AsyncGenerator[TurnEvent]:
    answered = False
    try:
        yield TurnBegun(held.chat.session)
        while (event := await events.get()) is not None:
            answered = answered or isinstance(event, ChatAnswer | ApiError)
            yield event
    finally:
        if not answered:
            held.stop()


def _stopped(chat: AgentChat) -> ChatAnswer:
    last = chat.messages[-1]
    said = last.text if last.role == "assistant" else ""
    return ChatAnswer(said, len(chat.messages), True, memories=chat.recalled.memories)


@asynccontextmanager
async def open_chats(bench: Workbench, limits: UsageLimits) -> AsyncGenerator[OpenChats]:
    chats = OpenChats(bench, limits)
    try:
        yield chats
    finally:
        await chats.aclose()
