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
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticSerializationError, to_json

from textevolve.evaluation import Usage
from textevolve.llm.model import Request, Response, TokenLogprobs
from textevolve.settings import Price

Shape = TypeVar("Shape", bound=BaseModel)


def chat_body(model: str, request: Request, max_tokens_field: str) -> dict[str, Any]:
    """The request as the protocol has it; only what is set is sent."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.text} for m in request.messages],
    }
    if request.schema is not None:
        named = {"name": "answer", "schema": _read_schema(request.schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if request.seed is not None:
        body["seed"] = request.seed
    if request.top_logprobs:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs
    return body


@lru_cache(maxsize=256)
def _read_schema(schema: str) -> Any:
    return json.loads(schema)


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; half a surrogate pair, which UTF-8 cannot express, is escaped."""
    try:
        return to_json(body)
    except PydanticSerializationError:
        return json.dumps(body).encode("ascii")


def _known(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """None where a field that an answer can do without cannot be read: a good text stays."""
    try:
        return None if isinstance(value, bool) else read(value)
    except ValidationError:
        return None


KNOWN = WrapValidator(_known)


def _readable(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """Log-probabilities that are there but cannot be read are told from those left out."""
    try:
        return read(value)
    except ValidationError:
        return UNREADABLE


def _first(value: object) -> object:
    """Only the first choice is used, so what is wrong with others does not matter."""
    return cast("list[object]", value)[:1] if isinstance(value, list) else value or []


_Text = Annotated[str | None, KNOWN]
_Count = Annotated[Annotated[int, Field(ge=0, lt=2**53)] | None, KNOWN]
_Bytes = Annotated[list[Annotated[int, Field(ge=0, le=255)]] | None, KNOWN]
_Cost = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, KNOWN]
_Logprob = Annotated[Annotated[float, Field(allow_inf_nan=False)] | None, KNOWN]


class _Part(BaseModel):
    text: _Text = None


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    refusal: _Text = None


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
    finish_reason: _Text = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


class _CacheFigures(BaseModel):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None


def _named(old: str, new: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(old, new))


class ReportedUsage(BaseModel):
    """What an endpoint says that a call took, by the names of chats or those of newer wires."""

    model_config = ConfigDict(populate_by_name=True)

    prompt_tokens: _Count = _named("prompt_tokens", "input_tokens")
    completion_tokens: _Count = _named("completion_tokens", "output_tokens")
    prompt_tokens_details: Annotated[_CacheFigures | None, KNOWN] = _named(
        "prompt_tokens_details", "input_tokens_details"
    )
    prompt_cache_hit_tokens: _Count = _named("prompt_cache_hit_tokens", "cache_read_input_tokens")
    cache_creation_input_tokens: _Count = None
    cost: _Cost = None


class _Timings(BaseModel):
    cache_n: _Count = None


class _ChunkChoice(BaseModel):
    """What a chunk of a stream adds to the answer; some servers call it `message`."""

    delta: Annotated[_Message | None, Field(validation_alias=AliasChoices("delta", "message"))] = (
        None
    )
    finish_reason: _Text = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


def _own_choices(value: object) -> object:
    """Of several answers only the first is used; their chunks come mixed."""
    choices: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    return [one for one in choices if not isinstance(one, dict) or not one.get("index")]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class CompletionChunk(BaseModel):
    """A part of a streamed completion. The last ones may have the usage and no choice."""

    choices: Annotated[list[_ChunkChoice], BeforeValidator(_own_choices)] = []
    usage: Annotated[ReportedUsage | None, KNOWN] = None
    timings: Annotated[_Timings | None, KNOWN] = None
    error: Any = None

    @property
    def text(self) -> str:
        return "".join(_text_of(one.delta) for one in self.choices if one.delta)


class Completion(BaseModel):
    """A chat completion as far as it is read here. `error`: some endpoints send one with a 200."""

    choices: Annotated[list[_Choice], BeforeValidator(_first)] = []
    usage: Annotated[ReportedUsage | None, KNOWN] = None
    timings: Annotated[_Timings | None, KNOWN] = None
    error: Any = None


class _Vector(BaseModel):
    embedding: list[float]
    index: int = 0


class Embeddings(BaseModel):
    data: list[_Vector]
    usage: Annotated[ReportedUsage | None, KNOWN] = None


class _ModelName(BaseModel):
    id: str = Field(validation_alias=AliasChoices("id", "name"))


class ModelList(BaseModel):
    """`models`: as endpoints that only decide have it."""

    data: list[_ModelName] | None = None
    models: list[_ModelName] | None = None


def read_completion(body: bytes) -> Completion:
    """Raises ValueError where the body is not JSON or not a chat completion."""
    return _read_loosely(Completion, body)


def read_chunk(data: bytes) -> CompletionChunk | None:
    """The chunk in one event of a stream; None where the data is none."""
    try:
        return _read_loosely(CompletionChunk, data)
    except (ValueError, RecursionError):
        return None


def _read_loosely(shape: type[Shape], body: bytes) -> Shape:
    try:
        return shape.model_validate_json(body)
    except ValidationError:
        # Bytes that are not UTF-8 and lone surrogates come from tokens that are parts of characters
        # and must not cost the whole answer.
        loose = json.loads(body.decode("utf-8", "replace"))
        whole = json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace")
        return shape.model_validate_json(whole)


def join_chunks(chunks: Sequence[CompletionChunk], clean: Callable[[str], str]) -> Completion:
    """The completion that a stream was of; `clean` sees its whole text. An error stands for all."""
    for chunk in chunks:
        if chunk.error:
            return Completion(error=chunk.error)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    timings = [chunk.timings for chunk in chunks if chunk.timings]
    refused = "".join(one.delta.refusal or "" for one in choices if one.delta)
    text = clean("".join(chunk.text for chunk in chunks))
    choice = _Choice(
        message=_Message(content=text, refusal=clean(refused) or None),
        finish_reason=next((one.finish_reason for one in choices if one.finish_reason), None),
        logprobs=_join_logprobs([one.logprobs for one in choices if one.logprobs]),
    )
    return Completion(
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


def as_response(completion: Completion, seconds: float, price: Price | None) -> Response:
    """What the rooms see of a completion that has a choice.

    An answer that the model declined to give is an empty text with the finish reason "refusal".
    """
    choice = completion.choices[0]
    content = _text_of(choice.message)
    finish_reason = choice.finish_reason or "stop"
    if choice.message.refusal and not content:
        finish_reason = "refusal"
    tokens = choice.logprobs.content if choice.logprobs and choice.logprobs.content else ()
    return Response(
        text=content,
        finish_reason=finish_reason,
        usage=usage_of(completion.usage, price, completion.timings),
        logprobs=tuple(_token(token) for token in tokens),
        seconds=seconds,
    )


def as_vector(found: Embeddings, seconds: float, price: Price | None) -> Response:
    """What the rooms see of the embedding of one text."""
    (vector,) = found.data
    said = (found.usage or ReportedUsage()).model_copy(update={"completion_tokens": 0})
    text = dump_vector(vector.embedding)
    return Response(text, "stop", usage_of(said, price), seconds=seconds)


def dump_vector(vector: Sequence[float], **more: Any) -> str:
    """The text of a response that holds an embedding, in the digits that 32 bits have."""
    return json.dumps({"embedding": [float(f"{part:.7g}") for part in vector], **more})


def _token(token: _Token) -> TokenLogprobs:
    pairs = ((other.token, other.logprob) for other in token.top_logprobs or ())
    top = tuple((text, logprob) for text, logprob in pairs if logprob is not None)
    return TokenLogprobs(token.token, token.logprob if token.logprob is not None else -9999.0, top)


def usage_of(
    reported: ReportedUsage | None, price: Price | None, timings: _Timings | None = None
) -> Usage:
    """A cost is known only where the endpoint says it, or all that it is made of."""
    said = reported or ReportedUsage()
    details = said.prompt_tokens_details
    cached = details.cached_tokens if details else None
    if cached is None:
        cached = timings.cache_n if timings else said.prompt_cache_hit_tokens
    written = (details and details.cache_write_tokens) or said.cache_creation_input_tokens or 0
    prompt, answered = said.prompt_tokens, said.completion_tokens
    cached = cached or 0
    if cached + written > (prompt or 0):  # they are parts of the prompt
        cached, written = 0, 0
    cost, saved = said.cost, 0.0 if not (cached or written) else None
    if price is not None:
        free = not (price.input or price.output or price.cached_input)
        if cost is None and (free or (prompt is not None and answered is not None)):
            cost = cost_of(price, prompt or 0, cached, answered or 0, written)
        saved = saved_of(price, prompt or 0, cached, written)
    return Usage(1, prompt or 0, cached, answered or 0, cost, saved=saved)


def cost_of(price: Price, prompt: int, cached: int, answered: int, written: int = 0) -> float:
    """US dollars for one call; `cached` tokens, and those `written` into a cache, are parts of
    `prompt`."""
    price = price.of_call(prompt)
    for_cached = price.input if price.cached_input is None else price.cached_input
    for_written = price.input if price.cache_write is None else price.cache_write
    whole = (prompt - cached - written) * price.input + written * for_written
    return (whole + cached * for_cached + answered * price.output) / 1e6


def saved_of(price: Price, prompt: int, cached: int, written: int) -> float | None:
    """US dollars that a call would have cost more without caching; below 0 where writing cost more
    than reading saved. None where what a cached token costs is not known."""
    price = price.of_call(prompt)
    if cached and price.cached_input is None and price.input:
        return None
    spared = cached * (price.input - (price.cached_input or 0.0))
    surcharge = 0.0 if price.cache_write is None else written * (price.cache_write - price.input)
    return (spared - surcharge) / 1e6
