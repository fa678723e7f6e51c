"""HTTP connections to one host: keys, proxies, time limits, and limits for the size of answers.

All calls of endpoints and services go through this module, so their keys are written into headers
here alone. `JsonService` is a client of any service that exchanges JSON, such as a memory system.
`Relay` forwards clients' requests to an endpoint, with only the model's name and the key replaced,
so all features of the endpoint (tools, schemas, images) work.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from yarl import URL

from textevolve.errors import (
    AccessError,
    AnswerError,
    ModelError,
    RejectedError,
    SettingsError,
    UnavailableError,
)
from textevolve.json_texts import as_object
from textevolve.llm.meter import UsageReader, hides_usage
from textevolve.llm.prices import find_price
from textevolve.llm.providers import SETTINGS, Endpoint, Key
from textevolve.llm.refusals import RETRIED, Refusal, failure, one_line, read_refusal, retry_after
from textevolve.loading import late_module
from textevolve.protocol.chat import encode
from textevolve.proxies import find_proxy
from textevolve.settings import LARGEST_ANSWER, Timeouts

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = late_module("aiohttp")

MIB = 2**20
LARGE = MIB
"""The size in bytes from which a body is passed to aiohttp as a stream, as aiohttp requires."""
CONNECTIONS = 1024
REAL_KEY = 8
"""The fewest characters of a real key. Shorter ones are placeholders ("none", "EMPTY"), which may
occur in an answer as words, so they are not removed from answers."""
LONG_VALUE = 16
"""The fewest characters of a header's value in the settings that counts as a secret."""
DONE_SECONDS = 1.0
"""The seconds that a stream has to end after it said that it is complete."""
LOGIN_SECONDS = 240.0
"""The seconds after which a login is asked for another key. Both logins renew their keys five
minutes or more before these expire."""
PROXY_STATUSES = (403, 502, 503, 504)
"""The statuses of a proxy's own answers, if it cannot reach the endpoint or does not allow it."""
_BLANK = b"\xef\xbb\xbf \r\n\t"
_SIGNS = re.compile(rb"(?:\xef\xbb\xbf|\s+|:[^\n]*\n)+")
_TITLE = re.compile(r"<title[^>]*>([^<]+)", re.IGNORECASE)


def without_signs(raw: bytes) -> bytes:
    """Return a body without what may stand before its JSON: a byte-order mark, and the blanks and
    comments of event streams that gateways send as signs of life, also where nobody streams."""
    match = _SIGNS.match(raw)
    return raw[match.end() :] if match else raw


