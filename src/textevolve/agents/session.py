"""What is kept of a chat: a session with its messages, in the order in which they were said.

A message is durable before anyone acts on it. Who keeps sessions is the business of `store`.
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
    """What is known of a message beside its text.

    Of answers: `memories`: the ids of what was recalled for it; `interrupted`: somebody stopped it,
    and the text is what had been written; `finish_reason` and `model`; `learning`.
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
    """`position` counts from 1 in its session; `created` is Unix time."""

    position: int
    role: Speaker
    text: str
    created: float
    details: MessageDetails = NO_DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSession:
    """A chat as it is listed. `agent`: NAMESPACE/NAME; `user`: empty where nobody said; `title`:
    the beginning of its first message. Times are Unix times."""

    id: str
    agent: str
    user: str
    title: str
    created: float
    updated: float
    messages: int


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A message and its answer, of which memories are to be made. `position`: of the answer."""

    session: str
    position: int
    user: str
    said: str
    answer: str
    created: float


class SessionKeeper(Protocol):
    """Keeps the sessions of one agent with one user."""

    async def begin(self, title: str) -> str:
        """A new session's id."""
        ...

    async def append(self, session: str, message: SessionMessage) -> None:
        """
        Raises:
            ConflictError: the session has a message at this position already: somebody else has
                gone on with it.
        """
        ...


def title_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"


def as_openai(messages: Sequence[SessionMessage]) -> list[dict[str, Any]]:
    """The messages as the chat API has them, which `memories create` and others read. What was
    interrupted, and when each was said, stands beside them."""
    return [
        {
            "role": one.role,
            "content": one.text,
            "created": one.created,
            **({"interrupted": True} if one.details.interrupted else {}),
        }
        for one in messages
    ]
