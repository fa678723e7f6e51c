"""The stored form of a chat: a session with its messages in order.

A message is durable before anyone acts on it. `store` implements the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import ConfigDict

from textevolve.spec import Frozen

Speaker: TypeAlias = Literal["user", "assistant"]
Learning: TypeAlias = Literal["no", "pending", "done", "failed"]
"""Whether memories are to be made of a turn, and whether they were; `failed`: the model's answers
could not be used."""

TITLE = 60
"""Characters of the first message that name a session."""


class MessageDetails(Frozen):
    """Metadata of a message.

    Answers have: `memories`: ids of the recalled memories; `interrupted`: the answer was stopped,
    and the text is the part written so far; `finish_reason` and `model`; `learning`.
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
    """A message of a session. `position` counts from 1; `created` is Unix time."""

    position: int
    role: Speaker
    text: str
    created: float
    details: MessageDetails = NO_DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSession:
    """A chat in a list. `agent`: NAMESPACE/NAME; `user`: empty if unknown; `title`: the
    beginning of its first message. Times are Unix times."""

    id: str
    agent: str
    user: str
    title: str
    created: float
    updated: float
    messages: int


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A message and its answer, from which memories are created. `position`: of the answer."""

    session: str
    position: int
    user: str
    message: str
    answer: str
    created: float


class SessionKeeper(Protocol):
    """Stores the sessions of one agent with one user."""

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
    """Return the messages in the form of the chat API, which `memories create` and other tools
    read, with the fields `created` and `interrupted` in addition."""
    return [
        {
            "role": message.role,
            "content": message.text,
            "created": message.created,
            **({"interrupted": True} if message.details.interrupted else {}),
        }
        for message in messages
    ]
