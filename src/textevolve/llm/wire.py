"""The OpenAI protocol's bodies: a `Request` as it is sent, a `Response` as it is read.

What an endpoint sends is checked here and nowhere else. Not here: connections (`client`) and what a
refusal means (`refusals`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticSerializationError, to_json

from textevolve.llm.chat_messages import chat_message, chat_tools
from textevolve.llm.lenient import KNOWN, READABLE, KnownText, read_loosely
from textevolve.llm.model import Request, Response, TokenLogprobs
from textevolve.llm.reasoning import split_reasoning, tokens_of_end
from textevolve.llm.reported_usage import ReportedTimings, ReportedUsage, usage_of
from textevolve.llm.token_count import count_tokens
from textevolve.llm.tool_calls import SentToolCall, as_tool_calls, join_tool_calls
from textevolve.settings import Price

Shape = TypeVar("Shape")


def chat_body(model: str, request: Request, max_tokens_field: str) -> dict[str, Any]:
    """The request as the protocol has it; only what is set is sent."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [chat_message(message) for message in request.messages],
    }
    if request.schema is not None:
        body["response_format"] = json_schema_format(request.schema)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if request.seed is not None:
        body["seed"] = request.seed
    if request.top_logprobs:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs
    if request.tools is not None:
        body |= chat_tools(request)
    return body


def json_schema_format(schema: str) -> dict[str, Any]:
    named = {"name": "answer", "schema": read_schema(schema), "strict": True}
    return {"type": "json_schema", "json_schema": named}


