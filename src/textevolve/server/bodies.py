"""Limits for the bodies of requests: their size, the depth of their JSON, and the time that they
may take.

A body is read completely before the request is answered, and counts towards a limit for all bodies
in memory. The code of each path interprets the content.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from textevolve.server.errors import INVALID, ApiError
from textevolve.server.identity import Caller

MIB = 2**20
LARGEST_BODY = 2 * MIB
"""The most bytes of a request's body on paths that are not in `LARGER`."""
LARGER: Mapping[str, int] = {
    "/v1/studies": 64 * MIB,
    "/v1/namespaces": 64 * MIB,
    "/v1/chat/completions": 20 * MIB,
    "/v1/responses": 20 * MIB,
    "/v1/embeddings": 20 * MIB,
}
"""The most bytes of a body by the beginning of the path, for requests that contain files, memories
or images. They apply to callers who may run studies; others have `LARGEST_BODY`."""
BODIES_AT_ONCE = 512 * MIB
"""The most bytes of all bodies that are in memory at the same time."""
READ_AWAY = 8
"""How often the size limit a too large body is still received and dropped, before the connection is
closed while the client is sending."""
BODY_SECONDS = 60.0
"""The most seconds for a body of up to `LARGEST_BODY` bytes; on paths with a larger limit the time
is longer in proportion."""
PART_SECONDS = 20.0
"""The most seconds during which a client may send nothing before its body is complete."""
DEEPEST = 100
"""The most nested brackets in the JSON of a body."""

AsgiScope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]

# A text that does not end runs to the end of the body, so that each byte is looked at once.
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


@dataclass
class Bodies:
    """The count of the bytes of all bodies in memory, for requests that are being answered. `size`:
    the current number of bytes."""

    size: int = 0

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Count a body of this size while it is read and the request is answered.

        Raises:
            ApiError: 503, the bodies in memory have reached their limit.
        """
        if self.size + size > BODIES_AT_ONCE:
            message = "the server holds as much request data as it can; try again later"
            raise ApiError(503, "server_unavailable", message, retry_after=5)
        self.size += size
        try:
            yield
        finally:
            self.size -= size


def largest_body(path: str, caller: Caller) -> int:
    """Return the largest size in bytes of a body that a caller may send to a path."""
    if caller.may("run"):
        for start, size in LARGER.items():
            if path == start or path.startswith(f"{start}/"):
                return size
    return LARGEST_BODY


def declared_size(headers: Mapping[str, bytes], largest: int) -> int:
    """Return the bytes to reserve for a body: its declared length, or the largest size allowed."""
    declared = headers.get("content-length", b"0" if "transfer-encoding" not in headers else b"")
    return min(int(declared), largest) if declared.isdigit() else largest


async def read_body(receive: Receive, largest: int) -> bytes:
    """Return the whole body of a request. Bytes above the largest size are received and dropped for
    a while, since a client that is still sending would not see the error.

    Raises:
        ApiError: 413, the body is too large; 408, the body did not come in time.
    """
    seconds = BODY_SECONDS * max(1.0, largest / LARGEST_BODY)
    body, size, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(seconds):
            while more and size <= READ_AWAY * largest:
                async with asyncio.timeout(PART_SECONDS):
                    message = await receive()
                part: bytes = message.get("body", b"")
                size += len(part)
                body += part if size <= largest else b""
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(
            408,
            "request_timeout",
            f"the body was not received within {seconds:g} s, or its transfer stopped",
        ) from None
    if size > largest:
        raise ApiError(413, "request_too_large", f"the body is larger than {largest // MIB} MiB")
    return bytes(body)


async def check_depth(body: bytes) -> None:
    """Check that the JSON of a body is not nested too deeply.

    Raises:
        ApiError: 400, the JSON is nested too deeply.
    """
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    if len(body) > MIB:
        deep = await asyncio.to_thread(json_depth, body)
    else:
        deep = json_depth(body)
    if deep > DEEPEST:
        raise ApiError(400, INVALID, f"the JSON is nested more than {DEEPEST} levels deep")


def json_depth(body: bytes) -> int:
    """Return how many levels deep the brackets of a body are nested, even if it is not valid
    JSON."""
    brackets = _TEXTS.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


class Replay:
    """An ASGI `receive` function for the application: it returns the body that was read already,
    and then the client's next messages, such as its disconnection."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> AsgiMessage:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
