"""Chats with an agent for code that is not async; they also work while an event loop runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from textevolve.agents.chat import AgentChat, ChatAnswer, ChatEvent, Learned, SessionMessage
from textevolve.engine.sync import KeptOpen, StaysOpen
from textevolve.memory.recall import Recalled

OpenRun: TypeAlias = Callable[[], AbstractAsyncContextManager[AgentChat]]
"""A function that opens a chat, whose model calls are stored as one run."""


async def _get(chat: AgentChat) -> AgentChat:
    return chat


class OpenChat(StaysOpen):
    """A chat with an agent, whose methods block until the result is there. The chat opens when it
    is first used, and closes at the end of its `with` block or by `close`."""

    def __init__(self, open_run: OpenRun) -> None:
        self.resource = KeptOpen(open_run, "the chat is closed; open another one")

    @property
    def chat(self) -> AgentChat:
        """The underlying async chat, opened if necessary."""
        return self.resource.current or self.resource.wait(_get)

    @property
    def session(self) -> str:
        """The id of the session; empty before the first message."""
        return self.resource.current.session if self.resource.current else ""

    @property
    def messages(self) -> Sequence[SessionMessage]:
        return tuple(self.chat.messages)

    @property
    def recalled(self) -> Recalled:
        """The memories that were recalled for the last message."""
        return self.chat.recalled

    def say(self, text: str) -> ChatAnswer:
        """Send a message, wait for the answer, and return it. The message is stored first, so that
        it can be sent again after an error. Raises InputError if the text is blank or an answer is
        being written, ConflictError if another client has continued the session, and ModelError or
        BudgetError if there is no answer."""
        (last,) = deque(self.stream(text), maxlen=1)
        assert isinstance(last, ChatAnswer)
        return last

    def stream(self, text: str) -> Generator[ChatEvent]:
        """Send a message, and yield the events of the turn as they come. Closing the generator
        early stops the answer."""
        return self.resource.iterate(lambda chat: chat.say(text))

    def stop(self) -> None:
        """Stop the answer that is being generated. A signal handler may call this."""
        if self.resource.current is not None:
            self.resource.call_soon(self.resource.current.stop)

    @property
    def unlearned(self) -> int:
        """The number of turns from which memories have not been made yet."""
        return self.resource.current.unlearned if self.resource.current else 0

    def learned(self) -> list[Learned]:
        """Return, for each turn from which memories have been made since the last call, the ids of
        the new memories, or the error that prevented them."""
        return self.resource.current.learned() if self.resource.current else []

    def finish(self) -> None:
        """Wait until memories have been made from all turns."""
        if self.resource.current is not None:
            self.resource.wait(AgentChat.finish)

    def __exit__(self, *_raised: object) -> None:
        try:
            if _raised[0] is None:
                self.finish()
        finally:
            self.close()
