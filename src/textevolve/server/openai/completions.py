"""Chat completions on the wire, as our own answers are written: whole, or chunk by chunk."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from textevolve.evaluation import Usage
from textevolve.llm.model import ToolCall
from textevolve.llm.wire import as_sent

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """What is known of an answer at its end. `usage`: None where that is unknown."""

    finish_reason: str = "stop"
    usage: Usage | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    tool_calls: tuple[ToolCall, ...] = ()


NoteTokens: TypeAlias = Callable[[int], None]
"""Is told how many tokens were spent for a caller."""
AnswerPieces: TypeAlias = AsyncGenerator[str | AnswerEnd]
"""The pieces of an answer's text, then its end."""


class Answering(Protocol):
    """Who answers one request. Only one of the two is asked for, once."""

    async def whole(self) -> JsonObject:
        """The chat completion."""
        ...

    def chunks(self) -> AsyncGenerator[JsonObject]:
        """The same as a stream of `chat.completion.chunk`, the usage in the last one."""
        ...


class OwnAnswer:
    """An answer of an agent or a judge."""

    def __init__(self, model: str, pieces: AnswerPieces) -> None:
        self._pieces = pieces
        self._head: JsonObject = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self) -> JsonObject:
        text, end = "", AnswerEnd()
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if isinstance(piece, AnswerEnd):
                    end = piece
                else:
                    text += piece
        message: JsonObject = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": [],
        }
        if end.tool_calls:
            message |= {"content": text or None, "tool_calls": as_sent(end.tool_calls)}
        return {
            "object": "chat.completion",
            **self._head,
            "choices": [_choice("message", message, end.finish_reason)],
            **({} if end.usage is None else {"usage": _write_usage(end.usage)}),
            **({"metadata": dict(end.metadata)} if end.metadata else {}),
        }

    async def chunks(self) -> AsyncGenerator[JsonObject]:
        head = {"object": "chat.completion.chunk", **self._head}
        opening, end = {"role": "assistant", "content": ""}, AnswerEnd()
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if isinstance(piece, AnswerEnd):
                    end = piece
                    continue
                delta, opening = {**opening, "content": piece}, {}
                yield {**head, "choices": [_choice("delta", delta, None)]}
        for index, call in enumerate(as_sent(end.tool_calls)):
            delta, opening = {**opening, "tool_calls": [{"index": index, **call}]}, {}
            yield {**head, "choices": [_choice("delta", delta, None)]}
        told = {"metadata": dict(end.metadata)} if end.metadata else {}
        yield {**head, "choices": [_choice("delta", opening, end.finish_reason)], **told}
        if end.usage is not None:
            yield {**head, "choices": [], "usage": _write_usage(end.usage)}


def _choice(kind: str, said: JsonObject, finish_reason: str | None) -> JsonObject:
    return {"index": 0, kind: said, "logprobs": None, "finish_reason": finish_reason}


def _write_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