class Http:
    """The HTTP connections to one host. Only this class writes an endpoint's key into a header, and
    it removes keys from answers."""

    def __init__(
        self,
        name: str,
        base_url: str,
        key: Key | SecretStr | None,
        timeouts: Timeouts,
        connections: int,
        largest_answer: int = LARGEST_ANSWER,
        headers: Mapping[str, Key] | None = None,
    ) -> None:
        """Prepare the connections; they open with the first request. `headers`: headers of each
        request. Their values count as secrets, except short ones from the settings, such as a
        provider's name, which may occur in answers as words."""
        self.name = name
        values = headers or {}
        self._headers = {n: _header_text(name, value.secret, n) for n, value in values.items()}
        self.secrets = tuple(
            text
            for n, text in self._headers.items()
            if values[n].source != SETTINGS or len(text) >= LONG_VALUE
        )
        self._renew = key.renew if isinstance(key, Key) else None
        self._renewed = -math.inf
        self._logged_in: dict[str, str] = {}
        self._renewing = asyncio.Lock()
        if key is not None and self._renew is None:
            text = _header_text(name, key.secret if isinstance(key, Key) else key)
            self._headers |= self._authorise(text)

        self._timeouts = timeouts
        self._connections = connections
        self._largest = largest_answer * MIB
        self._base = URL(base_url)
        self.answered = False
        """True once the endpoint has answered a request. Its address is right then, and a page in a
        later answer is not that of a proxy that cannot reach it."""
        self._proxy = find_proxy(base_url)
        if self._proxy is not None:
            self.secrets = (*self._proxy.secrets, *self.secrets)
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def exchange(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        unbounded: bool = False,
        hears: Callable[[bytes], bool] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request, and return the status, the headers and the body of the answer.
        `unbounded`: only connecting has a time limit. `hears`: called with each part of the body as
        it arrives, if the status is 200, until it returns that the answer is complete; keys are
        not removed from the parts."""
        limit = self._limit(None) if unbounded else None
        answer = await self._send(method, url, body, extra, limit)
        return answer.status, answer.headers, await answer.read_all(hears)

    async def begin(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        *,
        quiet: float | None,
    ) -> BegunAnswer:
        """Send a request, and return as soon as the status and the headers are there; the body is
        read later. `quiet`: seconds without any data after which the answer counts as broken off;
        None: no limit.

        Raises:
            UnavailableError, AccessError: no answer began to arrive.
        """

        return await self._send(method, url, body, extra, self._limit(quiet))

    def _limit(self, quiet: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(sock_connect=self._timeouts.connect, sock_read=quiet)

    async def _send(
        self,
        method: str,
        url: URL,
        body: bytes | None,
        extra: Mapping[str, str] | None,
        limit: aiohttp.ClientTimeout | None,
    ) -> BegunAnswer:
        """Send a request, and return with the head of the answer.

        Errors are raised outside of the `except` block, so that they do not refer to an aiohttp
        error, which may hold the headers.
        """
        data = io.BytesIO(body) if body is not None and len(body) > LARGE else body
        session = self._session or self._open()
        if self._renew is not None:
            extra = {**(extra or {}), **await self._log_in(self._renew)}

        try:
            answer = await session.request(
                method,
                url,
                data=data,
                headers=extra,
                proxy=self._proxy and self._proxy.url,
                allow_redirects=False,
                timeout=limit or session.timeout,
            )
            if answer.status != 407 or self._proxy is None:
                return BegunAnswer(self, answer)
            answer.close()
            failed = self._refused_by_proxy(407, "it wants a password")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failed = self.unreachable(error)

        raise failed

    def _authorise(self, key: str) -> dict[str, str]:
        """Return the header with a key, which counts as a secret from now on."""
        self.secrets = tuple(dict.fromkeys((key, *self.secrets)))
        return {"Authorization": f"Bearer {key}"}

    async def _log_in(self, renew: Callable[[], str]) -> dict[str, str]:
        """Return the header with a key of the login, which is renewed every few minutes.

        Raises:
            AccessError: the login gives no key.
        """
        async with self._renewing:
            if time.monotonic() - self._renewed > LOGIN_SECONDS:
                try:
                    self._logged_in = self._authorise(await asyncio.to_thread(renew))
                except Exception as error:  # noqa: BLE001 - a login raises what it likes
                    reason = self.scrub(str(error)) or type(error).__name__
                    raise AccessError(f"{self.name}: the login gives no key: {reason}") from None
                self._renewed = time.monotonic()

        return self._logged_in

    async def read(
        self, answer: aiohttp.ClientResponse, hears: Callable[[bytes], bool] | None
    ) -> bytes:
        """Read the body, with its size counted after unpacking. A refusal that is too large is cut;
        any other answer that is too large raises `AnswerError`."""
        content = answer.content
        if hears is None:  # nearly always all of it is there with the first part
            first_part = await content.readany()
            if content.at_eof() and len(first_part) <= self._largest:
                return first_part
        else:
            first_part = b""

        body = bytearray(first_part)

        async for part in answer.content.iter_any():
            body += part
            if len(body) > self._largest:
                answer.close()  # else the rest of it would be waited for
                if answer.status >= 300:
                    break
                raise AnswerError(
                    f"{self.name}: the answer is larger than {self._largest // MIB} MiB; raise"
                    " `largest_answer` in the settings if it should be"
                )

            if hears is not None and answer.status == 200 and hears(part):
                # Some leave the connection open; one that ends now is used again.
                with suppress(TimeoutError, aiohttp.ClientError):
                    await asyncio.wait_for(content.read(), DONE_SECONDS)
                break

        return bytes(body[: self._largest])

    def read_json(self, path: str, raw: bytes) -> Any:
        """Parse the body of an answer as JSON.

        Raises:
            UnavailableError: the body is not JSON.
        """
        try:
            return json.loads(without_signs(raw))
        except (ValueError, RecursionError):
            pass  # raised below, so that no error of ours refers to one that holds the answer

        self.refuse_page(raw)
        raise UnavailableError(
            f"{self.name}: the answer of {path} is not JSON: {self.describe_body(raw)}"
        )

    def failure(
        self,
        status: int,
        refusal: Refusal,
        headers: Mapping[str, str] | None = None,
        images: bool = False,
    ) -> ModelError:
        """Convert an endpoint's refusal into an error. `images`: the request had images."""
        if failed := self.failure_on_the_way(status, refusal, headers):
            return failed
        # Until the endpoint has answered, nobody knows which of the two refuses.
        is_doubtful = self._forwards and not self.answered
        failed = failure(
            f"{self.name} through the proxy {self._proxy}" if is_doubtful else self.name,
            status,
            refusal,
            wait=retry_after(headers or {}),
            secrets=self.secrets,
            images=images,
            answered=self.answered,
        )
        if is_doubtful and isinstance(failed, UnavailableError) and status in PROXY_STATUSES:
            failed.status = None
            failed.address = self._base.authority

        return failed

    def failure_on_the_way(
        self, status: int, refusal: Refusal, headers: Mapping[str, str] | None = None
    ) -> AccessError | UnavailableError | None:
        """Return the error of an answer that is not the endpoint's: it leads elsewhere, asks for a
        login to the network, or is a proxy's page before the endpoint has ever answered. None for
        an answer that may be the endpoint's."""
        if 300 <= status < 400 or status == 511:
            place = self.scrub((headers or {}).get("Location", "")) or "no address"
            target = "asks for a login" if status == 511 else f"redirects to {place}"
            return AccessError(
                f"{self.name}: {self._way} {target} ({status}); if that is another address of the"
                " endpoint, write it in the place of the first; if it is a login page of the"
                " network, log in, then resume the run"
            )
        is_foreign = self._forwards and not self.answered and refusal.is_plain
        if not is_foreign or status not in PROXY_STATUSES:
            return None

        return self._refused_by_proxy(status, self.describe_body(refusal.message.encode()))

    def refuse_page(self, raw: bytes) -> None:
        """Check that the body of an answer with status 200 is not a web page, such as the login
        page of a network.

        Raises:
            UnavailableError: it is. Before the endpoint's first answer it counts as no connection.
        """
        if not raw[:100].lstrip(_BLANK).startswith(b"<"):
            return
        raise UnavailableError(
            f"{self.name}: status 200, but {self._way} answers with a web page:"
            f" {self.describe_body(raw)}; check the address, or log in to the network if it asks"
            " for a login",
            address="" if self.answered else self._base.authority,
        )

    @property
    def _forwards(self) -> bool:
        """Return whether a proxy can answer in place of the endpoint: it can if the requests go
        over http. With https it only passes on encrypted bytes."""
        return self._proxy is not None and self._base.scheme == "http"

    @property
    def _way(self) -> str:
        """Whoever may have given an answer, for messages."""
        return self._base.authority + (f" through the proxy {self._proxy}" if self._proxy else "")

    def _open(self) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json", "User-Agent": "textevolve"}
        headers |= self._headers
        limits = self._timeouts
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=limits.total, sock_connect=limits.connect, sock_read=limits.read
            ),
        )

        return self._session

    def _refused_by_proxy(self, status: int, reason: str) -> AccessError | UnavailableError:
        """Return the error of a proxy that does not connect. Where it refuses, another try is no
        use; where it does not reach the endpoint, it counts as no connection."""
        message = (
            f"{self.name}: the proxy {self._proxy} refused the connection to"
            f" {self._base.authority} ({status}: {reason}); correct the proxy's address, or name"
            " the host in NO_PROXY"
        )
        if status in (401, 403, 407):
            return AccessError(message)

        return UnavailableError(message, address=self._base.authority)

    def unreachable(self, error: Exception) -> ModelError:
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._refused_by_proxy(error.status, self.scrub(error.message))
        details = self.scrub(str(error))
        address = self._base.authority
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            address = f"{address} through the proxy {self._proxy}"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return AccessError(f"{self.name}: {address}: its certificate is not trusted: {details}")
        details = details or type(error).__name__
        reasons: list[tuple[type[Exception], str]] = [
            (aiohttp.ConnectionTimeoutError, "no connection in {connect:g} s"),
            (
                TimeoutError,
                "no complete answer within the timeouts (read {read:g} s, total {total:g} s)",
            ),
            (aiohttp.ClientConnectorError, "cannot connect: {details}"),
            (aiohttp.ClientPayloadError, "the connection closed before the end of the answer"),
            (Exception, "the connection failed: {details}"),
        ]
        texts = (text for kind, text in reasons if isinstance(error, kind))
        reason = next(texts).format(details=details, **self._timeouts.model_dump())
        unconnected = isinstance(
            error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError
        )

        return UnavailableError(
            f"{self.name}: {address}: {reason}", address=address if unconnected else ""
        )

    def without_key(self, raw: bytes) -> bytes:
        """Replace the key and secret headers in an answer's body, so that an endpoint that repeats
        them does not bring them into the journal. Secrets shorter than `REAL_KEY` characters
        stay."""
        for secret in self.secrets:
            if len(secret) >= REAL_KEY and secret.encode() in raw:
                raw = raw.replace(secret.encode(), b"[key]")
        return raw

    def describe_body(self, raw: bytes) -> str:
        """Return the beginning of a body on one line; of a web page its title, if it has one."""
        text = raw[:2000].lstrip(_BLANK).decode("utf-8", "replace")
        if text.startswith("<") and (title := _TITLE.search(text)):
            text = title[1]
        return self.scrub(text) or "nothing"

    def scrub(self, text: str) -> str:
        return one_line(text, self.secrets)


