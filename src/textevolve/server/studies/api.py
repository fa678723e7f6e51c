"""`/v1/studies` and `/v1/kinds`: studies of any kind, begun, watched and read over HTTP."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from textevolve.errors import InputError
from textevolve.remote.wire import (
    RecordPage,
    ResumePart,
    RunDetail,
    RunPage,
)
from textevolve.server.access import Caller, needs
from textevolve.server.api_document import example_body
from textevolve.server.errors import ApiError, respond
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies import beginning
from textevolve.server.studies.reading import (
    MEDIA,
    ReportFormat,
    RunFilter,
    Seen,
    find_study_run,
    list_page,
    read_chunks,
    records_page,
    run_detail,
    write_report,
)
from textevolve.studies.kinds import find_study, kinds
from textevolve.studies.study_file import schema_of

router = APIRouter(prefix="/v1", tags=["studies"])

StudyReader: TypeAlias = Annotated[Caller, Depends(needs("read"))]
Runs: TypeAlias = Annotated[Caller, Depends(needs("run"))]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=500)]
LARGEST_REVISION = 2**62
AS_IT_WAS = ResumePart()
EXAMPLE = {
    "kind": "evaluate",
    "cases": ["cases.jsonl"],
    "judge": "probe+rules",
    "run": {
        "name": "nightly",
        "limits": {"calls": 5000},
        "files": {"cases.jsonl": '{"input": "2 + 2?", "candidates": ["4", "5"]}\n'},
    },
}
StudyBody: TypeAlias = Annotated[dict[str, Any], example_body(EXAMPLE)]
Changes: TypeAlias = Annotated[ResumePart, example_body({"limits": {"calls": 10000}})]


def _see(request: Request, caller: StudyReader, run_id: str) -> Seen:
    return find_study_run(server_of(request).store, caller, run_id)


def _see_to_change(request: Request, caller: Runs, run_id: str) -> Seen:
    return find_study_run(server_of(request).store, caller, run_id)


SeenRun: TypeAlias = Annotated[Seen, Depends(_see)]
OwnRun: TypeAlias = Annotated[Seen, Depends(_see_to_change)]


def _describe(server: ServerState, caller: Caller, run_id: str, status: int) -> Response:
    """Describe a run as it is now."""
    detail = run_detail(server, find_study_run(server.store, caller, run_id))
    headers = {"location": f"/v1/studies/{run_id}"} if status == 201 else {}
    return respond(detail.model_dump(mode="json"), status, **headers)


@router.post("/studies", response_model=RunDetail, status_code=201)
async def begin_study(request: Request, caller: Runs, given: StudyBody) -> Response:
    """Begin a study, or find it."""
    server = server_of(request)
    asked = await beginning.read_asked(server, caller, given)
    run, status = await beginning.begin(server, asked)
    return await asyncio.to_thread(_describe, server, caller, run.id, status)


@router.get("/studies", response_model=RunPage)
def list_studies(
    request: Request,
    caller: StudyReader,
    wanted: Annotated[RunFilter, Depends()],
    cursor: str = "",
    limit: Limit = 50,
) -> Response:
    """Runs, the newest first."""
    return respond(list_page(server_of(request), caller, wanted, cursor, limit))


@router.get("/studies/{run_id}", response_model=RunDetail)
def get_study(request: Request, seen: SeenRun) -> Response:
    """One run, with what it has used."""
    return respond(run_detail(server_of(request), seen).model_dump(mode="json"))


@router.get("/studies/{run_id}/records", response_model=RecordPage)
def list_records(
    request: Request,
    seen: SeenRun,
    status: Annotated[list[str], Query(max_length=3)] = [],  # noqa: B006  FastAPI reads it
    cursor: str = "",
    limit: Limit = 100,
) -> Response:
    """A run's records, a page at a time."""
    page = records_page(server_of(request).store, seen.run.id, tuple(status), cursor, limit)
    return Response(page, media_type="application/json")