@lru_cache(maxsize=256)
def read_schema(schema: str) -> Any:
    return json.loads(schema)


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; half a surrogate pair, which UTF-8 cannot express, is escaped."""
    try:
        return to_json(body)
    except PydanticSerializationError:
        return json.dumps(body).encode("ascii")


def _readable(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """Log-probabilities that are there but cannot be read are told from those left out."""
    try:
        return read(value)
    except ValidationError:
        return UNREADABLE


def _first(value: object) -> object:
    """Only the first choice is used, so what is wrong with others does not matter."""
    return cast("list[object]", value)[:1] if isinstance(value, list) else value or []


_Bytes = Annotated[list[Annotated[int, Field(ge=0, le=255)]] | None, KNOWN]
_Logprob = Annotated[Annotated[float, Field(allow_inf_nan=False)] | None, KNOWN]


class _Thought(BaseModel):
    text: KnownText = None


class _Part(BaseModel):
    text: KnownText = None
    thinking: Annotated[list[_Thought] | None, READABLE] = None


class _Message(BaseModel):
    """The thoughts stand in `reasoning_content`, `reasoning`, or in parts of the content."""

    content: str | list[_Part] | None = None
    refusal: KnownText = None
    reasoning_content: KnownText = None
    reasoning: KnownText = None
    tool_calls: Annotated[list[SentToolCall] | None, READABLE] = None


class _Alternative(BaseModel):
    token: str
    logprob: _Logprob = None


class _Token(_Alternative):
    bytes: _Bytes = None
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


UNREADABLE = _Logprobs()


class _Choice(BaseModel):
    message: _Message
    finish_reason: KnownText = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


class Completion(BaseModel):
    """A chat completion as far as it is read here. `error`: some endpoints send one with a 200."""

    model: KnownText = None
    choices: Annotated[list[_Choice], BeforeValidator(_first)] = []
    usage: Annotated[ReportedUsage | None, READABLE] = None
    timings: Annotated[ReportedTimings | None, READABLE] = None
    error: Any = None


class _ChunkChoice(BaseModel):
    """What a chunk of a stream adds to the answer; some servers call it `message`."""

    delta: Annotated[_Message | None, Field(validation_alias=AliasChoices("delta", "message"))] = (
        None
    )
    finish_reason: KnownText = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


def _own_choices(value: object) -> object:
    """Of several answers only the first is used; their chunks come mixed."""
    choices: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    return [one for one in choices if not isinstance(one, dict) or not one.get("index")]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class CompletionChunk(BaseModel):
    """A part of a streamed completion. The last ones may have the usage and no choice. `whole`: the
    answer that the stream was of, where an event has it, as on the wire of responses."""

    model: KnownText = None
    choices: Annotated[list[_ChunkChoice], BeforeValidator(_own_choices)] = []
    usage: Annotated[ReportedUsage | None, READABLE] = None
    timings: Annotated[ReportedTimings | None, READABLE] = None
    error: Any = None
    whole: Completion | None = None

    @property
    def text(self) -> str:
        return "".join(_text_of(one.delta) for one in self.choices if one.delta)


class _Vector(BaseModel):
    embedding: list[float]
    index: int = 0


class Embeddings(BaseModel):
    data: list[_Vector]
    usage: Annotated[ReportedUsage | None, READABLE] = None


class _ModelName(BaseModel):
    id: str = Field(validation_alias=AliasChoices("id", "name"))
    shutdown_date: Any = None


class ModelList(BaseModel):
    """`models`: as endpoints that only decide have it."""

    data: list[_ModelName] | None = None
    models: list[_ModelName] | None = None


def read_completion(body: bytes) -> Completion:
    """Raises ValueError where the body is not JSON or not a chat completion."""
    return read_loosely(Completion.model_validate_json, body)


def read_chunk(data: bytes) -> CompletionChunk | None:
    """The chunk in one event of a stream; None where the data is none."""
    try:
        return read_loosely(CompletionChunk.model_validate_json, data)
    except (ValueError, RecursionError):
        return None


def join_chunks(chunks: Sequence[CompletionChunk], clean: Callable[[str], str]) -> Completion:
    """The completion that a stream was of; `clean` sees its whole text. An error stands for all."""
    for chunk in chunks:
        if chunk.error:
            return Completion(error=chunk.error)
        if chunk.whole:
            return chunk.whole
    choices = [choice for chunk in chunks for choice in chunk.choices]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    timings = [chunk.timings for chunk in chunks if chunk.timings]
    deltas = [one.delta for one in choices if one.delta]
    text = clean("".join(chunk.text for chunk in chunks))
    refused = clean("".join(one.refusal or "" for one in deltas))
    thoughts = clean("".join(map(_thoughts_of, deltas)))
    calls = join_tool_calls(call for one in deltas for call in one.tool_calls or ())
    message = _Message(content=text, refusal=refused or None, reasoning=thoughts or None)
    message.tool_calls = calls or None
    choice = _Choice(
        message=message,
        finish_reason=next((one.finish_reason for one in choices if one.finish_reason), None),
        logprobs=_join_logprobs([one.logprobs for one in choices if one.logprobs]),
    )
    return Completion(
        model=next((chunk.model for chunk in chunks if chunk.model), None),
        choices=[choice] if choices else [],
        usage=usage[-1] if usage else None,
        timings=timings[-1] if timings else None,
    )


def _join_logprobs(parts: Sequence[_Logprobs]) -> _Logprobs | None:
    if not parts or any(part is UNREADABLE for part in parts):
        return UNREADABLE if parts else None
    return _Logprobs(content=[token for part in parts for token in part.content or ()])


def _text_of(message: _Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _thoughts_of(message: _Message) -> str:
    if thoughts := message.reasoning_content or message.reasoning:
        return thoughts
    parts = message.content if isinstance(message.content, list) else ()
    return "".join(one.text or "" for part in parts for one in part.thinking or ())


def as_response(
    completion: Completion, seconds: float, price: Price | None, prompt: int = 0
) -> Response:
    """What the rooms see of a completion that has a choice. `prompt`: about how many tokens the
    prompt has.

    An answer that the model declined to give is an empty text with the finish reason "refusal".
    """
    choice = completion.choices[0]
    message, finish_reason = choice.message, choice.finish_reason or "stop"
    content, thoughts = _text_of(message), _thoughts_of(message)
    if message.refusal and not content:
        finish_reason = "refusal"
    tokens = choice.logprobs.content if choice.logprobs and choice.logprobs.content else ()
    logprobs = tuple(_token(token) for token in tokens)
    in_text, text = split_reasoning(content, finish_reason)
    if in_text:
        logprobs = tokens_of_end(logprobs, len(content) - len(text))
    calls = as_tool_calls(message.tool_calls) if message.tool_calls else ()
    answered = count_tokens(content + thoughts + "".join(call.arguments for call in calls))
    return Response(
        text=text,
        finish_reason=finish_reason,
        usage=usage_of(completion.usage, price, completion.timings, (prompt, answered)),
        logprobs=logprobs,
        seconds=seconds,
        reasoning=thoughts or in_text,
        tool_calls=calls,
    )


def as_vector(found: Embeddings, seconds: float, price: Price | None, prompt: int) -> Response:
    """What the rooms see of the embedding of one text. `prompt`: as in `as_response`."""
    (vector,) = found.data
    said = (found.usage or ReportedUsage()).model_copy(update={"completion_tokens": 0})
    text = dump_vector(vector.embedding)
    return Response(text, "stop", usage_of(said, price, None, (prompt, 0)), seconds=seconds)


def dump_vector(vector: Sequence[float], **more: Any) -> str:
    """The text of a response that holds an embedding, in the digits that 32 bits have."""
    return json.dumps({"embedding": [float(f"{part:.7g}") for part in vector], **more})


def _token(token: _Token) -> TokenLogprobs:
    pairs = ((other.token, other.logprob) for other in token.top_logprobs or ())
    top = tuple((text, logprob) for text, logprob in pairs if logprob is not None)
    return TokenLogprobs(token.token, token.logprob if token.logprob is not None else -9999.0, top)