class BegunAnswer:
    """An answer whose status has arrived and whose body has not been read. Closing it early ends
    the call.

    Attributes:
        status: The HTTP status.
        headers: The headers of the answer.
    """

    def __init__(self, http: Http, answer: aiohttp.ClientResponse) -> None:
        self._http = http
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def parts(self) -> AsyncGenerator[bytes]:
        """Yield the parts of the body as they arrive, with our keys removed unless a key is split
        between parts.

        Raises:
            UnavailableError: the answer broke off.
        """
        try:
            async for part in self._answer.content.iter_any():
                yield self._http.without_key(part)
            return
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failed = self._http.unreachable(error)
        finally:
            self.close()

        raise failed

    async def read_all(self, hears: Callable[[bytes], bool] | None = None) -> bytes:
        """Read the whole body.

        Raises:
            AnswerError: the body is larger than the limit. UnavailableError: the answer broke off.
        """
        try:
            return self._http.without_key(await self._http.read(self._answer, hears))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failed = self._http.unreachable(error)
        finally:
            self.close()

        raise failed

    def close(self) -> None:
        self._answer.close()


def _header_text(name: str, key: SecretStr, header: str = "") -> str:
    """Return the text of the key or another header, after a check that it is valid in a header."""
    text = key.get_secret_value().strip()
    fit = text and text.isascii() and text.isprintable() and (header or " " not in text)
    if not fit:
        subject = f"the header {header}" if header else "the key"
        raise SettingsError(f"{name}: {subject} is empty or has invalid characters; copy it again")
    return text


