"""A relay of TCP connections on loopback, which is cut and restored: a network that goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Relay:
    """Passes what comes to a free port of loopback on to a socket of this machine, while it is
    open. Between `cut` and `restore` all connections are broken, and new ones refused."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._passing = set[asyncio.Task[None]]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.restore()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def restore(self) -> None:
        self._do(self._listen())

    def cut(self) -> None:
        self._do(self._break())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _break(self) -> None:
        self._server.close()
        for _ in range(2):  # what was accepted just before is taken in the next turns of the loop
            await asyncio.sleep(0)
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        await asyncio.sleep(0)  # aborted connections are lost in the next turn

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        # A task that is cancelled before it begins closes nothing itself.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the server behind it is away too
            to_read, to_write = await asyncio.open_unix_connection(self._target)
            try:
                await asyncio.gather(_pump(reader, to_write), _pump(to_read, writer))
            finally:
                to_write.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
