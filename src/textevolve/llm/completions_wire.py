"""/v1/completions as a wire: the conversation as one text that the model continues.

For servers without chats, or whose own template is not to be used. What comes is made into the
shapes of a chat completion (`wire`). How a conversation becomes a text: `prompt_formats`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import from_json

from textevolve.errors import CapabilityError, InputError, RejectedError
from textevolve.llm.chat_messages import chat_message
from textevolve.llm.lenient import read_loosely
from textevolve.llm.model import Request
from textevolve.llm.wire import Completion, CompletionChunk, json_schema_format, read_schema

Messages = Sequence[Mapping[str, Any]]
"""Messages of the chat protocol."""
_LOG = logging.getLogger("textevolve")


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """`render`: the text of messages whose markers have been broken up, ready for the next answer,
    without the token that begins a text, which servers add. `stop`: where an answer ends.
    `markers`: what no message may hold."""

    name: str
    render: Callable[[Messages], str]
    stop: tuple[str, ...]
    markers: tuple[str, ...]

    def count_markers(self, messages: Messages) -> int:
        """How many markers the texts of the messages hold, which rendering breaks up."""
        if not self.markers:
            return 0
        ordered = sorted(self.markers, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered)))
        return sum(len(pattern.findall(str(message.get("content") or ""))) for message in messages)


@dataclass(slots=True)
class CompletionsWriter:
    """Writes bodies in one format. `broken`: markers of the format that messages held so far."""

    format: PromptFormat
    broken: int = field(default=0, init=False)

    def __call__(self, model: str, request: Request, _max_tokens_field: str = "") -> dict[str, Any]:
        """The request as the wire has it; only what is set is sent. `n_probs` and `json_schema` are
        llama.cpp's names of what others call `logprobs` and `response_format`.

        Raises:
            CapabilityError: tools are asked for.
            RejectedError: the format cannot express the conversation.
        """
        if request.tools is not None:
            raise CapabilityError(
                f"{model}: completions have no tools; ask it by the wire `chat`, or leave them out"
            )
        body: dict[str, Any] = {"model": model, "prompt": self._render(model, request)}
        if self.format.stop:
            body["stop"] = list(self.format.stop)
        if request.schema is not None:
            body["response_format"] = json_schema_format(request.schema)
            body["json_schema"] = read_schema(request.schema)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.seed is not None:
            body["seed"] = request.seed
        if request.top_logprobs:
            body["logprobs"] = body["n_probs"] = request.top_logprobs
        return body

    def _render(self, model: str, request: Request) -> str:
        if any(message.images for message in request.messages):
            raise RejectedError(f"{model}: completions have no images; ask it by the wire `chat`")
        messages = [chat_message(message) for message in request.messages]
        found = self.format.count_markers(messages)
        if found and not self.broken:
            _LOG.warning(
                "%s: messages hold markers of the format %s; they are broken up, so that no text"
                " passes for another speaker",
                *(model, self.format.name),
            )
        self.broken += found
        try:
            return self.format.render(messages)
        except InputError as error:
            raise RejectedError(f"{model}: {error} (format {self.format.name})") from error


def read_text_completion(raw: bytes) -> Completion:
    """Raises ValueError where the body is not JSON or no text completion."""
    return read_loosely(lambda body: Completion.model_validate(_as_chat(body, "message")), raw)


def read_text_chunk(data: bytes) -> CompletionChunk | None:
    """The chunk in one event of a stream; None where the data is none."""
    try:
        return read_loosely(
            lambda body: CompletionChunk.model_validate(_as_chat(body, "delta")), data
        )
    except (ValueError, RecursionError):
        return None


def _as_chat(raw: bytes, place: str) -> dict[str, Any]:
    """What was said in the form of a chat completion, or of a chunk of one; its text stands in
    `place`."""
    said = from_json(raw)
    if not isinstance(said, dict):
        raise ValueError("no object")
    found = cast("dict[str, Any]", said)
    return found | {"choices": [_choice(one, place) for one in found.get("choices") or ()]}


def _choice(said: Mapping[str, Any], place: str) -> dict[str, Any]:
    logprobs: Any = said.get("logprobs")
    if isinstance(logprobs, dict) and "tokens" in logprobs:
        logprobs = _in_rows(cast("dict[str, Any]", logprobs))
    return {
        "index": said.get("index"),
        "finish_reason": said.get("finish_reason"),
        "logprobs": logprobs,
        place: {"content": said["text"]},
    }


def _in_rows(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Log-probabilities as chats have them: one entry a token, not one list a property. Columns
    that do not fit together stay as they are, which cannot be read."""
    tokens: list[Any] = columns["tokens"] or []
    own: list[Any] = columns.get("token_logprobs") or []
    tops: list[Any] = columns.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(own) == len(tops):
        return {"content": columns}
    rows = zip(tokens, own, map(_alternatives, tops), strict=True)
    return {"content": [{"token": t, "logprob": p, "top_logprobs": top} for t, p, top in rows]}


def _alternatives(top: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"token": token, "logprob": logprob} for token, logprob in (top or {}).items()]
