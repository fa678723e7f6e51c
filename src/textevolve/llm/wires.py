"""The wires on which a model is asked for text: `chat` (/v1/chat/completions), `responses`
(/v1/responses) and `completions` (/v1/completions, a text that is to be continued).

A wire writes the body of a request, and reads a whole answer or one event of a stream into the
shapes of a chat completion (`wire`), so that all that comes after is the same. What decides has
wires of its own, see `decision_wires`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.llm.completions_wire import (
    CompletionsWriter,
    read_text_chunk,
    read_text_completion,
)
from textevolve.llm.model import Request
from textevolve.llm.providers import Endpoint
from textevolve.llm.responses_wire import read_response, read_response_event, responses_body
from textevolve.llm.wire import Completion, CompletionChunk, chat_body, read_chunk, read_completion


@dataclass(frozen=True, slots=True)
class TextWire:
    """How an endpoint is asked for text. `path` follows its base URL; `answer`: what comes,
    in words.

    `write`: from the model's name, the request and the name of the field that bounds the answer to
    the body; only what is set is in it. `read` raises ValueError where the bytes are no answer of
    this wire; `read_event` gives None there. `streamed`: what a body has besides where its answer
    is to be streamed. `schema_fields`: those of a body that hold the JSON schema, left out together
    where the endpoint refuses one.
    """

    path: str
    answer: str
    write: Callable[[str, Request, str], dict[str, Any]]
    read: Callable[[bytes], Completion]
    read_event: Callable[[bytes], CompletionChunk | None]
    streamed: Mapping[str, Any]
    schema_fields: tuple[str, ...]


_STREAM_WITH_USAGE: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

CHAT = TextWire(
    path="/chat/completions",
    answer="a chat completion",
    write=chat_body,
    read=read_completion,
    read_event=read_chunk,
    streamed=_STREAM_WITH_USAGE,
    schema_fields=("response_format",),
)
RESPONSES = TextWire(
    path="/responses",
    answer="a response",
    write=responses_body,
    read=read_response,
    read_event=read_response_event,
    streamed={"stream": True},
    schema_fields=("text",),
)


def completions(chat_format: str) -> TextWire:
    """The wire of texts that are continued, with conversations in a format.

    Raises:
        SettingsError: there is no such format.
    """
    from textevolve.llm.prompt_formats import open_prompt_format

    return TextWire(
        path="/completions",
        answer="a text completion",
        write=CompletionsWriter(open_prompt_format(chat_format)),
        read=read_text_completion,
        read_event=read_text_chunk,
        streamed=_STREAM_WITH_USAGE,
        schema_fields=("response_format", "json_schema"),
    )


def text_wire(endpoint: Endpoint) -> TextWire:
    """The wire that an endpoint is asked on.

    Raises:
        SettingsError: there is no format of the name that its settings give.
    """
    if endpoint.wire == "completions":
        return completions(endpoint.chat_format or "")
    return RESPONSES if endpoint.wire == "responses" else CHAT


def effort_fields(endpoint: Endpoint) -> dict[str, Any]:
    """What every body has where the settings say how much the model is to think."""
    effort = endpoint.reasoning_effort
    if effort is None:
        return {}
    return (
        {"reasoning": {"effort": effort}}
        if endpoint.wire == "responses"
        else {"reasoning_effort": effort}
    )
