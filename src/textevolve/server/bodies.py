"""Reading of request bodies aside: large ones are parsed in threads, a few at once, so that other
requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

LARGE = 256 * 1024
"""The bytes from which on a body is parsed in a thread; a smaller one takes less time than the
change of threads."""
_parsers = ThreadPoolExecutor(2, "textevolve-parse")
R = TypeVar("R")


async def parse_aside(parse: Callable[[], R], size: int = LARGE) -> R:
    """Return the result of a function that parses `size` bytes of a body. It runs in a thread if
    they are many."""
    if size < LARGE:
        return parse()

    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_parsers, context.run, parse)


class _Request(Request):
    async def json(self) -> Any:
        raw = await self.body()
        return await parse_aside(partial(json.loads, raw), len(raw))


class BodyRoute(APIRoute):
    """A route whose declared body may be large."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return answer
