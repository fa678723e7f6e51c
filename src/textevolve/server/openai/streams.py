"""Responses that end with their clients: whoever has gone is not worked for any longer.

Here too: answers as server-sent events in OpenAI's form. What stands in them is not known here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
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
    """Makes a response and sends it; when its client has gone, the work for it is cancelled."""

    def __init__(
        self, make: Callable[[], Awaitable[Response]], place: AbstractContextManager[None]
    ) -> None:
        """`place`: is held while the response is made and sent."""
        super().__init__()
        self._make, self._place = make, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            with self._place:
                response = await self._make()
                await response(scope, receive, send)

        working = asyncio.ensure_future(work())
        gone = asyncio.ensure_future(_await_disconnect(receive))
        try:
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        if not working.cancelled():
            working.result()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventResponse(Response):
    """Sends the parts of a stream as they come. One that fails ends with an event that says why,
    since its status has been sent."""

    def __init__(self, parts: AsyncGenerator[bytes], serving: Serving, kind: str = "") -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers=headers, media_type=kind or "text/event-stream")
        del self.headers["content-length"]
        self._parts, self._serving = parts, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async with aclosing(self._parts) as parts, self._serving.in_time():
                await send(start)
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:
            if not isinstance(error, TextEvolveError | ApiError):
                log.error("%s failed in the middle of a stream", scope["path"], exc_info=error)
            # A part of an event may have been sent before.
            body = b"\n\n" + event_of(openai_error(as_api_error(error)))
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event_of(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event, in ASCII."""
    kind = f"event: {name}\n" if name else ""
    return f"{kind}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def begun(events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same events, of which the first is there or is long in coming: what fails before has a
    status of its own."""
    parts = _pour(events)
    await anext(parts)
    return parts


async def _pour(events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """A mark that the first event is there, then the events, with signs of life where none comes
    for long. They are made in one task, so that context variables stay what they are."""
    made: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def make() -> None:
        async with aclosing(events):
            async for event in events:
                made.put_nowait(event)

    making = asyncio.ensure_future(make())
    making.add_done_callback(lambda _: made.put_nowait(None))
    try:
        event = await _take(made)
        if event is None:
            making.result()
        yield b""
        while event is not None:
            yield event
            event = await _take(made)
        making.result()
    finally:
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)


async def _take(made: asyncio.Queue[bytes | None]) -> bytes | None:
    try:
        async with asyncio.timeout(SILENCE):
            return await made.get()
    except TimeoutError:
        return SIGN_OF_LIFE
