"""Mark the beginnings of prompts that are used again, for the endpoint's prompt cache.

Prompts grow at their end: the prompts of a debate share system message, opening and history, and
differ at the boundaries of a message's parts (`model.Message`). The marks are hints: they change no
answer, and are not a part of the journal's key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any

from textevolve.json_texts import as_array
from textevolve.llm.model import Message, Request
from textevolve.settings import PromptCache

KEY_FIELD, MARK_FIELD = "prompt_cache_key", "cache_control"
MARK: Mapping[str, Any] = {MARK_FIELD: {"type": "ephemeral"}}


def prefix_key(request: Request) -> str | None:
    """Return a key of 32 characters for the prefix that this request shares with others of its
    debate or chat; None if no prefix is reused.

    The prefix consists of the system messages and the first part after them, if more follows.
    """
    places, first = _split(request)
    if len(places) < first + 2:
        return None
    digest = blake2b(digest_size=16)
    for message, part in places[: first + 1]:
        text = request.messages[message].parts[part]
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _split(request: Request) -> tuple[list[tuple[int, int]], int]:
    """Return the places of all parts of a prompt, each as the index of a message and of its part,
    and the number of those in the system messages at the beginning."""
    messages = request.messages
    places = [(n, part) for n, message in enumerate(messages) for part in range(len(message.parts))]
    roles = [messages[message].role for message, _ in places]
    first = next((n for n, role in enumerate(roles) if role != "system"), len(places))
    return places, first


def breakpoints(request: Request) -> tuple[tuple[int, int], ...]:
    """Return the places after which the prompt may be cached, in order: the end of the system
    messages, of the first part after them, and of everything before the last part."""
    places, first = _split(request)
    following = len(places) - first
    ends = {first - 1} if first and following else set[int]()
    if following > 1:
        ends |= {first, len(places) - 2}
    return tuple(places[end] for end in sorted(ends))


def add_hints(
    body: dict[str, Any], request: Request, how: PromptCache, refused: Collection[str]
) -> None:
    """Add the cache hints to the body of a request. Hints that the endpoint refused are left
    out."""
    if how == "key" and KEY_FIELD not in refused:
        key = prefix_key(request)
        if key is not None:
            body[KEY_FIELD] = key
    if how == "breakpoints" and MARK_FIELD not in refused and "messages" in body:
        places = breakpoints(request)
        for number in {message for message, _ in places}:
            sent = body["messages"][number]
            marked = {part for message, part in places if message == number}
            sent["content"] = _mark(sent.get("content"), request.messages[number], marked)


def _mark(content: Any, message: Message, marked: Collection[int]) -> list[dict[str, Any]]:
    """Return the content of a message for the endpoint: its images, and its text, which is split
    after each marked part, where the cache mark is."""
    sent = as_array(content)
    pictures = [part for part in sent if part["type"] != "text"]
    texts = list[dict[str, Any]]()
    begun = ""
    for number, part in enumerate(message.parts):
        begun += part
        if begun and (number in marked or number == len(message.parts) - 1):
            mark: Mapping[str, Any] = MARK if number in marked else {}
            texts.append({"type": "text", "text": begun, **mark})
            begun = ""
    return [*pictures, *texts]
