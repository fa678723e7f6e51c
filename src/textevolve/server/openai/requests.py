"""Read requests to agents and judges from the body of a chat completion.

Of a request to another model only the model's name is read; its body is forwarded unchanged.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from textevolve.evaluation import Usage, empty_default
from textevolve.json_texts import as_array, as_object, is_object
from textevolve.protocol.chat import (
    ChatBody,
    ClientMessage,
    JsonObject,
    StreamOptions,
    write_chunk,
    write_completion,
    write_head,
    write_reply,
    write_tool_calls,
    write_usage_chunk,
)
from textevolve.protocol.contents import ToolCall, write_chat_usage
from textevolve.server.bodies import parse_aside, validate_items
from textevolve.server.errors import ApiError, bad_request

Shape = TypeVar("Shape", bound=BaseModel)

CANNOT = ("functions", "logprobs", "top_logprobs", "audio", "web_search_options")
"""The fields of a request that are refused, since they would have to change the answer. The answer
names other fields that have no effect."""
HEEDED = ("model", *ChatBody.model_fields)
"""The fields that an agent heeds."""
JUDGES_HEED = (
    *("model", "messages", "stream", "stream_options", "n", "metadata", "user", "stop"),
    *("response_format", "tools"),
)
LEFT_OUT = "left_out"
"""The name in an answer's metadata of what its request had and the answer does not heed."""
JUDGES_CANNOT = (*CANNOT, "tools")
JUDGE_TOOLS = (
    "ask for its answer by a JSON schema in response_format (LangChain: method='json_schema',"
    " Pydantic AI: NativeOutput)"
)


async def read_json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request, after a check that it names a model.

    Raises:
        ApiError: the body is not such an object.
    """
    raw = await request.body()
    try:
        body: object = await parse_aside(partial(from_json, raw, allow_inf_nan=False), len(raw))
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None

    if not is_object(body):
        raise bad_request("the body must be a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"].strip():
        raise bad_request("the field model is missing or empty: name a model", param="model")
    if not isinstance(body.get("stream") or False, bool):
        raise bad_request("stream must be true or false", param="stream")

    return body


def read_shape(shape: type[Shape], body: Mapping[str, Any]) -> Shape:
    """Validate a body against a pydantic model, and return it.

    Raises:
        ApiError: a field is invalid; the message names it.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise bad_request(f"{where}: {fault['msg']}", param=where) from None


def read_own_request(body: Mapping[str, Any], cannot: Sequence[str] = CANNOT) -> ChatBody:
    """Read a request to an agent or a judge.

    Raises:
        ApiError: the body is invalid, or uses a feature that agents and judges lack.
    """
    for field in cannot:
        if body.get(field) not in (None, False, [], 0):
            message = f"'{body['model']}' is an agent or a judge, which take no '{field}'; "
            message += JUDGE_TOOLS if field == "tools" else "leave it out"
            raise ApiError(400, "unsupported_parameter", message, param=field)

    messages = validate_items(ClientMessage, body.get("messages"))
    request = read_shape(ChatBody, {**body, "messages": messages} if messages else body)
    if request.n not in (None, 1):
        raise bad_request("n: must be 1, since agents and judges give one answer each", param="n")

    return request


def describe_unheeded(body: Mapping[str, Any], heeded: Collection[str]) -> list[str]:
    """Return the names of the fields of a request that have no effect, and the number of thoughts
    in its messages, which no agent or judge reads."""
    names = sorted(name for name, value in body.items() if value is not None and name not in heeded)
    thoughts = sum("reasoning_content" in as_object(m) for m in as_array(body.get("messages")))
    if thoughts:
        names.append(f"thoughts (in messages: {thoughts})")

    return names


def write_left_out(parts: Iterable[str]) -> dict[str, str]:
    """Return the metadata of an answer that names what its request had in vain."""
    text = ", ".join(parts)
    return {LEFT_OUT: text} if text else {}


def pair_texts(
    messages: Sequence[ClientMessage], *, tools: bool = False
) -> list[tuple[ClientMessage, str]]:
    """Return each message with its text. `tools`: messages may be the results of tools.

    Raises:
        ApiError: a message is not text, or comes from a tool.
    """
    return [
        (message, _text_of(message, f"messages.{place}", tools))
        for place, message in enumerate(messages)
    ]