@router.get("/studies/{run_id}/report", response_class=Response)
def get_report(request: Request, seen: SeenRun, format: ReportFormat = "json") -> Response:
    """What a run has found so far, in one of several formats."""
    file = write_report(server_of(request), seen, format)
    # The style of an HTML report stands within it, which pages of the server may not have.
    shown = "inline" if format in ("md", "json") else "attachment"
    headers = {"content-disposition": f'{shown}; filename="{seen.run.id}.{format}"'}
    return StreamingResponse(read_chunks(file), 200, headers, MEDIA[format])


@router.get("/studies/{run_id}/events", response_class=Response)
async def watch_study(request: Request, caller: StudyReader, seen: SeenRun) -> Response:
    """What happens to a run, as server-sent events; goes on behind `Last-Event-ID`."""
    server, after = server_of(request), request.headers.get("last-event-id", "").strip() or "0"
    if not (after.isascii() and after.isdigit() and int(after[:20]) <= LARGEST_REVISION):
        raise InputError("Last-Event-ID: is the id of no event")
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    with server.limits.stream_place(caller):  # else it is refused before the stream begins
        stream = _watch(server, caller, seen.run.id, int(after))
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


async def _watch(
    server: ServerState, caller: Caller, run_id: str, after: int
) -> AsyncGenerator[bytes]:
    with server.limits.stream_place(caller):
        yield b"retry: 1000\n\n"
        async with aclosing(server.feed.watch(run_id, after)) as events:
            async for part in events:
                if part:
                    yield part


@router.post("/studies/{run_id}/cancel", response_model=RunDetail, status_code=202)
async def cancel_study(request: Request, caller: Runs, seen: OwnRun) -> Response:
    """End the work on a run; what was answered is kept."""
    server, run_id = server_of(request), seen.run.id
    if not server.runner.works_on(run_id):
        if seen.served is None and seen.run.status == "running":
            raise ApiError(409, "in_work", f"run {run_id} is in work by a command; stop that")
        if seen.run.status == "finished":
            raise ApiError(409, "finished", f"run {run_id} is finished")
    await server.runner.cancel(run_id)
    return await asyncio.to_thread(_describe, server, caller, run_id, 202)


@router.post("/studies/{run_id}/resume", response_model=RunDetail, status_code=202)
async def resume_study(
    request: Request, caller: Runs, seen: OwnRun, given: Changes = AS_IT_WAS
) -> Response:
    """Go on with a run that was interrupted, cancelled or has failed."""
    server, run_id = server_of(request), seen.run.id
    if seen.served is None:
        reason = f"run {run_id} was made without the server; go on with: textevolve runs resume"
        raise ApiError(409, "not_served", reason)
    status = 200 if seen.run.status == "finished" else 202
    if status == 202 and not await server.runner.is_busy(run_id):
        await beginning.resume(server, caller, seen.served, given)
    return await asyncio.to_thread(_describe, server, caller, run_id, status)


@router.delete("/studies/{run_id}", status_code=204)
async def delete_study(request: Request, seen: OwnRun) -> Response:
    """Remove a run, with the files that came with it and the answers that no other run uses."""
    server, run_id = server_of(request), seen.run.id
    if seen.run.status == "running" or await server.runner.is_busy(run_id):
        raise ApiError(409, "in_work", f"run {run_id} is in work; cancel it first")
    await asyncio.to_thread(server.store.delete_run, run_id)
    if seen.served is not None:
        await asyncio.to_thread(server.runner.uploads.drop, seen.served.launch.get("files", ""))
    return Response(status_code=204)


@router.get("/kinds")
def list_kinds(_caller: StudyReader) -> Response:
    """The kinds of studies, with the JSON schema of each."""
    data: list[dict[str, Any]] = []
    for kind in kinds():
        description = inspect.cleandoc(find_study(kind).spec.__doc__ or "")
        data.append({"kind": kind, "description": description, "schema": schema_of(kind)})
    return respond({"data": data})
