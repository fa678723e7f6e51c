"""What a model is asked in a chat: who it is, what it remembers, what was said, the last message.

What is recalled for a message stands right before it and is gone with the next one, so that all
before it stays the same from turn to turn, and servers have it in their cache.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from textevolve.agents.session import HistorySummary, SessionMessage
from textevolve.llm.fence import draw_nonce, fence, quote, sanitize
from textevolve.llm.model import Message, Role
from textevolve.llm.template import Template, load_template
from textevolve.llm.token_count import count_tokens
from textevolve.memory.recall import Memory

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
