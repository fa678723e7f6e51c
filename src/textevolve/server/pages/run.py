"""One run: its matrix, live; a case of it; its calls, and its report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from markupsafe import Markup

from textevolve.errors import TextEvolveError, public_message
from textevolve.report.html import draw_blocks
from textevolve.server.access import Caller
from textevolve.server.errors import ApiError
from textevolve.server.pages.drawing import Page, draw, draw_stream
from textevolve.server.pages.run_data import (
    ROWS,
    OpenedRun,
    RowsQuery,
    open_run,
    read_calls,
    read_case,
    read_matrix,
    read_query,
    read_whole,
)
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import ServerState, server_of
from textevolve.studies.reporting import make_report
from textevolve.studies.stored import read_records

MATRIX_SCRIPT = Markup(
    '<script src="/static/report/matrix_elements.js"></script>'
    '<script src="/static/report/matrix.js"></script>'
)

router = APIRouter()


@router.get("/runs/{which}")
async def show_run(request: Request, which: str, caller: RunReader) -> Response:
    """The run with its first rows, or those that the address asks for."""
    return await asyncio.to_thread(_show_run, request, caller, which)


def _show_run(request: Request, caller: Caller, which: str) -> Response:
    state = server_of(request)
    opened = open_run(state, caller, which)
    if opened.run.id != which:
        return RedirectResponse(f"/runs/{opened.run.id}")
    query = read_query(request.query_params)
    values = _rows(request, state, opened, query)
    return draw(request, "run.html", **values, standing=opened.standing)


@router.get("/runs/{which}/rows")
async def show_rows(request: Request, which: str, caller: RunReader) -> Response:
    """The rows alone, which a run's page asks for when there are new records."""

    def read() -> Response:
        state = server_of(request)
        opened = open_run(state, caller, which)
        query = read_query(request.query_params)
        return draw(request, "run_rows.html", **_rows(request, state, opened, query))

    return await asyncio.to_thread(read)


def _rows(
    request: Request, state: ServerState, opened: OpenedRun, query: RowsQuery
) -> dict[str, Any]:
    found = read_matrix(state.store, opened, query)
    return {
        "opened": opened,
        "run": opened.run,
        "query": query,
        "found": found,
        "page": Page(request, query.page, ROWS, found.total or 0),
        "address": urlencode(query.fields),
        "further": urlencode({**query.fields, "start": found.further or 0}),
    }


@router.get("/runs/{which}/standing")
async def show_standing(request: Request, which: str, caller: RunReader) -> Response:
    """How far the run is. `revision`: the latest one that the page knows of; where there are newer
    ones it is told to ask for its rows again."""

    def read() -> Response:
        state = server_of(request)
        opened = open_run(state, caller, which)
        standing = opened.standing
        response = draw(
            request, "run_standing.html", run=opened.run, opened=opened, standing=standing
        )
        if str(standing.revision) != request.query_params.get("revision"):
            response.headers["HX-Trigger"] = "te-records"
        return response

    return await asyncio.to_thread(read)


@router.get("/runs/{which}/totals")
async def show_totals(request: Request, which: str, caller: RunReader) -> Response:
    """What the run has spent: sums over all its calls, which take a while where there are many."""

    def read() -> Response:
        state = server_of(request)
        run = open_run(state, caller, which).run
        return draw(request, "run_totals.html", totals=state.store.run_totals(run.id))

    return await asyncio.to_thread(read)


@router.get("/runs/{which}/cases/{number}")
async def show_case(request: Request, which: str, number: int, caller: RunReader) -> Response:
    """All that is known of one case. `number`: its place in the run, from 1 on."""

    def read() -> Response:
        state = server_of(request)
        opened = open_run(state, caller, which)
        case = read_case(state.store, opened, number)
        inputs = [row.input for row in case.rows]
        calls = read_calls(state.store, opened.run.id, _after(request), inputs)
        run = opened.run
        return draw(request, "case.html", opened=opened, run=run, case=case, page=calls)

    return await asyncio.to_thread(read)


@router.get("/runs/{which}/calls")
async def show_calls(request: Request, which: str, caller: RunReader) -> Response:
    """All calls of the run, some at a time: what was sent, and what came back."""

    def read() -> Response:
        state = server_of(request)
        opened = open_run(state, caller, which)
        calls = read_calls(state.store, opened.run.id, _after(request))
        return draw(request, "calls.html", opened=opened, run=opened.run, page=calls)

    return await asyncio.to_thread(read)


def _after(request: Request) -> int:
    try:
        return read_whole(request.query_params, "after", 0)
    except ValueError as error:
        raise ApiError(400, "invalid_request", f"the address cannot be read: {error}") from None


@router.get("/runs/{which}/report")
async def show_report(request: Request, which: str, caller: RunReader) -> Response:
    """The report of the run's kind, written block by block."""
    state = server_of(request)
    opened = await asyncio.to_thread(open_run, state, caller, which)
    if opened.study is None:
        raise ApiError(404, "not_found", opened.why)
    return StreamingResponse(
        draw_stream(
            request, "report.html", opened=opened, run=opened.run, pieces=_report(state, opened)
        ),
        media_type="text/html; charset=utf-8",
    )


def _report(state: ServerState, opened: OpenedRun) -> Iterator[Markup]:
    """What goes wrong after the page has begun is said where it ends."""
    assert opened.study is not None
    run = opened.run
    try:
        made = make_report(opened.study, state.store, run, read_records(state.store, run))
        yield Markup('<p class="sentence">{}</p>\n').format(made.sentence)
        yield from draw_blocks(made.blocks, script=MATRIX_SCRIPT)
    except (TextEvolveError, ValueError) as error:
        said = f"The report cannot be made: {public_message(error)}"
        yield Markup('<p class="error">{}</p>\n').format(said)
