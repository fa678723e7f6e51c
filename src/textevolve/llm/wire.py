"""The OpenAI protocol's bodies: a `Request` as it is sent, a `Response` as it is read.

What an endpoint sends is checked here and nowhere else. Not here: connections (`client`) and what a
refusal means (`refusals`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from textevolve.evaluation import Usage
from textevolve.llm.model import Request, Response, TokenLogprobs
from textevolve.settings import Price


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


class _Part(BaseModel):
    text: str = ""


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Alternative(BaseModel):
    token: str
    logprob: float | None = None


class _Token(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _CacheFigures(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CacheFigures | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Timings(BaseModel):
    cache_n: int | None = None


class Completion(BaseModel):
    """A chat completion as far as it is read here. `error`: some endpoints send one with a 200."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


class _Vector(BaseModel):
    embedding: list[float]
    index: int = 0


class Embeddings(BaseModel):
    data: list[_Vector]


class _ModelName(BaseModel):
    id: str


class ModelList(BaseModel):
    data: list[_ModelName] | None = None


def read_completion(body: bytes) -> Completion:
    """Raises ValueError where the body is not JSON or not a chat completion."""
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        # Bytes that are not UTF-8 and lone surrogates come from tokens that are parts of characters
        # and must not cost the whole answer.
        loose = json.loads(body.decode("utf-8", "replace"))
        whole = json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace")
        return Completion.model_validate_json(whole)


def as_response(completion: Completion, seconds: float, price: Price | None) -> Response:
    """What the rooms see of a completion that has a choice.

    An answer that the model declined to give is an empty text with the finish reason "refusal".
    """
    choice = completion.choices[0]
    content = choice.message.content
    text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
    finish_reason = choice.finish_reason or "stop"
    if choice.message.refusal and not text:
        finish_reason = "refusal"
    tokens = choice.logprobs.content if choice.logprobs and choice.logprobs.content else ()
    return Response(
        text=text,
        finish_reason=finish_reason,
        usage=_usage(completion, price),
        logprobs=tuple(_token(token) for token in tokens),
        seconds=seconds,
    )


def _token(token: _Token) -> TokenLogprobs:
    pairs = ((other.token, other.logprob) for other in token.top_logprobs or ())
    top = tuple((text, logprob) for text, logprob in pairs if logprob is not None)
    return TokenLogprobs(token.token, token.logprob if token.logprob is not None else -9999.0, top)


def _usage(completion: Completion, price: Price | None) -> Usage:
    said = completion.usage or _Usage()
    details, timings = said.prompt_tokens_details, completion.timings
    cached = details.cached_tokens if details else None
    if cached is None:
        cached = timings.cache_n if timings else said.prompt_cache_hit_tokens
    prompt, cached, answered = said.prompt_tokens or 0, cached or 0, said.completion_tokens or 0
    cost = said.cost
    if cost is None and price is not None and completion.usage is not None:
        cost = cost_of(price, prompt, cached, answered)
    return Usage(1, prompt, cached, answered, cost)


def cost_of(price: Price, prompt: int, cached: int, answered: int) -> float:
    """US dollars for one call; `cached` tokens are a part of `prompt`."""
    for_cached = price.input if price.cached_input is None else price.cached_input
    whole = (prompt - cached) * price.input + cached * for_cached + answered * price.output
    return whole / 1e6