def _text_of(message: ClientMessage, where: str, tools: bool) -> str:
    if message.role == "function" or (message.role == "tool" and not tools):
        raise bad_request(
            "agents read no result of a function, and judges none of a tool either: leave it out",
            param=f"{where}.role",
        )

    if message.role == "tool" and not message.tool_call_id:
        raise bad_request(
            "the result of a tool must have the id of its call",
            param=f"{where}.tool_call_id",
        )

    if not isinstance(message.content, list):
        return _name_speaker(message, message.content or message.refusal or "")
    for part in message.content:
        if part.text is None:
            raise bad_request(
                f"agents and judges read text, not '{part.type}'",
                param=f"{where}.content",
            )

    return _name_speaker(message, "\n".join(part.text or "" for part in message.content))


def _name_speaker(message: ClientMessage, text: str) -> str:
    """Put the speaker's name before a text, as several people may talk as users."""
    return f"{message.name}: {text}" if message.name and text and message.role == "user" else text


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of an agent's or judge's answer, which follows its pieces of text.

    Attributes:
        finish_reason: Why the answer ended, in OpenAI's words.
        usage: The used tokens; None if unknown.
        metadata: Facts for the client, such as the session's id.
        tool_calls: The tools that the client should call.
    """

    finish_reason: str = "stop"
    usage: Usage | None = None
    metadata: Mapping[str, str] = empty_default(dict)
    tool_calls: tuple[ToolCall, ...] = ()


NoteTokens: TypeAlias = Callable[[int], None]
"""A function that is called with the number of tokens that were used for a caller."""
AnswerPieces: TypeAlias = AsyncGenerator[str | AnswerEnd]
"""The pieces of an answer's text as they are written, and at last an `AnswerEnd`."""


async def cut_at_stop(pieces: AnswerPieces, stop: str | Sequence[str] | None) -> AnswerPieces:
    """End the text before the first stop sequence. Text that may be the beginning of one is held
    back until that is decided. The answer is still read to its end, since its session stores it
    whole."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    longest = max(map(len, stops), default=1)
    waiting = ""
    cut = False

    async with aclosing(pieces) as all_pieces:
        async for piece in all_pieces:
            if isinstance(piece, AnswerEnd):
                if waiting:
                    yield waiting
                yield piece
                continue

            waiting = "" if cut else waiting + piece
            places = [
                place
                for stop_text in stops
                if stop_text and (place := waiting.find(stop_text)) >= 0
            ]
            cut = cut or bool(places)
            ready = min(places) if places else max(0, len(waiting) - longest + 1)
            if ready:
                yield waiting[:ready]
            waiting = "" if cut else waiting[ready:]


class ServedAnswer:
    """An answer that this server writes itself, for an agent or a judge: as a whole chat completion
    (`complete`) or as a stream of chunks (`chunks`)."""

    def __init__(
        self, model: str, pieces: AnswerPieces, request: ChatBody, unheeded: Sequence[str] = ()
    ) -> None:
        """`unheeded`: what of the request has no effect; the answer's metadata say so."""
        self._unheeded = unheeded
        self._pieces = cut_at_stop(pieces, request.stop)
        self._reports_usage = (request.stream_options or StreamOptions()).include_usage
        self._head = write_head(secrets.token_hex(12), model, int(time.time()))

    async def complete(self) -> JsonObject:
        text = ""
        end = AnswerEnd()
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if isinstance(piece, AnswerEnd):
                    end = piece
                else:
                    text += piece

        return write_completion(
            self._head,
            write_reply(text, end.tool_calls),
            end.finish_reason,
            **({} if end.usage is None else {"usage": write_chat_usage(end.usage)}),
            **self._describe(end),
        )

    def _describe(self, end: AnswerEnd) -> JsonObject:
        """Return the field of the answer with its metadata, if there are any."""
        own_parts = filter(None, [end.metadata.get(LEFT_OUT)])
        metadata = {**end.metadata, **write_left_out([*self._unheeded, *own_parts])}
        return {"metadata": metadata} if metadata else {}

    async def chunks(self) -> AsyncGenerator[JsonObject]:
        opening = {"role": "assistant", "content": ""}
        end = AnswerEnd()
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if isinstance(piece, AnswerEnd):
                    end = piece
                    continue
                yield write_chunk(self._head, {**opening, "content": piece})
                opening = {}

        for index, call in enumerate(write_tool_calls(end.tool_calls)):
            yield write_chunk(self._head, {**opening, "tool_calls": [{"index": index, **call}]})
            opening = {}

        yield write_chunk(self._head, opening, end.finish_reason, **self._describe(end))
        if end.usage is not None and self._reports_usage:
            yield write_usage_chunk(self._head, write_chat_usage(end.usage))
