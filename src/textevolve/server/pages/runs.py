"""Runs: the list of them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from textevolve.server.access import Caller, needs
from textevolve.server.pages.drawing import draw
from textevolve.server.state import server_of

router = APIRouter()


@router.get("/runs")
async def show_runs(
    request: Request, _caller: Annotated[Caller, Depends(needs("read"))]
) -> Response:
    runs = await asyncio.to_thread(server_of(request).store.list_runs)
    return draw(request, "runs.html", runs=runs)
