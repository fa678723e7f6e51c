"""The paths of all pages, gathered."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from textevolve.server.pages import labelling, runs

router = APIRouter()
router.include_router(runs.router)
router.include_router(labelling.router)


@router.get("/")
async def go_to_runs() -> RedirectResponse:
    return RedirectResponse("/runs")
