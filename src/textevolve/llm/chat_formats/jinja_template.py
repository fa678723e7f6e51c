"""A model's Jinja chat template, rendered as transformers renders it.

The source is code of a stranger: it runs in the sandbox of jinja, in a process of its own, under
limits of time, memory and size (`jinja_process`). Here: what a template is given. Not here: where
templates come from (`sources`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.jinja_process import TemplateLimits, render_apart
from textevolve.settings import today

DEFAULT, TOOL_USE = "default", "tool_use"
LIMITS = TemplateLimits()
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
        if not messages:
            raise InputError("a conversation without a message cannot be rendered")
        own = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        given = {
            **self.tokens,
            **{name: token for name, token in own.items() if token is not None},
            **values,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        talk = [_prepare(message) for message in messages]
        source = self._choose(chat_template, tools)
        if len(source) > self.limits.source:
            raise InputError(
                f"the chat template has {len(source):,} characters, and at most"
                f" {self.limits.source:,} are taken: it is no chat template, or one that does harm"
            )
        try:
            request = json.dumps([_now().isoformat(), source, given, talk])
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a conversation must be made of JSON values: {error}") from error
        return render_apart(request.encode(), self.limits)

    def _choose(self, name: str | None, tools: object) -> str:
        named = {DEFAULT: self.source} if isinstance(self.source, str) else self.source
        if name is None:
            name = TOOL_USE if tools is not None and TOOL_USE in named else DEFAULT
        if name not in named:
            raise InputError(
                f"there is no chat template '{name}' here, but: {', '.join(sorted(named))}"
            )
        return named[name]


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
