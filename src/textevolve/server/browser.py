"""Protection of the server against misuse through browsers: cookies, origins, CSRF tokens, headers.

A browser sends its cookies, and connects to loopback, for any page that it shows. So a request that
is authenticated by a cookie, or by coming from this machine, must come from a page of this server.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from starlette.requests import cookie_parser

from textevolve.server.errors import ApiError, bad_request
from textevolve.server.identity import Caller
from textevolve.server.options import ServerOptions, is_here, read_root

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


def read_cookie(scope: AsgiScope, headers: Mapping[str, bytes], kind: str) -> str:
    cookies = cookie_parser(headers.get("cookie", b"").decode("latin-1"))
    return cookies.get(cookie_name(scope, kind), "")


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
        sent = _form_token(body)
    if not seed or not hmac.compare_digest(sent.encode(), csrf_token(seed).encode()):
        raise ApiError(403, "forbidden_csrf", "the page has expired; reload it")


def media_type(headers: Mapping[str, bytes]) -> bytes:
    return headers.get("content-type", b"").split(b";")[0].strip().lower()


def _form_token(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode(), max_num_fields=100)
    except ValueError:
        return ""

    return fields.get("csrf", [""])[-1]


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
