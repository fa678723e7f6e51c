"""For `textevolve view`: which tabs of a browser are open, so that it ends with the last one.

Each page holds a stream of events open for as long as it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

GRACE = 8.0
"""Seconds in which another page may come: between two pages of one tab there is none."""
BEAT = 2.0


@dataclass
class Tabs:
    """`end`: called once no tab is open any more, after there was one."""

    end: Callable[[], None]
    open: int = 0
    _waiting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def hold(self) -> AsyncGenerator[str]:
        """A stream for as long as a page is open."""
        self.open += 1
        try:
            while True:
                yield ": open\n\n"
                await asyncio.sleep(BEAT)
        finally:
            self.open -= 1
            if not self.open:
                task = asyncio.create_task(self._wait())
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)

    async def _wait(self) -> None:
        await asyncio.sleep(GRACE)
        if not self.open:
            self.end()


def watch_tabs(app: FastAPI, end: Callable[[], None]) -> None:
    """Has the pages of an application hold streams open, and calls `end` after the last one."""
    tabs = Tabs(end)
    app.state.tabs = tabs

    async def hold() -> Response:
        return StreamingResponse(
            tabs.hold(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    app.add_api_route("/tab", hold, include_in_schema=False)
