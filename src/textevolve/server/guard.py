"""The checks of every request before it is answered, and the security headers of every answer.

The single checks are in `identity`, `browser`, `bodies` and `limits`. They store the authenticated
caller in `scope["textevolve.caller"]`; the code of each path checks what this caller may do.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from textevolve.server import identity
from textevolve.server.browser import (
    FORM,
    SAFE_METHODS,
    AsgiMessage,
    AsgiScope,
    Receive,
    Send,
    answer_headers,
    check_csrf,
    check_host,
    check_origin,
    csrf_token,
    host_of,
    is_page,
    largest_body,
    make_cookie,
    media_type,
    read_body,
    read_cookie,
    replay,
    root_of,
    set_root,
)
from textevolve.server.errors import ApiError, bad_request
from textevolve.server.identity import NOBODY, SESSION_SECONDS, THIS_MACHINE, Sender, find_sender
from textevolve.server.options import ServerOptions, is_here
from textevolve.server.state import ServerState

OPEN_PATHS = ("/health", "/login")
"""The paths that need no key, in addition to the files below `/static/`."""
LONGEST_TARGET = 8 * 1024
"""The most bytes of a request's path with its query."""
MOST_HEADERS = 100
LARGEST_HEADERS = 32 * 1024
SEND_SECONDS = 60.0
"""The seconds that a client may pause reading its answer."""
LEADING = (b"location", b"hx-redirect")
"""The headers of answers that hold an address to go to."""
TYPES = (b"application/json", b"application/x-ndjson", b"application/jsonl")
"""The content types of bodies that the API accepts. A page of another site could send bodies of
other types, or without a type, without asking this server for permission."""

_TAKES_SEVERAL = re.compile(r"/v1/studies/[^/]+/records\?status")
"""The path and the parameter of the API that takes several values."""

App: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
log = logging.getLogger("textevolve.server")


class AnswerDropped(ConnectionResetError):
    """The error of an answer that was not sent completely: the client stopped reading, or its key
    became invalid."""


@dataclass(slots=True)
class Guard:
    """An ASGI app that checks each request before it passes the request to the inner app.

    Attributes:
        app: The inner app.
        answer_error: Returns the response for an exception.
    """

    app: App
    options: ServerOptions
    answer_error: Callable[[Request, Exception], Response]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        # HEAD is answered like GET, without the body.
        is_head = scope["method"] == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET"}
        answer = GuardAnswer(scope, send, is_head)
        scope["textevolve.caller"] = NOBODY

        try:
            await self._answer(scope, receive, answer)
        except (AnswerDropped, ClientDisconnect) as error:
            log.info("%s %s dropped: %s", scope["method"], scope["path"], error)
        except ApiError as error:
            log.info("%s %s refused: %s", scope["method"], scope["path"], error.code)
            await self._send_error(scope, receive, answer, error)
        except Exception as error:
            log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            if not answer.began:  # else the server beneath us closes the connection
                await self._send_error(scope, receive, answer, error)

    async def _answer(self, scope: AsgiScope, receive: Receive, answer: GuardAnswer) -> None:
        headers = read_headers(scope)
        set_root(self.options, scope, headers)
        server: ServerState = scope["app"].state.server
        token = read_cookie(scope, headers, "session")
        options = self.options
        keys = options.keys or bool(server.identities.env_key) or not is_here(options.host)
        sender = await find_sender(server.identities, _bearer(headers), token, needed=keys)
        if sender is None:
            sender = _nobody(scope["path"]) if keys else Sender(THIS_MACHINE)
        scope["textevolve.caller"] = sender.caller
        answer.sender = sender
        seed = None
        if not sender.keyed and scope["path"] != "/health":
            check_host(options, headers, needs_key=keys)
            check_origin(scope, headers)
            seed = _set_csrf(scope, headers, answer, sender.token)

        server.limits.take_request(sender.caller)
        largest = largest_body(scope["path"], sender.caller)
        body = await read_body(receive, largest)
        _check_body(scope, headers, body)
        if seed is not None:
            check_csrf(headers, body, seed)
        await self.app(scope, replay(body, receive), answer)

    async def _send_error(
        self, scope: AsgiScope, receive: Receive, answer: GuardAnswer, error: Exception
    ) -> None:
        request = Request(scope, receive)
        response = _ask_for_key(request, error) or self.answer_error(request, error)
        if response.status_code == 401:
            response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, answer)