class JsonService(Http):
    """A client of a service that exchanges JSON; `aclose` closes its connections.

    A refusal is read by its status: the words of a service have another meaning than those of a
    model's endpoint. Before the first successful answer a 403 or 404 raises `AccessError`, since
    the address or the key is probably wrong; later it raises `RejectedError`, since the service
    may refuse a single request.
    """

    def __init__(
        self,
        base_url: str,
        *,
        name: str,
        key: Key | SecretStr | None = None,
        timeouts: Timeouts,
        largest_answer: int = LARGEST_ANSWER,
        headers: Mapping[str, Key] | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        most = SERVICE_CONNECTIONS
        super().__init__(name, self.base_url, key, timeouts, most, largest_answer, headers)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
    ) -> Any:
        """Send a JSON body, and return the service's answer, parsed from JSON.

        Raises:
            UnavailableError: the call is worth another try; also if the answer is not JSON.
            AccessError: the key or the address is wrong.
            RejectedError: the service refuses this one request.
            AnswerError: the answer is larger than `largest_answer` MiB.
        """
        data = None if body is None else encode(body)
        _, raw = await self.send(path, data, headers, method=method)

        return self.read_json(path, raw)

    async def send(
        self,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
    ) -> tuple[Mapping[str, str], bytes]:
        """Send a body, and return the headers and the body of the answer; raises as `post`."""
        url = URL(self.base_url + path)
        status, answered, raw = await self.exchange(method, url, body, headers)
        if not 200 <= status < 300:
            raise self._failure(path, status, read_refusal(raw), answered)
        self.answered = True

        return answered, raw

    def _failure(
        self, path: str, status: int, refusal: Refusal, headers: Mapping[str, str]
    ) -> ModelError:
        failed = self.failure_on_the_way(status, refusal, headers)
        if failed is not None and status >= 400:
            return failed
        message = self.scrub(refusal.message) or "no reason given"
        refused = "refuses the key" if status == 401 else "refused"
        line = f"{self.name}{path}: {refused} ({status}): {message}"
        wait = retry_after(headers)
        wait = refusal.wait if wait is None else wait
        if status == 403 and wait is not None:  # a limit, as some gateways answer it
            return UnavailableError(line, status=429, retry_after=wait)
        if status in RETRIED or (status >= 500 and status != 501):
            line = f"{self.name}{path}: {status}: {message}"
            return UnavailableError(line, status=status, retry_after=wait)
        if failed is not None:  # an application may lead one row elsewhere, for what it says
            line = f"{line}; it redirects to {self.scrub(headers.get('Location', 'nowhere'))}"
        if (failed is None and status not in CHECKS) or self.answered:
            return RejectedError(line)

        error = AccessError(f"{line}; {CHECKS.get(status, CHECK)}")
        error.of_text = status != 401

        return error


