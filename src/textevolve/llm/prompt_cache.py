"""Mark the beginnings of prompts that are used again, for the endpoint's prompt cache.

Prompts grow at their end: the prompts of a debate share system message, opening and history, and
differ at the boundaries of a message's parts (`model.Message`). The marks are hints: they change no
answer, and are not a part of the journal's key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, cast

from textevolve.llm.model import Message, Request
from textevolve.settings import PromptCache

MOST_BREAKPOINTS = 4
KEY_FIELD, MARK_FIELD = "prompt_cache_key", "cache_control"
MARK: Mapping[str, Any] = {MARK_FIELD: {"type": "ephemeral"}}


def prefix_key(request: Request) -> str | None:
    """Return a key of 32 characters for the prefix that this request shares with others of its
    debate or chat; None if no prefix is reused.

    The prefix consists of the system messages and the first part after them, if more follows.
    """
    leading, opening = _split(request)
    if opening is None or _is_last(request, leading, opening):
        return None
    digest = blake2b(digest_size=16)
    for text in (*(part for message in leading for part in message.parts), opening.parts[0]):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _split(request: Request) -> tuple[tuple[Message, ...], Message | None]:
    """Return the system messages at the beginning, and the message after them; None if there is
    none or it has no text."""
    count = next(
        (n for n, message in enumerate(request.messages) if message.role != "system"),
        len(request.messages),
    )
    remaining = request.messages[count:]
    return request.messages[:count], remaining[0] if remaining and remaining[0].parts else None


def _is_last(request: Request, leading: tuple[Message, ...], opening: Message) -> bool:
    return len(opening.parts) == 1 and len(request.messages) == len(leading) + 1


def breakpoints(request: Request) -> tuple[tuple[int, int], ...]:
    """Return the places after which the prompt may be cached, each as the index of a message and of
    its part: the end of the system messages, of the first part after them, and of everything before
    the last part. At most 4, in order."""
    leading, opening = _split(request)
    places: set[tuple[int, int]] = set()
    if leading and opening is not None:
        places.add((len(leading) - 1, len(leading[-1].parts) - 1))
    if opening is not None and not _is_last(request, leading, opening):
        places.add((len(leading), 0))
        last = request.messages[-1]
        if len(last.parts) > 1:
            places.add((len(request.messages) - 1, len(last.parts) - 2))
        else:
            before = request.messages[-2]
            places.add((len(request.messages) - 2, len(before.parts) - 1))
    usable = (place for place in places if place[1] >= 0 and request.messages[place[0]].parts)
    return tuple(sorted(usable))[-MOST_BREAKPOINTS:]


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
    sent = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
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
