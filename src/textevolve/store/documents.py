"""Convert requests, responses and cases to the bytes that the store holds, and back. This module
uses no database.

The conversion loses nothing: NUL, lone surrogates and infinite log-probabilities are restored
exactly.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from textevolve.errors import StoreError, describe_error
from textevolve.evaluation import Case, Usage
from textevolve.llm.model import (
    Message,
    Request,
    Response,
    TokenLogprobs,
    ToolCall,
    message_extra,
    text_hash,
)
from textevolve.mappings import drop_empty, drop_none, pick, read_fields
from textevolve.texts.prose import join_lines
from textevolve.trajectory import read_trajectory

PACK_FROM = 16_384
"""The number of bytes from which data are compressed, since it is worth the time: it halves them in
about 0.2 ms (measured with zlib 1)."""

DAMAGES = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    zlib.error,
)
"""The exceptions that reading damaged bytes may raise."""

CHECK = (
    "`textevolve config store check` shows which rows are intact, and copies them with --salvage"
    " FILE"
)
"""The advice in messages about damaged data."""

HASH_BYTES = 32
"""The number of bytes of the SHA-256 hash under which a text is stored."""

IMAGES = b"\x01"
"""The first byte of the body of a case with images; no other body begins with it. The number of
images follows in five digits, then their hashes, 32 bytes each, then the case as JSON. Each image
is stored once, like the texts of messages."""
_DIGITS = 5

EXTRA = ("schema", "questions", "forced", "tools")
"""The fields of a request that are texts, in the order in which their hashes follow those of its
messages."""

SAMPLING = ("temperature", "max_tokens", "seed", "sample", "top_logprobs")
"""The fields of a request that are numbers."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request whose texts are stored separately. `document`: the request without its texts, as
    JSON. `parts`: the hashes of the texts, 32 bytes each, with those of the fields in `EXTRA` last.
    `texts`: the texts in the same order."""

    document: bytes
    parts: bytes
    texts: tuple[str, ...]


@contextmanager
def intact(subject: str) -> Generator[None]:
    """Raise a StoreError that names `subject` if the block fails because stored bytes are
    damaged."""
    try:
        yield
    except DAMAGES as error:
        details = join_lines(describe_error(error))[:200]
        raise StoreError(f"{subject} is damaged in the store ({details}); {CHECK}") from error


def text_to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def plain_text(text: str) -> str:
    """Return a text with its lone surrogates escaped, for columns that people read."""
    return text.encode("utf-8", "backslashreplace").decode()


def dump_json(value: Any, subject: str) -> bytes:
    """Encode a value as compact JSON; raise a StoreError that names `subject` if it is no JSON."""
    try:
        return text_to_bytes(_encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{subject} cannot be stored as JSON: {error}") from error


def _dump(document: dict[str, Any]) -> bytes:
    """Encode a document that is known to be JSON, like `dump_json`, but in a fifth of the time."""
    try:
        return to_json(document)
    except PydanticSerializationError:  # a lone surrogate
        return text_to_bytes(_encode(document))


def load_json(data: bytes) -> Any:
    return json.loads(bytes_to_text(data))


def require(value: object, *kinds: type | None) -> None:
    """Raise a TypeError if a value has none of these types; True is no number."""
    types = tuple(type(None) if kind is None else kind for kind in kinds)
    if not isinstance(value, types) or isinstance(value, bool):
        raise TypeError(f"not of the kind that was kept: {type(value).__name__}")


def pack(data: bytes, least: int = PACK_FROM) -> bytes:
    """Compress data of at least `least` bytes if that makes them smaller. `unpack` needs the
    original size."""
    if len(data) < least:
        return data
    packed = zlib.compress(data, 1)
    return packed if len(packed) < len(data) else data


def unpack(data: bytes, size: int) -> bytes:
    return zlib.decompress(data) if len(data) < size else data


def unpack_json(data: bytes) -> Any:
    return load_json(unpack_json_bytes(data))


def unpack_json_bytes(data: bytes) -> bytes:
    return data if data[:1] == b"{" else zlib.decompress(data)


def hash_bytes(text: str) -> bytes:
    return bytes.fromhex(text_hash(text))


def store_request(request: Request) -> StoredRequest:
    """Split a request into its document, the hashes of its texts, and the texts."""
    texts = [part for message in request.messages for part in (*message.parts, *message.images)]
    texts += [text for name in EXTRA if (text := getattr(request, name)) is not None]
    document = {
        "messages": list(map(_store_message, request.messages)),
        "schema": request.schema is not None,
        **read_fields(request, *SAMPLING),
    }
    flags = ("embeds", "questions", "forced", "tools")
    document |= {name: True for name in flags if getattr(request, name) not in (None, False)}
    if request.tool_choice is not None:
        document["tool_choice"] = request.tool_choice
    parts = bytes.fromhex("".join(map(text_hash, texts)))

    return StoredRequest(_dump(document), parts, tuple(texts))


def _store_message(message: Message) -> list[Any]:
    more = message_extra(message, len(message.images))
    return [message.role, len(message.parts), *([more] if more else [])]


def _restore_message(stored: Sequence[Any], texts: Iterator[str]) -> Message:
    """Restore a message. `texts`: the texts of the request from those of this message on."""
    more: dict[str, Any] = stored[2] if len(stored) > 2 else {}
    return Message(
        role=stored[0],
        parts=tuple(islice(texts, int(stored[1]))),
        images=tuple(islice(texts, int(more.get("images", 0)))),
        tool_calls=_restore_calls(more),
        tool_call_id=more.get("tool_call_id"),
    )


def _restore_calls(stored: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(*call) for call in stored.get("tool_calls", ()))


def restore_request(document: bytes, texts: Sequence[str]) -> Request:
    """Restore a request from the result of `store_request`. `texts`: in the order of its
    `parts`."""
    stored: dict[str, Any] = load_json(document)
    remaining = iter(texts)
    messages = tuple(_restore_message(message, remaining) for message in stored.pop("messages"))
    extra = {name: next(remaining) if stored.pop(name, False) else None for name in EXTRA}
    return Request(messages=messages, **extra, **stored)


OPTIONAL_USAGE = ("reasoning_tokens", "estimated", "models", "cut_prompts")
"""The optional fields of the usage in a response's document."""