CHECK = "check the service's address"
CHECKS = {
    401: "check the key",
    402: "check the account",
    403: "check the key and the account",
    **dict.fromkeys((404, 405, 501), CHECK),
}
"""The statuses that may refuse all requests of a client, with what to check."""
SERVICE_CONNECTIONS = 128
RELAYED_CONNECTIONS = 4096
"""The most requests that are forwarded to one endpoint at a time; further ones wait."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An endpoint's answer that refuses a request. `status`: the HTTP status; `refusal`: the
    reason; `retry_after`: the seconds to wait before another try; None if the endpoint names
    none."""

    status: int
    refusal: Refusal
    retry_after: float | None


class Relay(Http):
    """A forwarder of requests to one endpoint. `name`: the spec of the endpoint's model.
    `unbounded`: answers have no time limit."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts,
        largest_answer: int,
        *,
        unbounded: bool = False,
    ) -> None:
        self.model = endpoint.model
        self._base_url = endpoint.base_url
        self._quiet = None if unbounded else timeouts.read
        super().__init__(
            endpoint.spec,
            endpoint.base_url,
            endpoint.key,
            timeouts,
            RELAYED_CONNECTIONS,
            largest_answer,
            endpoint.headers,
        )
        self.price = find_price(endpoint)
        self.reports_cost = endpoint.reports_cost and endpoint.price is None
        self.reports_streams = True
        """Whether the endpoint takes the wish for the usage of a stream, as nearly all do."""

    async def post(self, path: str, body: Mapping[str, Any]) -> BegunAnswer:
        """Forward a request with the endpoint's own model name. The usage of a stream is requested
        even if the client does not want it, since the client is charged by it. The caller has to
        read the answer to its end, or close it.

        Raises:
            UnavailableError, AccessError: no answer began to arrive.
        """
        sent = {**body, "model": self.model}
        if self.reports_streams and hides_usage(body):
            options = {**as_object(body.get("stream_options")), "include_usage": True}
            sent["stream_options"] = options
        url = URL(self._base_url + path)
        return await self.begin("POST", url, encode(sent), quiet=self._quiet)

    async def refusal_of(self, answer: BegunAnswer, reader: UsageReader) -> Refused:
        """Read the refusal in an answer whose status is not 200; `reader` reads its usage."""
        raw = await answer.read_all()
        reader.read(raw)
        refusal = read_refusal(raw)
        message = self.scrub(refusal.message) or "no reason given"
        return Refused(
            answer.status, replace(refusal, message=message), retry_after(answer.headers)
        )
