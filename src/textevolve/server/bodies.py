"""Read the bodies of requests, up to a size.

A body is read completely before the request is answered. The code of each path interprets the
content.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from textevolve.server.errors import ApiError
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
READ_AWAY = 8
"""The multiple of the size limit up to which a too large body is received and dropped; beyond it,
the connection is closed although the client is still sending."""
AsgiScope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]


def largest_body(path: str, caller: Caller) -> int:
    """Return the largest size in bytes of a body that a caller may send to a path."""
    if caller.may("run"):
        for start, size in LARGER.items():
            if path == start or path.startswith(f"{start}/"):
                return size
    return LARGEST_BODY


async def read_body(receive: Receive, largest: int) -> bytes:
    """Return the whole body of a request. Bytes above the largest size are received and dropped for
    a while, since a client that is still sending would not see the error.

    Raises:
        ApiError: 413, the body is too large.
    """
    body, size, more = bytearray(), 0, True
    while more and size <= READ_AWAY * largest:
        message = await receive()
        part: bytes = message.get("body", b"")
        size += len(part)
        body += part if size <= largest else b""
        more = message.get("more_body", False)
    if size > largest:
        raise ApiError(413, "request_too_large", f"the body is larger than {largest // MIB} MiB")
    return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function for the application: it returns the body that was read
    already, and then the client's next messages, such as its disconnection."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def take() -> AsgiMessage:
        return waiting.pop() if waiting else await receive()

    return take
