"""A model's Jinja chat template, rendered as transformers renders it.

The source is code of a stranger: it runs in the sandbox of jinja, in a process of its own, under
limits of time, memory and size (`jinja_process`). Here: what a template is given. Not here: where
templates come from (`sources`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.jinja_process import TemplateLimits, render_apart
from textevolve.settings import today

DEFAULT, TOOL_USE = "default", "tool_use"
LIMITS = TemplateLimits()
BATCH, MOST = 1 << 18, 100
"""Characters, and conversations, that are sent to be rendered at once."""
ChatMessages = Sequence[Mapping[str, Any]]
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names that a message's reasoning is passed under; the first is what templates read."""


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """`source`: one template, or several by their names, of which `tool_use` is taken where there
    are tools, and `default` otherwise. A token that is None is not defined in the template;
    `tokens` are further ones, such as `pad_token`."""

    source: str | Mapping[str, str]
    bos_token: str | None = ""
    eos_token: str | None = ""
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: TemplateLimits = LIMITS

    def render(
        self,
        messages: ChatMessages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
        **values: Any,
    ) -> str:
        """The text of a conversation, byte for byte that of `apply_chat_template` in transformers.

        `messages`, `tools` (JSON schemas), `documents` and `values` hold JSON values. Keys of a
        message whose value is None are left out. `chat_template` names one of several templates;
        the date that a template asks for is that of `TEXTEVOLVE_TODAY` where it is set.

        Raises:
            InputError: no messages, values that are not JSON, no template of that name, or a
                template that refuses the messages, fails or breaks a limit.
        """
        given = {
            **values,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        return self.render_many([messages], chat_template=chat_template, **given)[0]

    def render_many(
        self,
        conversations: Iterable[ChatMessages],
        *,
        chat_template: str | None = None,
        **values: Any,
    ) -> list[str]:
        """The texts of many conversations, as `render` makes them, with less time spent on sending
        them back and forth. One that cannot be rendered ends it with its error."""
        shared = {"tools": None, "documents": None, "add_generation_prompt": False, **values}
        source = self._choose(chat_template, shared["tools"])
        given = _encode({**self._special_tokens(), **shared})
        now = _now().isoformat()
        texts: list[str] = []
        for batch in _batches(map(_encode_conversation, conversations)):
            texts += render_apart(source, given, batch, now, self.limits)
        return texts

    def _special_tokens(self) -> dict[str, str]:
        own = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return {**self.tokens, **{name: token for name, token in own.items() if token is not None}}

    def _choose(self, name: str | None, tools: object) -> str:
        named = {DEFAULT: self.source} if isinstance(self.source, str) else self.source
        if name is None:
            name = TOOL_USE if tools is not None and TOOL_USE in named else DEFAULT
        if name not in named:
            raise InputError(
                f"there is no chat template '{name}' here, but: {', '.join(sorted(named))}"
            )
        return named[name]


def _encode_conversation(messages: ChatMessages) -> str:
    if not messages:
        raise InputError("a conversation without a message cannot be rendered")
    return _encode([_prepare(message) for message in messages])


def _encode(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a conversation must be made of JSON values: {error}") from error


def _batches(encoded: Iterable[str]) -> Iterator[list[str]]:
    """As many conversations as are sent at once."""
    batch: list[str] = []
    size = 0
    for one in encoded:
        batch.append(one)
        size += len(one)
        if size > BATCH or len(batch) == MOST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None; reasoning under each name that templates read it by."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    if reasoning is None:
        return kept
    return {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def _now() -> datetime:
    """This moment; the named day's first, where a day is named."""
    now, day = datetime.now(), date.fromisoformat(today())
    return now if now.date() == day else datetime.combine(day, time())
