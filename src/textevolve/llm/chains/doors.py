"""An open chain and an open model, as programs of others use them.

Who opens it is the business of `textevolve.api.chains`; `langchain_runnables` and `dspy_modules`
give it the shapes that their programs know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from textevolve.llm.chains.chain import Chain, Values
from textevolve.llm.model import Request, Response

P = TypeVar("P")
R = TypeVar("R")


class ChainDoor(Protocol):
    """A chain whose models are open, as `OpenChain` is. Errors are raised as they are, and who is
    cancelled cancels the chain. `__call__` waits, also where an event loop runs; `astream` yields
    pieces of the outputs, each with the name of its output."""

    @property
    def chain(self) -> Chain: ...
    def __call__(self, **values: Any) -> dict[str, Any]: ...
    async def acall(self, **values: Any) -> dict[str, Any]: ...
    def astream(self, values: Values) -> AsyncGenerator[tuple[str, Any]]: ...


class ModelDoor(Protocol):
    """A model that is open. Within a step of a running chain it is that chain's, with its journal,
    its limits and its count of calls. `tell` hears the pieces of the answer's text; `wait` is for
    plain code."""

    @property
    def name(self) -> str: ...
    async def ask(
        self, request: Request, tell: Callable[[str], None] | None = None
    ) -> Response: ...
    def wait(self, request: Request) -> Response: ...


async def hear_pieces(
    start: Callable[[Callable[[P], None]], Coroutine[Any, Any, R]], results: list[R]
) -> AsyncGenerator[P]:
    """Pieces as the work tells them, also from another thread; in the end its result is added to
    `results`. Who is cancelled, or stops listening, cancels the work."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[tuple[P] | None]()

    def hear(piece: P) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, (piece,))

    work = asyncio.ensure_future(start(hear))
    work.add_done_callback(lambda _: loop.call_soon_threadsafe(heard.put_nowait, None))
    try:
        while (piece := await heard.get()) is not None:
            yield piece[0]
        results.append(await work)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