def dump_response(response: Response) -> bytes:
    """Encode a response without its tokens, its cost and what prompt caching saved, which have
    separate columns."""
    document: dict[str, Any] = {
        "text": response.text,
        "finish_reason": response.finish_reason,
        "calls": response.usage.calls,
        "seconds": response.seconds,
        "attempts": response.attempts,
    }
    optional = {
        "logprobs": [[t.token, t.logprob, t.top] for t in response.logprobs],
        "reasoning": response.reasoning,
        "tool_calls": [[c.id, c.name, c.arguments] for c in response.tool_calls],
        "member": response.member,
        **read_fields(response.usage, *OPTIONAL_USAGE),
    }
    document |= drop_empty(optional)

    return pack(_dump(document))


def load_response(
    data: bytes,
    prompt_tokens: int,
    cached_tokens: int,
    completion_tokens: int,
    cost: float | None,
    saved: float | None,
) -> Response:
    """Decode a stored response, marked as replayed. Early versions stored no savings: they are 0 if
    none of the tokens were cached and the cost is known, otherwise None."""
    stored = unpack_json(data)
    for text in (stored["text"], stored["finish_reason"]):
        require(text, str)
    tokens = (prompt_tokens, cached_tokens, completion_tokens)
    for number in (stored["calls"], stored["attempts"], *tokens):
        require(number, int)
    require(stored["seconds"], int, float)
    for amount in (cost, saved):
        require(amount, int, float, None)
    if saved is None and cached_tokens == 0 and cost is not None:
        saved = 0.0

    return Response(
        text=stored["text"],
        finish_reason=stored["finish_reason"],
        usage=Usage(
            stored["calls"],
            *tokens,
            cost,
            saved=saved,
            **pick(stored, OPTIONAL_USAGE),
        ),
        logprobs=tuple(
            TokenLogprobs(token, logprob, tuple((other, value) for other, value in top))
            for token, logprob, top in stored.get("logprobs", ())
        ),
        seconds=stored["seconds"],
        attempts=stored["attempts"],
        replayed=True,
        reasoning=stored.get("reasoning", ""),
        tool_calls=_restore_calls(stored),
        member=stored.get("member", ""),
    )


def dump_case(case: Case) -> bytes:
    document: dict[str, Any] = {"input": case.input, "candidates": case.candidates}
    optional = {
        "parameters": dict(case.parameters) or None,
        "reference": case.reference,
        "context": case.context,
        "trajectory": None if case.trajectory is None else case.trajectory.as_row(),
    }
    document |= drop_none(optional)
    header = b""
    urls = image_texts(case)
    if urls:
        document["images"] = len(case.images)
        document["candidate_images"] = list(map(len, case.candidate_images))
        header = IMAGES + str(len(urls)).zfill(_DIGITS).encode() + b"".join(map(hash_bytes, urls))

    # The first byte tells both forms apart: JSON begins with a brace, compressed data never do.
    return header + pack(dump_json(document, f"case {case.id!r}"))


def image_texts(case: Case) -> tuple[str, ...]:
    """Return all images of a case, in the order in which its body names them."""
    return (*case.images, *(url for image in case.candidate_images for url in image))


def split_body(body: bytes) -> tuple[bytes, bytes]:
    """Split the body of a case into the header, which is empty without images, and the JSON."""
    start = 1 + _DIGITS
    end = start + HASH_BYTES * int(body[1:start]) if body[:1] == IMAGES else 0
    return body[:end], body[end:]


def image_keys(body: bytes) -> tuple[bytes, ...]:
    """Return the hashes of the images that the body of a case names."""
    return split_hashes(split_body(body)[0][1 + _DIGITS :])


def split_hashes(joined: bytes) -> tuple[bytes, ...]:
    """Split concatenated hashes of 32 bytes each."""
    return tuple(joined[n : n + HASH_BYTES] for n in range(0, len(joined), HASH_BYTES))


def load_case(id: bytes, body: bytes, images: Mapping[bytes, str] | None = None) -> Case:
    """Restore a case. `images`: its images by their hashes; None: restore it without images."""
    keys = image_keys(body)
    stored = unpack_json(split_body(body)[1])
    trajectory = None
    if "trajectory" in stored:
        trajectory = read_trajectory(stored["trajectory"], "trajectory")
    case = Case(
        stored["input"],
        tuple(stored["candidates"]),
        bytes_to_text(id),
        stored.get("parameters", {}),
        stored.get("reference"),
        stored.get("context"),
        trajectory=trajectory,
    )
    if not keys:
        return case
    counts = [stored["images"], *stored["candidate_images"]]
    if sum(counts) != len(keys):
        raise ValueError("other images than are named")
    if images is None:
        return case
    urls = iter([images[key] for key in keys])
    case_images, *of_each = [tuple(islice(urls, number)) for number in counts]

    return replace(case, images=case_images, candidate_images=tuple(of_each))
