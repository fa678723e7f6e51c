"""Requests to a TextEvolve server: JSON, files, and event streams that resume after a broken
connection.

`runs` decides what is requested.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, urlsplit

from yarl import URL

from textevolve.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    SettingsError,
    StoreError,
    TextEvolveError,
    UnavailableError,
)
from textevolve.events import CallRetried, Listener
from textevolve.llm.connections import Http
from textevolve.llm.providers import find_key, is_loopback
from textevolve.settings import Settings

KEY = "TEXTEVOLVE_SERVER_KEY"  # the environment variable with the key for the server
QUIET = 60.0
"""The seconds without data after which a stream of events counts as broken; a server sends
something every 15 seconds."""
LARGEST_EVENT = 64 * 2**20
"""The largest size of an event, in bytes."""
FIRST_WAIT, LONGEST_WAIT, PATIENCE = 0.5, 15.0, 600.0
"""The seconds before the first attempt to reconnect, the longest wait between two attempts, and the
total time after which there are no more."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a server's stream. `name`: its type; `id`: its id, empty if the server sent
    none; `data`: its JSON."""

    name: str
    id: str
    data: Any


class Connection:
    """An open connection to the server at this address; close it, or use `async with`.

    Raises:
        SettingsError: the key cannot be used.
    """

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        host = urlsplit(address).netloc
        key = find_key(host, KEY, ask_keyring=not is_loopback(address))
        if key is not None and not address.startswith("https:") and not is_loopback(address):
            raise SettingsError(
                f"{address}: a key is only sent over https; give the server's https address"
            )
        timeouts, largest = settings.timeouts, max(settings.largest_answer, 256)
        self._http = Http(f"server {host}", address, key, timeouts, 8, largest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the server's answer; None for an empty body.

        Raises:
            UnavailableError: the server cannot be reached, or is overloaded.
            NotFoundError, ConflictError, InputError, SettingsError, StoreError: the server rejected
                the request.
        """
        data = None if body is None else json.dumps(body).encode()
        status, _, raw = await self._http.exchange(method, self._url(path), data)
        if not 200 <= status < 300:
            raise self._refusal(status, raw)
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise UnavailableError(
                f"{self.address}: the answer is not JSON, so this is not a TextEvolve server"
            ) from None

    async def listen(self, path: str, listener: Listener) -> AsyncGenerator[ServerEvent]:
        """Yield the events of a path, each once. If the stream breaks off, it is resumed after the
        last event that had an id. The caller stops reading at the last event that it expects.

        Raises:
            UnavailableError: the server has been unreachable for ten minutes. Further errors as in
                `ask`.
        """
        loop = asyncio.get_running_loop()
        last, attempt, since = "", 0, loop.time()
        while True:
            try:
                async with aclosing(self._events(path, last)) as events:
                    async for event in events:
                        last, attempt, since = event.id or last, 0, loop.time()
                        yield event
                raise UnavailableError(f"{self.address}: the stream of events ended early")
            except UnavailableError as error:
                if loop.time() - since > PATIENCE:
                    raise
                attempt += 1
                wait = error.retry_after or min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1))
                listener(CallRetried(self.address, str(error), attempt, wait))
                await asyncio.sleep(wait)

    async def _events(self, path: str, last: str) -> AsyncGenerator[ServerEvent]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        buffer = b""
        answer = await self._http.begin("GET", self._url(path), extra=headers, quiet=QUIET)
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                buffer += part
                if len(buffer) > LARGEST_EVENT:
                    raise StoreError(f"{self.address}: an event is larger than 64 MiB")
                if answer.status != 200:
                    continue
                *blocks, buffer = buffer.split(b"\n\n")
                for block in blocks:
                    lines = block.decode("utf-8", "replace").split("\n")
                    fields = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
                    if "data" in fields:
                        data = json.loads(fields["data"])
                        yield ServerEvent(fields.get("event", ""), fields.get("id", ""), data)
        if answer.status != 200:
            raise self._refusal(answer.status, buffer)

    def _url(self, path: str) -> URL:
        return URL(self.address + path, encoded=True)

    def _refusal(self, status: int, raw: bytes) -> TextEvolveError:
        try:
            text = json.loads(raw)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            text = self._http.describe_body(raw)
        message = self._http.scrub(str(text))
        if status in (408, 429) or status >= 500:
            return UnavailableError(f"{self.address}: {message}", status=status)
        if status in (401, 403):
            return SettingsError(
                f"{self.address}: {message}; the key is read from {KEY}, or from the keyring"
            )
        kinds = {404: NotFoundError, 409: ConflictError, 400: InputError, 422: InputError}
        kind = kinds.get(status, StoreError)
        is_ours = b'"code":"' in raw  # as in all refusals of this package's servers
        where = "" if is_ours and kind in (InputError, NotFoundError) else f"{self.address}: "
        return kind(where + message)


def part(name: str) -> str:
    """Quote a name for use as one segment of a URL's path."""
    return quote(name, safe="")
