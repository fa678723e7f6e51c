"""Answers that are made and sent while their client is connected, and streams of events.

They are sent by the guard, outside of the web framework, whose objects for a request are gone by
then: many streams may be open for long, and each of their parts would pass through all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from typing import Any

from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from textevolve.errors import TextEvolveError
from textevolve.protocol.chat import write_event
from textevolve.server.decisions.serving import Serving
from textevolve.server.errors import ApiError, as_api_error, log, openai_error

LATER = "textevolve.answer"
"""The name in a request's scope of an ASGI app that sends its answer when the inner app is done."""


class AnswerDropped(ConnectionResetError):
    """The error of an answer that was not sent completely: the client stopped reading, or its key
    became invalid."""


class WhileConnected(Response):
    """A response that is created and sent only while its client is connected; when the client has
    gone, the work for it is cancelled."""

    def __init__(
        self, make: Callable[[], Awaitable[Response]], place: AbstractContextManager[None]
    ) -> None:
        """Prepare a response. `make` creates it; the context `place` is held until it is sent."""
        super().__init__()
        self._make = make
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[LATER] = self._send

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = asyncio.timeout(None)
        ending = asyncio.ensure_future(_end_when_gone(receive, connection))

        try:
            async with connection:
                with self._place:
                    response = await self._make()
                    await response(scope, receive, send)
        except TimeoutError:
            if not connection.expired():
                raise
        finally:
            ending.cancel()


async def _end_when_gone(receive: Receive, connection: asyncio.Timeout) -> None:
    """Wait until the client disconnects, then end the block of its connection at once."""
    while (await receive())["type"] != "http.disconnect":
        pass
    connection.reschedule(0)


class EventResponse(StreamingResponse):
    """A streamed response that sends its parts as they come. If the stream fails, an error event
    ends it, since the status has already been sent.

    `limit`: the context in which the parts are made, such as one that limits their time.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes],
        limit: AbstractAsyncContextManager[None],
        kind: str = "",
    ) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(parts, headers=headers, media_type=kind or "text/event-stream")
        self._parts = parts
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._parts), self._limit:
                await self.stream_response(send)
        except AnswerDropped:
            raise
        except Exception as error:
            if not isinstance(error, TextEvolveError | ApiError):
                log.error("%s failed in the middle of a stream", scope["path"], exc_info=error)
            # A part of an event may have been sent before.
            body = b"\n\n" + event_of(openai_error(as_api_error(error)))
            await send({"type": "http.response.body", "body": body, "more_body": False})


async def respond_events(events: AsyncGenerator[bytes], serving: Serving) -> EventResponse:
    """Wait for the first event, then return a response with the whole stream, so an earlier error
    is still answered with its own status."""
    async with serving.in_time():
        first_event = await anext(events, b"")

    async def parts() -> AsyncGenerator[bytes]:
        async with aclosing(events):
            yield first_event
            async for event in events:
                yield event

    return EventResponse(parts(), serving.in_time())


def event_of(data: Mapping[str, Any], name: str = "") -> bytes:
    """Encode JSON data as a server-sent event; JSON escapes the characters outside ASCII. `name`:
    the type of the event; empty for none."""
    return write_event(json.dumps(data, separators=(",", ":")).encode(), name)
