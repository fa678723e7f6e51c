"""The type of models, an async callable from a `Request` to a `Response`, and the types of both.

A wrapper (retry, limit, budget, journal) is a `Model` around another. A message consists of parts
that are joined when it is sent: the prompts of a debate share their first parts, so the journal
stores each part once. Messages, tool calls and tokens are those of `textevolve.protocol.contents`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from pydantic_core import to_json

from textevolve.evaluation import Usage
from textevolve.protocol.contents import Message as Message
from textevolve.protocol.contents import Role as Role
from textevolve.protocol.contents import TokenLogprobs as TokenLogprobs
from textevolve.protocol.contents import ToolCall as ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a model: everything that determines its answer. The endpoint decides about
    fields that are None.

    Attributes:
        messages: The conversation to answer.
        schema: The JSON schema, as text, that the answer must follow; not sent to an endpoint that
            refuses it.
        max_tokens: The most tokens of the answer.
        sample: A number that distinguishes calls that are otherwise equal; `draw_sample` sets it.
        top_logprobs: The number of alternatives to return for each token; 0: no log-probabilities.
        embeds: Request the embedding of the last message; the response's text is then a JSON object
            with the vector, `{"embedding": [...]}`.
        questions: Typed questions (yes or no, a choice, a level) about the last message, as JSON
            that `decisions.decision_request` writes; the response's text is then JSON with a
            probability for each option.
        forced: The text that the answer must be, to read the log-probabilities of its tokens. An
            endpoint that cannot force tokens is sent `schema`, which allows only this text; the
            answer then follows the schema.
        tools: The functions that the model may call, as the protocol's JSON list.
        tool_choice: "auto", "none", "required", or the name of the function to call.
    """

    messages: tuple[Message, ...]
    schema: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    sample: int = 0
    top_logprobs: int = 0
    embeds: bool = False
    questions: str | None = None
    forced: str | None = None
    tools: str | None = None
    tool_choice: str | None = None


def text_request(
    text: str, max_tokens: int, seed: int | None, temperature: float | None = 0.0
) -> Request:
    """Return a request with one message of the user."""
    return Request(
        messages=(Message("user", (text,)),),
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
    )


SEEDS = 2**31
"""The number of seeds that every server accepts; some read a seed as an integer of 32 bits."""


def draw_sample(request: Request, sample: int) -> Request:
    """Return the request for another sample of its answer, by the number of the sample from 0. Each
    has its own seed, since a server that honours seeds gives the same answer to the same prompt and
    seed. At temperature 0 a seed decides nothing, so answers that are stored stay valid."""
    if not sample:
        return request
    seed = request.seed
    if seed is not None and request.temperature != 0:
        seed = (seed + sample) % SEEDS

    return replace(request, sample=sample, seed=seed)


@dataclass(frozen=True, slots=True)
class Response:
    """A model's answer.

    Attributes:
        text: The answer without reasoning.
        finish_reason: "stop", "length" or another reason of the endpoint.
        usage: The tokens and cost of the call.
        logprobs: The tokens of the answer, if log-probabilities were requested.
        seconds: The elapsed time of the successful attempt.
        attempts: The number of all attempts.
        replayed: Whether the answer comes from the journal at no cost; `usage` is then that of the
            original call.
        reasoning: The model's reasoning before the answer, if the endpoint reports it.
        tool_calls: The tools that the model wants to call.
        member: The spec of the pool's endpoint that answered; empty without a pool.
    """

    text: str
    finish_reason: str
    usage: Usage
    logprobs: tuple[TokenLogprobs, ...] = ()
    seconds: float = 0.0
    attempts: int = 1
    replayed: bool = False
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    member: str = ""


NOTHING = Usage()


class Model(Protocol):
    """A language model, as every part of the package calls it: an async callable from a request to
    a response."""

    @property
    def name(self) -> str:
        """Return the spec that identifies this model, such as `local/qwen2.5-coder-1.5b`."""
        ...

    async def __call__(self, request: Request, /) -> Response: ...


CACHED_TEXT = 16_384
"""The most characters of a text whose hash is cached together with the text."""


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return _cached_hash(text) if len(text) <= CACHED_TEXT else _hash(text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_cached_hash = lru_cache(maxsize=4096)(_hash)


def describe(request: Request) -> dict[str, Any]:
    """Return the request as JSON-ready data for its key. Schema, parts and images of messages,
    questions, forced text and tools are hashes; `embeds` and the fields after it are left out if
    unset, so that stored keys stay valid."""
    fields: dict[str, Any] = {
        "messages": list(map(_describe_message, request.messages)),
        "schema": request.schema and text_hash(request.schema),
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "sample": request.sample,
        "top_logprobs": request.top_logprobs,
    }

    if request.embeds:
        fields["embeds"] = True
    for name in ("questions", "forced", "tools"):
        text = getattr(request, name)
        if text is not None:
            fields[name] = text_hash(text)
    if request.tool_choice is not None:
        fields["tool_choice"] = request.tool_choice

    return fields


def _describe_message(message: Message) -> list[Any]:
    more = message_extra(message, tuple(map(text_hash, message.images)))
    return [message.role, list(map(text_hash, message.parts)), *([more] if more else [])]


def message_extra(message: Message, images: Any) -> dict[str, Any]:
    """Return the fields of a message besides role and text as JSON-ready data: {} for most.
    `images`: a description of its images, in any form."""
    more: dict[str, Any] = {"images": images} if message.images else {}
    if message.tool_calls:
        more["tool_calls"] = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    if message.tool_call_id is not None:
        more["tool_call_id"] = message.tool_call_id
    return more


def request_key(model: str, request: Request) -> str:
    """Return the journal's key of a request: the SHA-256 of the model's name and the
    whole request."""
    return hashlib.sha256(to_json([model, describe(request)])).hexdigest()


# The journal as models use it; `textevolve.store.journal` stores one on disk.
#
# The outcome of each call is appended durably before it is used. Runs are resumed, replayed and
# priced by reading the journal; there are no other checkpoints.


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A finished call, or a paid attempt of one without an answer. Exactly one of `response` and
    `error` is set.

    Attributes:
        key: The hash of the model's name and the whole request.
        model: The spec of the model.
        error: The message of the final error.
        started: Unix time.
        seconds: The duration of the call.
        attempts: The number of attempts, including failed ones.
        usage: What is charged for an error; that of an answer is in its response.
    """

    key: str
    model: str
    request: Request
    response: Response | None
    error: str | None
    started: float
    seconds: float
    attempts: int
    usage: Usage = NOTHING


class Journal(Protocol):
    """The store of all model calls of a run, which answers repeated calls."""

    async def find(self, key: str) -> Response | None:
        """Return the stored answer for a key, marked as replayed; None if there is none, also if
        the call was stored with an error."""
        ...

    async def has_answer(self, model: str) -> bool:
        """Return whether the run has an answer of a model, also of an earlier session."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Store an entry, and return once it is durable. Raises StoreError if it cannot
        be stored."""
        ...
