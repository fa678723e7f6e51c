"""Runs: the list of them, two compared, and one of them: its matrix, live, its cases, its calls and
its report. All of it waits for the disk, so paths are plain functions, which run in threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from markupsafe import Markup

from textevolve.errors import InputError, NotFoundError, TextEvolveError, public_message
from textevolve.report.blocks import Block, Diff
from textevolve.report.html import draw_blocks
from textevolve.server.access import Caller, needs
from textevolve.server.pages.drawing import Page, draw, draw_stream
from textevolve.server.pages.run_data import (
    ROWS,
    OpenedRun,
    RowsQuery,
    open_run,
    read_calls,
    read_case,
    read_matrix,
)
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies.reading import find_seen
from textevolve.store import records, served
from textevolve.store.served import WantedRuns
from textevolve.studies.comparison import compare_stored
from textevolve.studies.reporting import make_report
from textevolve.studies.stored import read_records

RUNS = 25
"""Runs of one page."""
STATES = ("running", "finished", "interrupted", "failed")
MATRIX_SCRIPT = Markup(
    '<script src="/static/report/matrix_elements.js"></script>'
    '<script src="/static/report/matrix.js"></script>'
)

router = APIRouter()
RunReader = Annotated[Caller, Depends(needs("read"))]
WholeNumber = Annotated[int, Query(ge=0, lt=2**62)]


def _open(request: Request, which: str, caller: RunReader) -> OpenedRun:
    return open_run(server_of(request), caller, which)


Opened = Annotated[OpenedRun, Depends(_open)]
PageRows = Annotated[RowsQuery, Query()]


@router.get("/runs")
def show_runs(
    request: Request,
    caller: RunReader,
    kind: str = "",
    status: str = "",
    q: str = "",
    page: Annotated[int, Query(ge=1, lt=2**62)] = 1,
) -> Response:
    store = server_of(request).store
    wanted = WantedRuns(kind, status, q.strip(), caller.namespaces)
    runs, total = store.read(served.find_runs, wanted, (page - 1) * RUNS, RUNS)
    standings = store.read(records.count_standing, [run.id for run in runs])
    return draw(
        request,
        "runs.html",
        found=[(run, standings[run.id]) for run in runs],
        page=Page(request, page, RUNS, total),
        kinds=store.read(served.list_kinds) if wanted.namespaces is None else [],
        wanted=wanted,
        states=STATES,
    )


@router.get("/runs/{which}/row")
def show_row(request: Request, which: str, caller: RunReader) -> Response:
    """A run's row in the list, which the list polls while the run works."""
    state = server_of(request)
    run = find_seen(state.store, caller, which).run
    standing = state.store.read(records.count_standing, [run.id])[run.id]
    return draw(request, "run_row.html", run=run, standing=standing)


@router.get("/compare")
def show_comparison(
    request: Request,
    caller: RunReader,
    run: Annotated[tuple[str, ...], Query()] = (),
    a: str = "",
    b: str = "",
) -> Response:
    """`a` and `b`: the runs; or twice `run`, as the list's form sends them."""
    if run and len(run) != 2:
        raise InputError(f"choose two runs to compare; {len(run)} are chosen")
    if run:
        return RedirectResponse(f"/compare?{urlencode({'a': run[1], 'b': run[0]})}")
    if not a or not b:
        raise InputError("name two runs: /compare?a=RUN&b=RUN")
    state = server_of(request)
    opened = [open_run(state, caller, which) for which in (a, b)]
    reason, report = next((one.why for one in opened if one.study is None), ""), None
    try:
        report = None if reason else compare_stored(state.store, *(o.run for o in opened)).report
    except InputError as error:
        reason = str(error)
    specs = [
        json.dumps(one.run.spec.get("spec", {}), indent=1, ensure_ascii=False) for one in opened
    ]
    differing: list[Block] = []
    if specs[0] != specs[1]:
        differing.append(Diff("What differs in the specification", *specs))
    pairs = [(one, one.standing) for one in opened]
    return draw(request, "compare.html", pairs=pairs, made=report, why=reason, differing=differing)


@router.get("/runs/{which}")
def show_run(request: Request, which: str, opened: Opened, query: PageRows) -> Response:
    """The run with its first rows, or those that the address asks for."""
    if opened.run.id != which:
        return RedirectResponse(f"/runs/{opened.run.id}")
    return _draw_rows(request, "run.html", opened, query)


@router.get("/runs/{which}/rows")
def show_rows(request: Request, opened: Opened, query: PageRows) -> Response:
    """The rows alone, which a run's page asks for when there are new records."""
    return _draw_rows(request, "run_rows.html", opened, query)


def _draw_rows(request: Request, template: str, opened: OpenedRun, query: RowsQuery) -> Response:
    rows = read_matrix(server_of(request).store, opened, query)
    return draw(
        request,
        template,
        opened=opened,
        run=opened.run,
        standing=opened.standing,
        query=query,
        found=rows,
        page=Page(request, query.page, ROWS, rows.total),
        address=urlencode(query.fields),
    )


@router.get("/runs/{which}/standing")
def show_standing(request: Request, opened: Opened, revision: str = "") -> Response:
    """How far the run is. `revision`: the latest one that the page knows of; where there are newer
    ones it is told to ask for its rows again."""
    standing = opened.standing
    response = draw(request, "run_standing.html", run=opened.run, opened=opened, standing=standing)
    if str(standing.revision) != revision:
        response.headers["HX-Trigger"] = "te-records"
    return response


@router.get("/runs/{which}/totals")
def show_totals(request: Request, opened: Opened) -> Response:
    """What the run has spent: sums over all its calls, which take a while where there are many."""
    totals = server_of(request).store.run_totals(opened.run.id)
    return draw(request, "run_totals.html", totals=totals)


@router.get("/runs/{which}/cases/{number}")
def show_case(request: Request, number: int, opened: Opened, after: WholeNumber = 0) -> Response:
    """All that is known of one case. `number`: its place in the run, from 1 on."""
    store = server_of(request).store
    case = read_case(store, opened, number)
    calls = read_calls(store, opened.run.id, after, [row.input for row in case.rows])
    return draw(request, "case.html", opened=opened, run=opened.run, case=case, page=calls)


@router.get("/runs/{which}/calls")
def show_calls(request: Request, opened: Opened, after: WholeNumber = 0) -> Response:
    """All calls of the run, some at a time: what was sent, and what came back."""
    calls = read_calls(server_of(request).store, opened.run.id, after)
    return draw(request, "calls.html", opened=opened, run=opened.run, page=calls)


@router.get("/runs/{which}/report")
def show_report(request: Request, opened: Opened) -> Response:
    """The report of the run's kind, written block by block."""
    if opened.study is None:
        raise NotFoundError(opened.why)
    pieces = _report(server_of(request), opened)
    page = draw_stream(request, "report.html", opened=opened, run=opened.run, pieces=pieces)
    return StreamingResponse(page, media_type="text/html; charset=utf-8")


def _report(state: ServerState, opened: OpenedRun) -> Iterator[Markup]:
    """Draw the report; an error after the page has begun stands where it ends."""
    assert opened.study is not None
    try:
        lines = read_records(state.store, opened.run)
        report = make_report(opened.study, state.store, opened.run, lines)
        yield Markup('<p class="sentence">{}</p>\n').format(report.sentence)
        yield from draw_blocks(report.blocks, script=MATRIX_SCRIPT)
    except (TextEvolveError, ValueError) as error:
        message = f"The report cannot be made: {public_message(error)}"
        yield Markup('<p class="error">{}</p>\n').format(message)