@dataclass(slots=True)
class GuardAnswer:
    """The sender of one answer. It adds security headers, and stops if the client no longer reads
    or its key becomes invalid.

    Attributes:
        sender: Who sent the request; None before that is known.
        cookie: A Set-Cookie header to add; empty for none.
        is_head: Whether only the headers of the answer are sent.
        began: Whether the beginning of the answer was sent.
        asked_at: When the key was last checked, on the monotonic clock.
    """

    scope: AsgiScope
    send: Send
    is_head: bool = False
    sender: Sender | None = None
    cookie: str = ""
    began: bool = False
    asked_at: float = field(default_factory=time.monotonic)

    async def __call__(self, message: AsgiMessage) -> None:
        """Send a part of the answer.

        Raises:
            AnswerDropped: the client does not read, or its key is no longer valid.
        """
        if message["type"] == "http.response.start":
            self.began = True
            message = {**message, "headers": self._complete(message.get("headers", []))}
        elif self.is_head:
            await self.send({"type": "http.response.body", "body": b""})
            raise AnswerDropped("only its headers were asked for")
        elif message.get("more_body"):
            await self._ask_again()

        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.send(message)
        except TimeoutError:
            raise AnswerDropped("the client stopped reading its answer") from None

    async def _ask_again(self) -> None:
        """Check the client's key again during an answer, since a stream may last longer than its
        key."""
        now = time.monotonic()
        again = self.sender.again if self.sender is not None else None
        if again is None or now - self.asked_at < identity.KEY_SECONDS:
            return
        self.asked_at = now
        if await again() is None:
            raise AnswerDropped("the key is no longer valid")

    def _complete(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Add the security headers and the cookie, and lead addresses of this server below the path
        at which a proxy publishes it."""
        headers = [
            (name, self._lead(value)) if name.lower() in LEADING else (name, value)
            for name, value in headers
        ]
        there = {name.lower() for name, _ in headers}
        ours = [header for header in answer_headers(self.scope) if header[0] not in there]
        cookie = [(b"set-cookie", self.cookie.encode())] if self.cookie else []
        return [*headers, *ours, *cookie]

    def _lead(self, address: bytes) -> bytes:
        parts = urlsplit(address.decode("latin-1"))
        if parts.netloc not in ("", host_of(self.scope)):
            return address
        return (root_of(self.scope) + urlunsplit(("", "", *parts[2:]))).encode("latin-1")


def read_headers(scope: AsgiScope) -> dict[str, bytes]:
    """Read the headers of a request.

    Raises:
        ApiError: 414, the address is too long; 431, the headers are too large; 400, a header that
            must be unique occurs twice.
    """
    raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if target > LONGEST_TARGET:
        raise ApiError(414, "target_too_long", "the address of the request is too long")
    if (
        len(raw_headers) > MOST_HEADERS
        or sum(len(n) + len(v) for n, v in raw_headers) > LARGEST_HEADERS
    ):
        raise ApiError(431, "headers_too_large", "the headers of the request are too large")

    _check_query(scope)
    headers = {name.decode("latin-1").lower(): value for name, value in raw_headers}
    for name in (b"host", b"authorization", b"content-type", b"origin", b"content-encoding"):
        if sum(header_name.lower() == name for header_name, _ in raw_headers) > 1:
            raise bad_request(f"the header {name.decode()} occurs twice")

    return headers


def _check_query(scope: AsgiScope) -> None:
    """Check that the API gets no parameter of a query twice, since one of them would be ignored.

    Raises:
        ApiError: 400, a parameter that takes one value is given twice.
    """
    if is_page(scope["path"]):
        return
    query = (scope.get("query_string") or b"").decode("latin-1")
    counts = Counter(name for name, _ in parse_qsl(query, keep_blank_values=True))
    for name, number in counts.items():
        if number > 1 and not _TAKES_SEVERAL.fullmatch(f"{scope['path']}?{name}"):
            raise bad_request(f"the parameter {name} is given twice", param=name)


def _set_csrf(
    scope: AsgiScope, headers: Mapping[str, bytes], answer: GuardAnswer, token: str
) -> str | None:
    """Store the CSRF token in the scope. Return the text that it is derived from if the request
    must contain the token; otherwise None."""
    seed = token or read_cookie(scope, headers, "csrf")
    page = is_page(scope["path"])
    if not seed and page and scope["method"] == "GET":
        seed = secrets.token_urlsafe(32)
        answer.cookie = make_cookie(scope, "csrf", seed, SESSION_SECONDS)
    scope["textevolve.csrf"] = csrf_token(seed)
    changes = scope["method"] not in SAFE_METHODS

    return seed if changes and (page or token) else None


def _nobody(path: str) -> Sender:
    """Return the sender of a request without a key, if the path needs none.

    Raises:
        ApiError: 401, the path needs a key.
    """
    if path in OPEN_PATHS or path.startswith("/static/"):
        return Sender(NOBODY)
    raise ApiError(
        401,
        "authentication_error",
        "a key of this server is missing; send the header Authorization: Bearer KEY",
    )


def _bearer(headers: Mapping[str, bytes]) -> str:
    scheme, _, sent = headers.get("authorization", b"").partition(b" ")
    return sent.strip().decode("utf-8", "surrogateescape") if scheme.lower() == b"bearer" else ""


def _check_body(scope: AsgiScope, headers: Mapping[str, bytes], body: bytes) -> None:
    """Check the type of a request's body.

    Raises:
        ApiError: 415, the body is compressed or has a wrong type.
    """
    packed = headers.get("content-encoding", b"identity").strip().lower()
    if packed not in (b"", b"identity"):
        raise ApiError(415, "unsupported_encoding", "the body is compressed; send it uncompressed")
    if not body:
        return
    media = media_type(headers)
    if media == FORM and is_page(scope["path"]):
        return
    if media not in TYPES:
        raise ApiError(
            415,
            "unsupported_media_type",
            "the body is not declared as JSON; send JSON with the header Content-Type:"
            " application/json",
        )


def _ask_for_key(request: Request, error: Exception) -> Response | None:
    """Return a redirect to the login page if a browser requested a page without a key; otherwise
    None."""
    if not isinstance(error, ApiError) or error.status != 401:
        return None
    wants_page = b"text/html" in request.headers.get("accept", "").encode()
    if request.method != "GET" or not is_page(request.url.path) or not wants_page:
        return None
    query = f"?{request.url.query}" if request.url.query else ""
    where = f"/login?next={quote(request.url.path + query, safe='')}"
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": where})

    return Response(status_code=303, headers={"location": where})
