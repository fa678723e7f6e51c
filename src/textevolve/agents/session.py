"""The stored form of a chat: a session with its messages in order.

Each message is stored durably before it is used. The package `store` implements `SessionKeeper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import ConfigDict

from textevolve.spec import Frozen

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
        """Store a message of a session at its position.

        Raises:
            ConflictError: the session has a message at this position already, as another client
                has continued it.
        """
        ...


def title_of(text: str) -> str:
    line = " ".join(text.split())
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
