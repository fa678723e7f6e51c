"""The paths of all pages, gathered."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from textevolve.server.pages import (
    agents,
    jobs,
    labelling,
    login,
    memories,
    runs,
)

router = APIRouter()
for pages in (login, runs, agents, memories, jobs, labelling):
    router.include_router(pages.router)


@router.get("/")
async def go_to_runs() -> RedirectResponse:
    return RedirectResponse("/runs")
