"""Chats of the OpenAI protocol: requests, answers whole and in chunks, embeddings, lists of models.

Each body is written by one function and read by one, for our client, our server and the scripted
server alike. Bodies of other programs are read leniently: what cannot be read and is not needed is
None. A message of an answer is read once, by `read_answer`, into what the model said, what it
thought and which tools it called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticSerializationError, to_json

from textevolve.json_texts import as_array, is_array, is_object, parse_text, write_text
from textevolve.protocol.contents import (
    FILTERED,
    LENGTH,
    READABLE,
    REFUSAL,
    KnownCount,
    KnownText,
    Message,
    ReportedTimings,
    ReportedUsage,
    TokenLogprobs,
    ToolCall,
    align_tokens,
    answer_ending,
    read_loosely,
    split_reasoning,
)

JsonObject: TypeAlias = dict[str, Any]

CHATS = "/chat/completions"
"""The path of chats, after the base URL."""
STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""The additional fields of a body for a streamed answer."""
DONE = b"[DONE]"
"""The data of the last event of a stream."""


# Requests


def write_chat_message(message: Message) -> JsonObject:
    """Return the message in the chat format, with images before the text."""
    body: JsonObject = {"role": message.role, "content": message.text}
    if message.images:
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in message.images]
        body["content"] = [*pictures, {"type": "text", "text": message.text}]
    if message.tool_calls:
        body["content"] = body["content"] or None
        body["tool_calls"] = write_tool_calls(message.tool_calls)
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id

    return body


def read_text_and_images(content: object) -> tuple[str, tuple[str, ...]]:
    """Return the text of a message's content, and the URLs of its images. A content that is neither
    a text nor a list of parts is returned as Python writes it."""
    if not is_array(content):
        return str(content), ()
    text = "".join(str(part.get("text", "")) for part in content)
    images = [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]

    return text, tuple(images)


def write_tool_calls(calls: Iterable[ToolCall]) -> list[JsonObject]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def write_tool_choice(choice: str | None) -> Any:
    """Return a mode of calling functions unchanged; a function's name in the protocol's form."""
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def write_schema_format(schema: str | None) -> JsonObject | None:
    """Return the response format that asks for an answer by a JSON schema."""
    if schema is None:
        return None
    answer_format = {"name": "answer", "schema": parse_cached(schema), "strict": True}
    return {"type": "json_schema", "json_schema": answer_format}


@lru_cache(maxsize=320)
def parse_cached(text: str) -> Any:
    """Parse a schema or functions from JSON."""
    return json.loads(text)


def encode(body: Mapping[str, Any]) -> bytes:
    """Serialize a body as JSON; lone surrogates, which UTF-8 cannot express, are escaped."""
    try:
        return to_json(body)
    except PydanticSerializationError:
        return json.dumps(body).encode("ascii")


def _as_text(value: object) -> str:
    """Convert arguments to text, since some endpoints send an object instead."""
    return "" if value is None else write_text(value)


_Written = Annotated[str, BeforeValidator(_as_text)]


class SentFunction(BaseModel):
    name: _Written = ""
    arguments: _Written = ""


class SentToolCall(BaseModel):
    """A tool call, or the part of one in a chunk of a stream. `index`: the position of the call
    among the answer's calls; None if the endpoint does not name it."""

    index: KnownCount = None
    id: _Written = ""
    function: SentFunction = SentFunction()


class ContentPart(BaseModel):
    type: str
    text: str | None = None


class ClientMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[SentToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class SchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @property
    def schema_text(self) -> str | None:
        """The JSON schema that the answer must follow, as text; None if the answer is text."""
        if self.type == "text":
            return None
        schema = self.json_schema and self.json_schema.schema_
        return json.dumps(schema or {"type": "object"})


class NamedFunction(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class ClientTool(BaseModel):
    """A function that the model may call; fields that are unknown here are kept unchanged."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]
    function: NamedFunction


class NamedChoice(BaseModel):
    function: NamedFunction


class ChatBody(BaseModel):
    """The body of a request for a chat completion, with the fields that agents and judges use."""

    messages: Annotated[list[ClientMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    tools: list[ClientTool] | None = None
    tool_choice: str | NamedChoice | None = None

    @property
    def called_tool(self) -> str | None:
        """The mode of calling functions, or the name of the function to call."""
        choice = self.tool_choice
        return choice.function.name if isinstance(choice, NamedChoice) else choice


# Answers


def _readable(value: object, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate log-probabilities. If they are invalid, return `UNREADABLE`, to distinguish them
    from missing ones (None)."""
    try:
        return validate(value)
    except ValidationError:
        return UNREADABLE


def _first(value: object) -> object:
    """Keep only the first choice, since others are not used and may be invalid."""
    return value[:1] if is_array(value) else value or []


def _reason_of(value: object) -> object:
    """Return the type of a finish reason that is an object."""
    return value.get("type") if is_object(value) else value


class _Thought(BaseModel):
    text: KnownText = None


class _Part(BaseModel):
    text: KnownText = None
    thinking: Annotated[list[_Thought] | None, READABLE] = None


class _Message(BaseModel):
    """The message of an answer. Endpoints put the reasoning into `reasoning_content`, into
    `reasoning`, or into parts of the content."""

    content: str | list[_Part] | None = None
    refusal: KnownText = None
    reasoning_content: KnownText = None
    reasoning: KnownText = None
    tool_calls: Annotated[list[SentToolCall] | None, READABLE] = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    @property
    def thoughts(self) -> str:
        if thoughts := self.reasoning_content or self.reasoning:
            return thoughts
        parts = self.content if isinstance(self.content, list) else ()
        return "".join(thought.text or "" for part in parts for thought in part.thinking or ())


class _Alternative(BaseModel):
    token: str
    logprob: Annotated[
        Annotated[float, Field(strict=True, allow_inf_nan=False)] | None, READABLE
    ] = None


class _Token(_Alternative):
    bytes: Annotated[list[Annotated[int, Field(strict=True, ge=0, le=255)]] | None, READABLE] = None
    top_logprobs: list[_Alternative] | None = None

    def read(self) -> TokenLogprobs:
        top: list[tuple[str, float]] = []
        for alternative in self.top_logprobs or ():
            if alternative.logprob is not None:
                top.append((alternative.token, alternative.logprob))

        logprob = -9999.0 if self.logprob is None else self.logprob
        return TokenLogprobs(self.token, logprob, tuple(top))


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


UNREADABLE = _Logprobs()


class _Ended(BaseModel):
    """How an answer ended. `finish_reason`: some servers send an object, whose type is the reason.
    `error`: some gateways report here that the generation failed."""

    finish_reason: Annotated[KnownText, BeforeValidator(_reason_of)] = None
    error: Any = None
    logprobs: Annotated[_Logprobs, WrapValidator(_readable)] | None = None

    @property
    def failure(self) -> object:
        """Return the error that ended the generation; None if it has not failed."""
        reason = self.finish_reason or ""
        if not self.error and answer_ending(reason) != "failed":
            return None
        return self.error or f"the generation broke off (finish reason {reason})"


class _Choice(_Ended):
    message: _Message


class _Reported(BaseModel):
    """The fields that completions and their chunks share. `error`: some endpoints report errors
    here with the status 200."""

    model: KnownText = None
    usage: Annotated[ReportedUsage | None, READABLE] = None
    timings: Annotated[ReportedTimings | None, READABLE] = None
    error: Any = None


class Completion(_Reported):
    """A chat completion with the fields that are read here."""

    choices: Annotated[list[_Choice], BeforeValidator(_first)] = []

    @property
    def failure(self) -> object:
        """Return the error of the endpoint, or that of the only choice; None if there is none."""
        return self.error or (self.choices[0].failure if self.choices else None)

    @property
    def has_unreadable_logprobs(self) -> bool:
        return self.choices[0].logprobs is UNREADABLE

    @property
    def token_bytes(self) -> Iterator[bytes]:
        """The bytes of each token of the answer; none without log-probabilities."""
        for token in _tokens_of(self.choices[0]):
            yield token.token.encode() if token.bytes is None else bytes(token.bytes)


class _ChunkChoice(_Ended):
    """The part of an answer in a chunk of a stream; some servers name the field `message` and not
    `delta`, and others end with the whole `message` after the deltas."""

    delta: _Message | None = None
    message: _Message | None = None


def _first_choices(value: object) -> object:
    """Keep only the chunks of the first answer, since chunks of several answers may be mixed."""
    choices: list[Any] = as_array(value)
    return [choice for choice in choices if not isinstance(choice, dict) or not choice.get("index")]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class CompletionChunk(_Reported):
    """A chunk of a streamed completion. The last ones may have the usage and no choice."""

    choices: Annotated[list[_ChunkChoice], BeforeValidator(_first_choices)] = []

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def refusal(self) -> str:
        return "".join(delta.refusal or "" for delta in self.deltas)

    @property
    def thoughts(self) -> str:
        return "".join(delta.thoughts for delta in self.deltas)

    @property
    def tool_calls(self) -> list[SentToolCall]:
        """The parts of tool calls, to be joined by `join_tool_calls`."""
        return [call for delta in self.deltas for call in delta.tool_calls or ()]

    @property
    def finish_reason(self) -> str | None:
        return next((choice.finish_reason for choice in self.choices if choice.finish_reason), None)

    @property
    def deltas(self) -> Iterator[_Message]:
        parts = (choice.delta or choice.message for choice in self.choices)
        return (part for part in parts if part)

    def drop_repeats(self, earlier: Sequence[CompletionChunk]) -> None:
        """Leave out what the deltas of the earlier chunks have said, if this chunk is the whole
        message after them. A stream whose parts are all named `message` has no deltas."""
        for choice in self.choices:
            whole_message = choice.message
            if (
                whole_message is None
                or choice.delta
                or not any(chunk.has_delta for chunk in earlier)
            ):
                continue
            text = "".join(chunk.text for chunk in earlier)
            thoughts = "".join(chunk.thoughts for chunk in earlier)
            has_calls = any(chunk.tool_calls for chunk in earlier)
            has_refusal = any(chunk.refusal for chunk in earlier)
            choice.delta = _Message(
                content=_rest_of(whole_message.text, text),
                reasoning=_rest_of(whole_message.thoughts, thoughts) or None,
                refusal=None if has_refusal else whole_message.refusal,
                tool_calls=None if has_calls else whole_message.tool_calls,
            )
            if any(part.logprobs for chunk in earlier for part in chunk.choices):
                choice.logprobs = None

    @property
    def has_delta(self) -> bool:
        return any(choice.delta for choice in self.choices)


def _rest_of(whole: str, beginning: str) -> str:
    """Return what a whole text has after its beginning; servers may trim the whole one."""
    return "" if whole.strip() == beginning.strip() else whole.removeprefix(beginning)


def join_chunks(chunks: Sequence[CompletionChunk], clean: Callable[[str], str]) -> Completion:
    """Join the chunks of a stream into a completion. `clean`: removes keys from a text; it is
    applied to the whole answer, reasoning and refusal, and not to tool calls. The first chunk with
    an error makes the completion that error, with the usage so far."""
    choices = [choice for chunk in chunks for choice in chunk.choices]
    errors: list[object] = [chunk.error for chunk in chunks]
    errors += [choice.failure for choice in choices]

    # Usage may come in several chunks, as a sum so far, so the last one counts.
    usage = None
    timings = None
    model = None
    finish_reason = None
    for chunk in chunks:
        usage = chunk.usage or usage
        timings = chunk.timings or timings
        model = model or chunk.model or None
        finish_reason = finish_reason or chunk.finish_reason or None

    for error in filter(None, errors):
        return Completion(error=error, usage=usage)

    # A key may be split between chunks, so texts are cleaned when they are whole.
    message = _Message(
        content=clean("".join(chunk.text for chunk in chunks)),
        refusal=clean("".join(chunk.refusal for chunk in chunks)) or None,
        reasoning=clean("".join(chunk.thoughts for chunk in chunks)) or None,
        tool_calls=join_tool_calls(call for chunk in chunks for call in chunk.tool_calls) or None,
    )
    choice = _Choice(
        message=message,
        finish_reason=finish_reason,
        logprobs=_join_logprobs([choice.logprobs for choice in choices if choice.logprobs]),
    )

    return Completion(
        model=model,
        choices=[choice] if choices else [],
        usage=usage,
        timings=timings,
    )


def _join_logprobs(parts: Sequence[_Logprobs]) -> _Logprobs | None:
    if not parts:
        return None
    # Gaps would assign the probabilities to other tokens.
    if any(part is UNREADABLE for part in parts):
        return UNREADABLE
    return _Logprobs(content=[token for part in parts for token in part.content or ()])


def join_tool_calls(parts: Iterable[SentToolCall]) -> list[SentToolCall]:
    """Join the parts of tool calls in a stream into whole calls, sorted by index."""
    calls: list[SentToolCall] = []

    for part in parts:
        place = find_call(calls, part)
        if place is None:
            calls.append(part.model_copy(deep=True))
        else:
            call = calls[place]
            call.id = call.id or part.id
            call.function.name = call.function.name or part.function.name
            call.function.arguments += part.function.arguments

    for call in calls:
        call.function.arguments = drop_repeat(call.function.arguments)

    return sorted(calls, key=lambda call: call.index or 0)


def find_call(calls: Sequence[SentToolCall], part: SentToolCall) -> int | None:
    """Return the place of the call to which a part of a stream belongs, by index; None if the part
    begins another one. Some endpoints send no indexes or always the same one; their calls are
    distinguished by the id, which only the first part of a call has, and without ids by the name
    of a function, after which the arguments of another call are whole."""
    places = [n for n, call in enumerate(calls) if part.index in (None, call.index)]
    if not places:
        return None
    call = calls[places[-1]]
    if part.id and call.id:
        begins = part.id != call.id
    elif not part.function.name or not call.function.name:
        begins = False
    elif part.index is None and part.function.name != call.function.name:
        begins = True
    else:
        # Some endpoints repeat the name with each part of the arguments, also with an empty one.
        begins = part.function.arguments != "" and is_object(parse_text(call.function.arguments))

    return None if begins else places[-1]


def drop_repeat(arguments: str) -> str:
    """Return the joined arguments of a streamed call without an object that they say twice: some
    endpoints send them whole after their parts, or an empty object before them."""
    try:
        first, end = json.JSONDecoder().raw_decode(arguments)
    except (ValueError, RecursionError):
        return arguments

    again = arguments[end:].strip()
    parsed = parse_text(again)

    return again if is_object(parsed) and first in ({}, parsed) else arguments


def read_calls(sent: Iterable[SentToolCall]) -> tuple[ToolCall, ...]:
    """Convert tool calls; a call without an id is named by its position."""
    return tuple(
        ToolCall(call.id or f"call_{place}", call.function.name, call.function.arguments)
        for place, call in enumerate(sent)
    )


def read_completion(raw: bytes) -> Completion:
    """Parse an answer.

    Raises ValueError if the bytes are no chat completion.
    """
    return read_loosely(Completion.model_validate_json, raw)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The answer of a model in a chat.

    Attributes:
        text: The answer without reasoning.
        finish_reason: Why the answer ended; "refusal" if the model declined to give one.
        reasoning: What it thought before, in a field of its own or between tags in the text.
        tool_calls: The tools that it called.
        logprobs: The tokens of `text`, if the answer has log-probabilities.
        written: All that the model wrote, with tags, to estimate its tokens.
    """

    text: str
    finish_reason: str = "stop"
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    written: str = ""


_COMMON_REASONS = {"cut": LENGTH, "filtered": FILTERED}
"""The finish reason that stands for all others with the same meaning."""


def read_reply(completion: Completion) -> ChatReply:
    """Read the answer in a completion that has a choice. An answer that the model declined to give
    is an empty text with the finish reason "refusal"."""
    choice = completion.choices[0]
    message = choice.message
    content = message.text
    thoughts = message.thoughts
    calls = read_calls(message.tool_calls or ())
    finish_reason = _COMMON_REASONS.get(
        answer_ending(choice.finish_reason or ""), choice.finish_reason or "stop"
    )
    if message.refusal and not content:
        finish_reason = REFUSAL

    in_text, text = split_reasoning(content, finish_reason)
    logprobs = tuple(token.read() for token in _tokens_of(choice))
    if logprobs:
        # Tokens that cannot be aligned are kept: those of half characters do not join to the text.
        logprobs = align_tokens(logprobs, text) or logprobs

    return ChatReply(
        text=text,
        finish_reason=finish_reason,
        reasoning=thoughts or in_text,
        tool_calls=calls,
        logprobs=logprobs,
        written=content + thoughts + "".join(call.arguments for call in calls),
    )


def _tokens_of(choice: _Choice) -> Sequence[_Token]:
    return (choice.logprobs and choice.logprobs.content) or ()


# Answers as they are written: whole, or in the chunks of a stream.


def write_head(id: str, model: str, created: int = 0) -> JsonObject:
    """Return the fields that a completion and all its chunks share. `created`: Unix time."""
    return {"id": f"chatcmpl-{id}", "created": created, "model": model}


def write_reply(
    text: str, calls: Sequence[ToolCall] = (), refusal: str | None = None
) -> JsonObject:
    """Return the message of an answer; one with a refusal has no text."""
    message: JsonObject = {
        "role": "assistant",
        "content": text if refusal is None else None,
        "refusal": refusal,
        "annotations": [],
    }
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": write_tool_calls(calls)}

    return message


def write_completion(
    head: JsonObject,
    message: JsonObject,
    finish_reason: str,
    logprobs: JsonObject | None = None,
    **more: Any,
) -> JsonObject:
    """Return a whole completion. `more`: further fields, such as its usage."""
    choice = _write_choice("message", message, finish_reason, logprobs)
    return {"object": "chat.completion", **head, "choices": [choice], **more}


def write_chunk(
    head: JsonObject,
    delta: JsonObject,
    finish_reason: str | None = None,
    logprobs: JsonObject | None = None,
    **more: Any,
) -> JsonObject:
    """Return a chunk of a stream. `delta`: the part of the message that it adds."""
    choice = _write_choice("delta", delta, finish_reason, logprobs)
    return {"object": "chat.completion.chunk", **head, "choices": [choice], **more}


def _write_choice(
    kind: str, content: JsonObject, finish_reason: str | None, logprobs: JsonObject | None
) -> JsonObject:
    return {"index": 0, kind: content, "logprobs": logprobs, "finish_reason": finish_reason}


def write_usage_chunk(head: JsonObject, usage: Mapping[str, Any]) -> JsonObject:
    """Return the last chunk of a stream, which has the usage and no choice."""
    return {"object": "chat.completion.chunk", **head, "choices": [], "usage": usage}


def write_event(data: bytes, name: str = "") -> bytes:
    """Return a server-sent event. `data`: one line. `name`: the type of the event; empty for
    none."""
    kind = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (kind, data)


def split_message(
    message: Mapping[str, Any], words: Iterable[str], size: int
) -> Iterator[JsonObject]:
    """Yield the parts of a message for the chunks of a stream: role, reasoning, refusal, text, tool
    calls. `words`: the pieces of the text. Reasoning and arguments are split into pieces of `size`
    characters."""
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "reasoning"):
        for piece in _split(message.get(name) or "", size):
            yield {name: piece}

    if message.get("refusal"):
        yield {"refusal": message["refusal"]}
    for word in words:
        yield {"content": word}

    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        name = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [call | {"index": index, "function": name}]}
        for piece in _split(function["arguments"], size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _split(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


# Embeddings, and lists of models


def write_embeddings(
    model: str, vectors: Sequence[Sequence[float] | str], tokens: int
) -> JsonObject:
    """Return the body of embeddings. `vectors`: numbers, or base64 of them. `tokens`: those of the
    texts."""
    return {
        "object": "list",
        "model": model,
        "data": [
            {"object": "embedding", "index": n, "embedding": vector}
            for n, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


class _Vector(BaseModel):
    embedding: list[float]
    index: int = 0


class Embeddings(BaseModel):
    data: list[_Vector]
    usage: Annotated[ReportedUsage | None, READABLE] = None


class _ModelName(BaseModel):
    id: str = Field(validation_alias=AliasChoices("id", "name"))


class ModelList(BaseModel):
    """An endpoint's list of models. `models`: the field that endpoints which only decide use
    instead of `data`."""

    data: list[_ModelName] | None = None
    models: list[_ModelName] | None = None
