"""Responses that end with their clients: whoever has gone is not worked for any longer.

Here too: answers as server-sent events in OpenAI's form. What stands in them is not known here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from textevolve.errors import TextEvolveError
from textevolve.server.decisions.serving import Serving
from textevolve.server.errors import ApiError, as_api_error, openai_error

log = logging.getLogger("textevolve.server")

SILENCE = 15.0
"""Seconds without a word, after which a sign of life is sent, so that no proxy gives up."""
SIGN_OF_LIFE = b": still at work\n\n"
DONE = b"data: [DONE]\n\n"


class WhileConnected(Response):
    """Makes a response and sends it; `linger` seconds after its client has gone, the work for it is
    cancelled."""

    def __init__(self, make: Callable[[], Awaitable[Response]], linger: float) -> None:
        super().__init__()
        self._make, self._linger = make, linger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            response = await self._make()
            await response(scope, receive, send)

        working = asyncio.ensure_future(work())
        gone = asyncio.ensure_future(_await_disconnect(receive))
        try:
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait((working,), timeout=self._linger)
        finally:
            gone.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        if not working.cancelled():
            working.result()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends the parts of a stream as they come. One that fails ends with an event that says why,
    since its status has been sent."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes], serving: Serving) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._parts, self._serving = parts, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._parts) as parts, self._serving.in_time():
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except (TextEvolveError, ApiError) as error:
            await _send_error(send, as_api_error(error))
        except Exception as error:
            log.error("%s failed in the middle of a stream", scope["path"], exc_info=error)
            await _send_error(send, as_api_error(error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_error(send: Send, error: ApiError) -> None:
    # A part of an event may have been sent before.
    body = b"\n\n" + event_of(openai_error(error))
    await send({"type": "http.response.body", "body": body, "more_body": True})


def event_of(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event, in ASCII."""
    kind = f"event: {name}\n" if name else ""
    return f"{kind}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def begun(events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same events, of which the first is there or said to be long in coming: what fails before
    has a status of its own."""
    first = asyncio.ensure_future(anext(events, None))
    try:
        await asyncio.wait((first,), timeout=SILENCE)
    except asyncio.CancelledError:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await events.aclose()
        raise
    if first.done():
        first.result()
    return _with_signs(first, events)


async def _with_signs(
    coming: asyncio.Future[bytes | None], events: AsyncGenerator[bytes]
) -> AsyncGenerator[bytes]:
    """The events, with signs of life where none comes for long."""
    try:
        while True:
            while not coming.done():
                done, _ = await asyncio.wait((coming,), timeout=SILENCE)
                if not done:
                    yield SIGN_OF_LIFE
            if (event := coming.result()) is None:
                return
            yield event
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()
