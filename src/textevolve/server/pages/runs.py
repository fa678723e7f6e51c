"""Runs: the list of them, and two side by side."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.errors import InputError
from textevolve.report.blocks import Block, Diff
from textevolve.server.access import Caller, needs
from textevolve.server.errors import ApiError
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.pages.run_data import find_run, open_run, read_whole
from textevolve.server.state import ServerState, server_of
from textevolve.store import records, served
from textevolve.store.records import Standing
from textevolve.store.runs import RunRecord
from textevolve.store.served import WantedRuns
from textevolve.studies.comparison import compare_stored

RUNS = 25
"""Runs of one page."""
STATES = ("running", "finished", "interrupted", "failed")

router = APIRouter()
RunReader = Annotated[Caller, Depends(needs("read"))]


@router.get("/runs")
async def show_runs(request: Request, caller: RunReader) -> Response:
    given = request.query_params
    wanted = WantedRuns(
        given.get("kind", ""),
        given.get("status", ""),
        given.get("q", "").strip(),
        caller.namespaces,
    )
    try:
        number = read_whole(given, "page", 1)
    except ValueError as error:
        raise ApiError(400, "invalid_request", str(error)) from None
    found, kinds, total = await asyncio.to_thread(_find, server_of(request), wanted, number)
    page = Page(request, number, RUNS, total)
    values: dict[str, Any] = {"kinds": kinds, "wanted": wanted, "states": STATES}
    return draw(request, "runs.html", found=found, page=page, **values)


def _find(
    state: ServerState, wanted: WantedRuns, number: int
) -> tuple[list[tuple[RunRecord, Standing]], list[str], int]:
    read = state.store.read
    runs, total = read(served.find_runs, wanted, (number - 1) * RUNS, RUNS)
    standings = read(records.count_standing, [run.id for run in runs])
    kinds = read(served.list_kinds) if wanted.namespaces is None else []
    return [(run, standings[run.id]) for run in runs], kinds, total


@router.get("/runs/{which}/row")
async def show_row(request: Request, which: str, caller: RunReader) -> Response:
    """A run's row in the list, which a run that works asks for again and again."""

    def read() -> tuple[RunRecord, Standing]:
        state = server_of(request)
        run = find_run(state, caller, which)
        return run, state.store.read(records.count_standing, [run.id])[run.id]

    run, standing = await asyncio.to_thread(read)
    return draw(request, "run_row.html", run=run, standing=standing)


@router.get("/compare")
async def show_comparison(request: Request, caller: RunReader) -> Response:
    """`a` and `b`: the runs; or twice `run`, as the list's form sends them."""
    given = request.query_params
    chosen = given.getlist("run")
    if chosen:
        if len(chosen) != 2:
            said = f"choose two runs to compare; {len(chosen)} are chosen"
            raise ApiError(400, "invalid_request", said)
        address = request.url.replace(query="").include_query_params(a=chosen[1], b=chosen[0])
        return RedirectResponse(f"/compare?{address.query}")
    if not given.get("a") or not given.get("b"):
        raise ApiError(400, "invalid_request", "name two runs: /compare?a=RUN&b=RUN")
    found = await asyncio.to_thread(_compare, server_of(request), caller, given["a"], given["b"])
    return await asyncio.to_thread(draw, request, "compare.html", **found)


def _compare(state: ServerState, caller: Caller, a: str, b: str) -> dict[str, Any]:
    one, other = (open_run(state, caller, which) for which in (a, b))
    runs = (one.run, other.run)
    standings = state.store.read(records.count_standing, [run.id for run in runs])
    why, made = "", None
    try:
        for opened in (one, other):
            if opened.study is None:
                raise InputError(opened.why)
        made = compare_stored(state.store, *runs).report
    except InputError as error:
        why = str(error)
    specs = [json.dumps(run.spec.get("spec", {}), indent=1, ensure_ascii=False) for run in runs]
    differing: list[Block] = []
    if specs[0] != specs[1]:
        differing.append(Diff("What differs in the specification", *specs))
    pairs = [(opened, standings[opened.run.id]) for opened in (one, other)]
    return {"pairs": pairs, "made": made, "why": why, "differing": differing}
