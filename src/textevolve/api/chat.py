"""Chats with agents from Python: `open_chat` in plain code, `aopen_chat` in async code."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

from textevolve.agents.chat import AgentChat, ChatAnswer, ChatEvent, Learned
from textevolve.agents.session import SessionMessage
from textevolve.engine.kept_open import KeptOpen
from textevolve.errors import InputError
from textevolve.events import Listener, silence
from textevolve.memory.recall import Memory, Recalled
from textevolve.settings import Settings, read_settings, store_location
from textevolve.studies.chats import ChatOptions, ChatRequest, open_chat_run, plan_chat
from textevolve.wiring import Limits, take_limits

_END: Any = object()


class ChatKeywords(TypedDict, total=False):
    """What there is to say of a chat, as the options of `textevolve chat` have it. `store`: the
    file that keeps it. `limits`: of money, tokens and calls. `listener`: hears what is asked."""

    user: str
    session: str | None
    model: str | None
    memory: bool
    answer_tokens: int
    context: int | None
    temperature: float | None
    store: str | Path | None
    settings: Settings | None
    limits: Limits | None
    listener: Listener


OpenRun: TypeAlias = Callable[[], AbstractAsyncContextManager[AgentChat]]
"""Opens a chat, whose calls are stored as a run."""


@asynccontextmanager
async def aopen_chat(agent: str, **how: Unpack[ChatKeywords]) -> AsyncGenerator[AgentChat]:
    """A chat with an agent, NAMESPACE/AGENT. `say` gives events as they come: what is recalled, the
    pieces of the answer, and in the end a `ChatAnswer`. At the end of the block memories are made
    of all turns; where it ends with an error, when the next chat with the agent begins.

    Raises:
        InputError: there is no such agent or session. SettingsError: no model can be had as asked.
        StoreError: the store cannot be used.
    """
    async with _read(agent, how)() as chat:
        yield chat
        await chat.finish()


def open_chat(agent: str, **how: Unpack[ChatKeywords]) -> OpenChat:
    """The same for plain code, also where an event loop runs. It is opened with the first use."""
    return OpenChat(_read(agent, how))


def _read(agent: str, how: ChatKeywords) -> OpenRun:
    keywords: dict[str, Any] = {**how}
    store, settings = keywords.pop("store", None), keywords.pop("settings", None)
    limits = take_limits(keywords.pop("limits", None))
    listener = keywords.pop("listener", silence)
    settings = settings or read_settings({"store": store})[0]
    if store is not None:
        settings = settings.model_copy(update={"store": store_location(store)})
    request = ChatRequest(options=ChatOptions(agent=agent, **keywords))

    @asynccontextmanager
    async def open_run() -> AsyncGenerator[AgentChat]:
        plan = await plan_chat(request, settings)
        run = open_chat_run(plan, settings, source="Python", limits=limits, listener=listener)
        async with run as chat:
            yield chat

    return open_run


class OpenChat:
    """A chat in plain code, until the end of its block, or `close`."""

    def __init__(self, open_run: OpenRun) -> None:
        self._open_run = open_run
        self._chat: AgentChat | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept = KeptOpen(self._begin, "the chat is closed; open another one")

    async def _begin(self, stack: AsyncExitStack) -> AgentChat:
        self._chat = await stack.enter_async_context(self._open_run())
        self._loop = asyncio.get_running_loop()
        return self._chat

    @property
    def chat(self) -> AgentChat:
        """What it holds; it is opened where it is not."""

        async def get(chat: AgentChat) -> AgentChat:
            return chat

        return self._chat or self._kept.wait(get)

    @property
    def session(self) -> str:
        """The session's id, empty before the first message, and before it is opened."""
        return self._chat.session if self._chat else ""

    @property
    def messages(self) -> Sequence[SessionMessage]:
        return tuple(self.chat.messages)

    @property
    def recalled(self) -> Recalled:
        """What was recalled for the last message."""
        return self.chat.recalled

    def say(self, text: str) -> ChatAnswer:
        """Say something, and wait for the answer. Raises as `AgentChat.say`."""
        return _last(self.stream(text))

    def stream(self, text: str) -> Generator[ChatEvent]:
        """The events of a turn as they come; who leaves early stops the answer."""
        return self._iterate(lambda chat: chat.say(text))

    def answer(self) -> Generator[ChatEvent]:
        """The same for a message that has no answer yet."""
        return self._iterate(lambda chat: chat.answer())

    def _iterate(
        self, start: Callable[[AgentChat], AsyncGenerator[ChatEvent]]
    ) -> Generator[ChatEvent]:
        events: list[AsyncGenerator[ChatEvent]] = []
        stepping = asyncio.Lock()

        async def step(chat: AgentChat) -> ChatEvent:
            async with stepping:
                events[:] = events or [start(chat)]
                return await anext(events[0], _END)

        async def end(_chat: AgentChat) -> None:
            async with stepping:  # a step that was interrupted comes to its end first
                for one in events:
                    await one.aclose()

        try:
            while (event := self._kept.wait(step)) is not _END:
                yield event
        finally:
            with suppress(InputError):  # it was closed meanwhile, which ended the answer
                self._kept.wait(end)

    def stop(self) -> None:
        """End the answer that is being written; also from a signal's handler."""
        if self._chat is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._chat.stop)

    def forget(self, memory: Memory) -> None:
        """Close a memory that was recalled.

        Raises:
            InputError: it is not there. ConflictError: it is closed already.
        """

        async def close(chat: AgentChat) -> None:
            assert chat.parts.forget is not None
            await chat.parts.forget(memory)

        self._kept.wait(close)

    @property
    def unlearned(self) -> int:
        """Count the turns of which memories are still to be made."""
        return self._chat.unlearned if self._chat else 0

    def learned(self) -> list[Learned]:
        """Tell what became of turns since this was called last."""
        return self._chat.learned() if self._chat else []

    def finish(self) -> None:
        """Wait until memories are made of all turns."""
        if self._chat is not None:
            self._kept.wait(AgentChat.finish)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of it; what is unlearned is learned when the next chat begins. Twice is once."""
        self._kept.close()


def _last(events: Generator[ChatEvent]) -> ChatAnswer:
    (last,) = deque(events, maxlen=1)
    assert isinstance(last, ChatAnswer)
    return last
