"""The checks of every request before it is answered, and the security headers of every answer.

Callers and their limits are in `identity`. The authenticated caller is stored in
`scope["textevolve.caller"]`; the code of each path checks what this caller may do.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from textevolve.errors import TextEvolveError
from textevolve.server import identity
from textevolve.server.errors import ApiError, as_api_error, bad_request, log
from textevolve.server.identity import (
    NOBODY,
    SESSION_SECONDS,
    THIS_MACHINE,
    Caller,
    Sender,
    find_sender,
)
from textevolve.server.options import ServerOptions, is_here, read_root
from textevolve.server.state import ServerState
from textevolve.server.streams import LATER, AnswerDropped

# Read the bodies of requests, up to a size.
#
# A body is read completely before the request is answered. The code of each path interprets the
# content.

MIB = 2**20
LARGEST_BODY = 2 * MIB
"""The most bytes of a request's body on paths that are not in `LARGER`."""
MCP_PATH = "/v1/mcp"
LARGER: Mapping[str, int] = {
    "/v1/studies": 64 * MIB,
    MCP_PATH: 64 * MIB,
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
    body = bytearray()
    size = 0
    more = True

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


# Protection of the server against misuse through browsers: cookies, origins, CSRF tokens, headers.
#
# A browser sends its cookies, and connects to loopback, for any page that it shows. So a request
# that is authenticated by a cookie, or by coming from this machine, must come from a page of this
# server.

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
"""The HTTP methods that change nothing."""
JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"
PROXIED = ("forwarded", "x-real-ip", "via")
"""The headers in which proxies name themselves, or the client of a request, besides the headers
that begin with `x-forwarded-`."""
API = "/v1/"
STATIC = "/static/"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not no-referrer: a browser would then say of our own forms that they come from nowhere.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""The security headers of every answer, unless the answer sets a header of the same name itself."""


def answer_headers(scope: AsgiScope) -> list[tuple[bytes, bytes]]:
    headers = dict(HEADERS)
    headers["cache-control"] = "no-cache" if scope["path"].startswith(STATIC) else "no-store"
    if scope["scheme"] == "https":
        headers["strict-transport-security"] = "max-age=31536000"
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def is_page(path: str) -> bool:
    return not path.startswith((API, STATIC)) and path not in ("/health", "/openapi.json")


TRUSTED = "textevolve.trusted"
ROOT = "textevolve.root"
"""The names in a request's scope: whether it comes from a trusted proxy, and the path below which
that publishes the server."""


def host_of(scope: AsgiScope) -> str:
    headers: Sequence[tuple[bytes, bytes]] = scope.get("headers") or ()
    return next((value.decode("latin-1") for name, value in headers if name == b"host"), "")


def root_of(scope: AsgiScope) -> str:
    return scope.get(ROOT, "")


def set_root(options: ServerOptions, scope: AsgiScope, headers: Mapping[str, bytes]) -> None:
    """Store in the scope the path below which a proxy publishes the server, and remove that path
    from the path of the request if the proxy has not removed it.

    Raises:
        ApiError: 400, the proxy sends a path that is none.
    """
    sent = headers.get("x-forwarded-prefix")

    if scope.get(TRUSTED) and sent is not None:
        root = read_root(sent.decode("latin-1"))
        if root is None:
            raise bad_request("X-Forwarded-Prefix: is not a path, such as /te")
        scope[ROOT] = root
        return

    root = scope[ROOT] = options.root_path
    path: str = scope["path"]
    if root and (path == root or path.startswith(f"{root}/")):
        scope["path"] = path.removeprefix(root) or "/"
        raw: bytes = scope.get("raw_path") or b""
        scope["raw_path"] = raw.removeprefix(root.encode())


def cookie_name(scope: AsgiScope, kind: str) -> str:
    """Return the name of a cookie. It contains the port that the browser uses, unless that is the
    usual one of https, since a browser sends the cookies of one port of a machine to all its
    ports."""
    port = host_of(scope).rpartition(":")[2]
    if not (port.isascii() and port.isdigit()):
        port = ""
    if scope["scheme"] != "https":
        return f"te_{kind}_{port or (scope.get('server') or ('', 0))[1]}"
    # The browser lets cookies of the first kind have no path but the root.
    prefix = "__Secure-" if root_of(scope) else "__Host-"

    return f"{prefix}te_{kind}_{port}" if port else f"{prefix}te_{kind}"


def read_cookie(scope: AsgiScope, kind: str) -> str:
    """Return the value of a cookie of this server; empty if the request has none."""
    return Request(scope).cookies.get(cookie_name(scope, kind), "")


def make_cookie(scope: AsgiScope, kind: str, value: str, seconds: float) -> str:
    """Return a Set-Cookie header for a cookie that scripts cannot read and other sites cannot
    send."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    cookie = f"{cookie_name(scope, kind)}={value}"
    path = root_of(scope) or "/"
    return f"{cookie}; Path={path}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"


def csrf_token(seed: str) -> str:
    """Return the CSRF token for forms, derived from the session's token or, without a session, from
    a cookie. Another site can read neither."""
    return hashlib.sha256(f"csrf {seed}".encode()).hexdigest() if seed else ""


def check_host(options: ServerOptions, headers: Mapping[str, bytes], *, needs_key: bool) -> None:
    """Check the host name, as another site's page may reach the server by a name that points to it
    (DNS rebinding).

    Raises:
        ApiError: 403, the name does not belong to this server, or a proxy forwards the request
            although the server requires no key.
    """
    host = headers.get("host", b"").decode("latin-1").lower()

    if not needs_key and any(map(_is_of_proxy, headers)):
        raise ApiError(
            403,
            "forbidden_host",
            "the request comes through a proxy, which is allowed only with keys: start"
            " the server with --keys",
        )

    if is_here(host):
        return
    name = _name_of(host)
    names = [known_name.lower() for known_name in (*options.allow_host, options.host.strip("[]"))]
    # DNS cannot redirect a numeric IP address.
    is_address = ":" in name or name.replace(".", "").isdigit()
    if needs_key and name and (name in names or is_address):
        return
    message = "the server does not accept this host name"
    advice = (
        "; its operator adds it with --allow-host NAME"
        if needs_key
        else ": use localhost on this machine"
    )
    raise ApiError(403, "forbidden_host", message + advice)


def check_origin(scope: AsgiScope, headers: Mapping[str, bytes]) -> None:
    """Check that a request does not come from a page of another site. Links from elsewhere to pages
    are allowed, since they change nothing.

    Raises:
        ApiError: 403, the request comes from another site, or sends a form without naming its page.
    """
    site = headers.get("sec-fetch-site", b"")
    origin = headers.get("origin", b"").decode("latin-1").lower()
    of_page = is_page(scope["path"])
    safe = scope["method"] in SAFE_METHODS
    if of_page and safe:  # a link from elsewhere leads to a page
        return
    same_origin = origin in _server_origins(scope, headers) or (
        origin == "null" and site == b"same-origin"
    )

    if site in (b"cross-site", b"same-site") or (origin and not same_origin):
        raise ApiError(
            403,
            "forbidden_origin",
            "the request comes from a page of another site: use this server's own pages, or a"
            " client that is not a browser",
        )

    if of_page and media_type(headers) == JSON:  # no page sends it
        path = scope["path"][:80]
        raise ApiError(404, "not_found", f"no such path; the API has it at /v1{path}, if at all")
    if of_page and not origin:
        raise ApiError(
            403,
            "forbidden_origin",
            "the request does not say which page it comes from: send the header Origin",
        )


def check_csrf(headers: Mapping[str, bytes], body: bytes, seed: str) -> None:
    """Check that a form or the header X-CSRF-Token contains the CSRF token.

    Raises:
        ApiError: 403, neither contains the token.
    """
    sent = headers.get("x-csrf-token", b"").decode("latin-1")
    if not sent and media_type(headers) == FORM:
        with suppress(ValueError):
            sent = parse_form(body).get("csrf", "")

    if not seed or not hmac.compare_digest(sent.encode(), csrf_token(seed).encode()):
        raise ApiError(403, "forbidden_csrf", "the page has expired; reload it")


def media_type(headers: Mapping[str, bytes]) -> bytes:
    return headers.get("content-type", b"").split(b";")[0].strip().lower()


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form by their names; of a repeated field, the last value.

    Raises:
        ValueError: the body is not a form.
    """
    return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))


def _server_origins(scope: AsgiScope, headers: Mapping[str, bytes]) -> Sequence[str]:
    """Return the server's origins, with https too, as a proxy in front may terminate TLS."""
    host = headers.get("host", b"").decode("latin-1").lower()
    return (
        (f"https://{host}",)
        if scope["scheme"] == "https"
        else (f"http://{host}", f"https://{host}")
    )


def _is_of_proxy(header: str) -> bool:
    return header in PROXIED or header.startswith("x-forwarded-")


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


# The guard, which applies all of these checks to a request.

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


App: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


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
        except Exception as error:
            if isinstance(error, ApiError | TextEvolveError):
                code = as_api_error(error).code
                log.info("%s %s refused: %s", scope["method"], scope["path"], code)
            else:
                log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            await self._send_error(scope, receive, answer, error)

    async def _answer(self, scope: AsgiScope, receive: Receive, answer: GuardAnswer) -> None:
        headers = read_headers(scope)
        set_root(self.options, scope, headers)
        server: ServerState = scope["app"].state.server
        token = read_cookie(scope, "session")
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
        inner_scope = dict(scope)
        await self.app(inner_scope, replay(body, receive), answer)
        later = inner_scope.get(LATER)
        del inner_scope  # it holds what the framework made for the request
        if later:
            await later(scope, receive, answer)

    async def _send_error(
        self, scope: AsgiScope, receive: Receive, answer: GuardAnswer, error: Exception
    ) -> None:
        if answer.began:  # the server beneath us closes the connection
            return
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
        completed: list[tuple[bytes, bytes]] = []
        for name, value in headers:
            completed.append((name, self._lead(value) if name.lower() in LEADING else value))

        # A header that a page set itself stays.
        present = {name.lower() for name, _ in headers}
        completed += [header for header in answer_headers(self.scope) if header[0] not in present]
        if self.cookie:
            completed.append((b"set-cookie", self.cookie.encode()))

        return completed

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
        # Records are chosen by several statuses.
        takes_several = r"/v1/studies/[^/]+/records\?status"
        if number > 1 and not re.fullmatch(takes_several, f"{scope['path']}?{name}"):
            raise bad_request(f"the parameter {name} is given twice", param=name)


def _set_csrf(
    scope: AsgiScope, headers: Mapping[str, bytes], answer: GuardAnswer, token: str
) -> str | None:
    """Store the CSRF token in the scope. Return the text that it is derived from if the request
    must contain the token; otherwise None."""
    seed = token or read_cookie(scope, "csrf")
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
