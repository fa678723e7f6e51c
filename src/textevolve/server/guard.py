"""What stands before every request: who asks, from where, and how much is sent.

A page in a browser on this machine must not get at a server on loopback by a name that it has
pointed there, so without a key only names of loopback are answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from textevolve.server.access import THIS_MACHINE
from textevolve.server.errors import ApiError, respond_error
from textevolve.server.options import is_here

LARGEST_BODY = 2 * 2**20
"""Bytes of a request's body."""
READ_AWAY = 8 * LARGEST_BODY
"""Bytes of one that is too large, after which the connection is closed in the middle."""
BODY_SECONDS = 60.0
"""How long a client may take to send it."""
TYPES = (b"application/json", b"application/x-ndjson")
"""Of the bodies that are taken."""
OPEN_PATHS = ("/health",)
"""What is answered without a key."""

AsgiScope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Guard:
    """An ASGI app around another. `key`: what clients must send as bearer token; None: nothing."""

    app: App
    key: str | None = None

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
            self._check_sender(scope["path"], headers)
            scope["textevolve.caller"] = THIS_MACHINE
            _check_type(scope["method"], headers)
            body = await _read_body(receive)
        except ApiError as error:
            await respond_error(scope["path"], error)(scope, receive, send)
            return
        await self.app(scope, _Replay(body, receive), send)

    def _check_sender(self, path: str, headers: dict[str, bytes]) -> None:
        if self.key is None:
            host = headers.get("host", b"").decode("latin-1")
            if not is_here(host):
                raise ApiError(403, "forbidden_host", "without a key only this machine is answered")
        elif path not in OPEN_PATHS and not _matches(headers.get("authorization", b""), self.key):
            raise ApiError(
                401, "authentication_error", "send the server's key: Authorization: Bearer KEY"
            )


def _matches(header: bytes, key: str) -> bool:
    scheme, _, sent = header.partition(b" ")
    digests = [hashlib.sha256(one).digest() for one in (sent.strip(), key.encode())]
    return hmac.compare_digest(*digests) and scheme.lower() == b"bearer"


def _check_type(method: str, headers: dict[str, bytes]) -> None:
    """Other types a page in a browser may send to any address without being asked for leave."""
    media = headers.get("content-type", b"").split(b";")[0].strip().lower()
    if method == "POST" and media not in TYPES:
        raise ApiError(
            415,
            "unsupported_media_type",
            "send JSON with the header Content-Type: application/json",
        )


async def _read_body(receive: Receive) -> bytes:
    """The whole body. More than is taken is read away for a while, since a client that is still
    sending would not see the answer.

    Raises:
        ApiError: it is too large, or does not come.
    """
    body, size, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more and size <= READ_AWAY:
                message = await receive()
                part: bytes = message.get("body", b"")
                size += len(part)
                body += part if size <= LARGEST_BODY else b""
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(
            408, "request_timeout", f"the body did not come within {BODY_SECONDS:g} s"
        ) from None
    if size > LARGEST_BODY:
        said = f"the body is larger than {LARGEST_BODY // 2**20} MiB"
        raise ApiError(413, "request_too_large", said)
    return bytes(body)


class _Replay:
    """Gives the body that was read, once, and then what else comes: that the client has gone."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
