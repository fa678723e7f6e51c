"""Reading of request bodies aside: large ones are parsed in threads, a few at once, so that other
requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from textevolve.errors import InputError
from textevolve.json_texts import is_array

LARGE = 256 * 1024
"""The bytes from which on a body is parsed in a thread; a smaller one takes less time than the
change of threads."""
MANY = 1000
"""The items from which on a list is long."""
_parsers = ThreadPoolExecutor(2, "textevolve-parse")
R = TypeVar("R")


async def parse_aside(parse: Callable[[], R], size: int = LARGE) -> R:
    """Return the result of a function that parses `size` bytes of a body. It runs in a thread if
    they are many."""
    if size < LARGE:
        return parse()

    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_parsers, context.run, parse)


def validate_items(shape: type[BaseModel], values: object) -> object:
    """Validate the items of a long list one after the other, since pydantic lets no other thread
    work while it validates a list. An item that does not fit stays as it is: the validation of the
    whole names it. Anything but a long list is returned unchanged."""
    if not is_array(values) or len(values) < MANY:
        return values

    items: list[object] = []
    for value in values:
        try:
            items.append(shape.model_validate(value))
        except (ValidationError, InputError):
            items.append(value)

    return items


class _Request(Request):
    async def json(self) -> Any:
        raw = await self.body()
        return await parse_aside(partial(json.loads, raw), len(raw))


class BodyRoute(APIRoute):
    """A route whose declared body may be large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return answer
