"""The paths of all pages, gathered."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from textevolve.server.pages import (
    agents,
    cards,
    chat,
    jobs,
    labelling,
    login,
    memories,
    run,
    runs,
)

router = APIRouter()
router.include_router(login.router)
router.include_router(runs.router)
router.include_router(run.router)
for one in (agents, memories, chat, jobs, cards, labelling):
    router.include_router(one.router)


@router.get("/")
async def go_to_runs() -> RedirectResponse:
    return RedirectResponse("/runs")
