"""`/v1/studies` and `/v1/kinds`: studies of any kind, begun, watched and read over HTTP."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from textevolve.errors import InputError
from textevolve.remote.wire import (
    KindPart,
    RecordPage,
    ResumePart,
    RunDetail,
    RunPage,
    StudyStatus,
)
from textevolve.server.access import Caller, needs
from textevolve.server.errors import ApiError, respond
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies import beginning
from textevolve.server.studies.reading import (
    MEDIA,
    ReportFormat,
    RunFilter,
    Seen,
    find_seen,
    list_page,
    read_chunks,
    records_page,
    run_detail,
    write_report,
)
from textevolve.store.records import Found, RecordOrder
from textevolve.studies.kinds import find_study, kinds
from textevolve.studies.study_file import schema_of

router = APIRouter(prefix="/v1", tags=["studies"])

StudyReader: TypeAlias = Annotated[Caller, Depends(needs("read"))]
Runs: TypeAlias = Annotated[Caller, Depends(needs("run"))]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=500)]
LARGEST_REVISION = 2**62
AS_IT_WAS = ResumePart()


async def find_run(server: ServerState, caller: Caller, run_id: str) -> Seen:
    """
    Raises:
        ApiError: there is no such run that the caller sees.
    """
    return await asyncio.to_thread(find_seen, server.store, caller, run_id)


async def _tell(server: ServerState, caller: Caller, run_id: str, status: int) -> Response:
    seen = await find_run(server, caller, run_id)
    told = await asyncio.to_thread(run_detail, server, seen)
    headers = {"location": f"/v1/studies/{run_id}"} if status == 201 else {}
    return respond(told.model_dump(mode="json"), status, **headers)


@router.post("/studies", response_model=RunDetail, status_code=201)
async def begin_study(
    request: Request, caller: Runs, given: dict[str, Any], dry_run: bool = False
) -> Response:
    """Begin a study, or find it; with `dry_run` say what it may take."""
    server = server_of(request)
    asked = await beginning.read_asked(server, caller, given)
    if dry_run:
        return respond(await beginning.estimate(server, asked))
    run, status = await beginning.begin(server, asked)
    return await _tell(server, caller, run.id, status)


def _wanted_runs(
    kind: str = "", status: StudyStatus | None = None, text: str = "", namespace: str = ""
) -> RunFilter:
    return RunFilter(kind, status or "", text, namespace)


@router.get("/studies", response_model=RunPage)
async def list_studies(
    request: Request,
    caller: StudyReader,
    wanted: Annotated[RunFilter, Depends(_wanted_runs)],
    cursor: str = "",
    limit: Limit = 50,
) -> Response:
    """Runs, the newest first."""
    found = await asyncio.to_thread(list_page, server_of(request), caller, wanted, cursor, limit)
    return respond(found)


@router.get("/studies/{run_id}", response_model=RunDetail)
async def get_study(request: Request, caller: StudyReader, run_id: str) -> Response:
    """One run, with what it has used."""
    return await _tell(server_of(request), caller, run_id, 200)


def _wanted_records(
    status: Annotated[list[str], Query(max_length=3)] = [],  # noqa: B006  FastAPI reads it
    below: float | None = None,
    case: str | None = None,
    variant: str | None = None,
    passed: bool | None = None,
) -> Found:
    return Found(tuple(status), below, case, variant, passed)


@router.get("/studies/{run_id}/records", response_model=RecordPage)
async def list_records(
    request: Request,
    caller: StudyReader,
    run_id: str,
    wanted: Annotated[Found, Depends(_wanted_records)],
    sort: RecordOrder = "position",
    cursor: str = "",
    limit: Limit = 100,
) -> Response:
    """A run's records, a page at a time."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    found = await asyncio.to_thread(
        records_page, server.store, seen.run.id, wanted, sort, cursor, limit
    )
    return Response(found, media_type="application/json")


@router.get("/studies/{run_id}/report", response_class=Response)
async def get_report(
    request: Request,
    caller: StudyReader,
    run_id: str,
    format: ReportFormat = "json",
    turns: bool = False,
) -> Response:
    """What a run has found so far, in one of several formats."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    file = await asyncio.to_thread(write_report, server, seen, format, turns=turns)
    # The style of an HTML report stands within it, which pages of the server may not have.
    shown = "inline" if format in ("md", "json") else "attachment"
    headers = {"content-disposition": f'{shown}; filename="{run_id}.{format}"'}
    return StreamingResponse(read_chunks(file), 200, headers, MEDIA[format])


@router.get("/studies/{run_id}/events", response_class=Response)
async def watch_study(request: Request, caller: StudyReader, run_id: str) -> Response:
    """What happens to a run, as server-sent events; goes on behind `Last-Event-ID`."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    after = _read_place(request)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    with server.limits.stream_place(caller):  # else it is refused before the stream begins
        stream = _watch(server, caller, seen.run.id, after)
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


def _read_place(request: Request) -> int:
    """
    Raises:
        ApiError: it is the id of no event.
    """
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not (given.isascii() and given.isdigit() and int(given[:20]) <= LARGEST_REVISION):
        raise ApiError(400, "invalid_request", "Last-Event-ID: is the id of no event")
    return int(given)


@router.post("/studies/{run_id}/cancel", response_model=RunDetail, status_code=202)
async def cancel_study(request: Request, caller: Runs, run_id: str) -> Response:
    """End the work on a run; what was answered is kept."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    if not server.runner.works_on(run_id):
        if seen.served is None and seen.run.status == "running":
            raise ApiError(409, "in_work", f"run {run_id} is in work by a command; stop that")
        if seen.run.status == "finished":
            raise ApiError(409, "finished", f"run {run_id} is finished")
    await server.runner.cancel(run_id)
    return await _tell(server, caller, run_id, 202)


@router.post("/studies/{run_id}/resume", response_model=RunDetail, status_code=202)
async def resume_study(
    request: Request, caller: Runs, run_id: str, given: ResumePart = AS_IT_WAS
) -> Response:
    """Go on with a run that was interrupted, cancelled or has failed."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    if seen.served is None:
        said = f"run {run_id} was made without the server; go on with: textevolve runs resume"
        raise ApiError(409, "not_served", said)
    if seen.run.status == "finished":
        return await _tell(server, caller, run_id, 200)
    if not await server.runner.is_busy(run_id):
        await beginning.resume(server, caller, seen.served, given)
    return await _tell(server, caller, run_id, 202)


@router.delete("/studies/{run_id}", status_code=204)
async def delete_study(request: Request, caller: Runs, run_id: str) -> Response:
    """Remove a run, with the files that came with it and the answers that no other run uses."""
    server = server_of(request)
    seen = await find_run(server, caller, run_id)
    if server.runner.works_on(run_id) or seen.run.status == "running":
        raise ApiError(409, "in_work", f"run {run_id} is in work; cancel it first")
    await asyncio.to_thread(server.store.delete_run, run_id)
    if seen.served is not None:
        await asyncio.to_thread(server.runner.drop_files, seen.served.launch.get("files", ""))
    return Response(status_code=204)


@router.get("/kinds")
async def list_kinds(_caller: StudyReader) -> Response:
    """The kinds of studies, with the JSON schema of each."""
    return respond({"data": await asyncio.to_thread(lambda: [_kind(one) for one in kinds()])})


@router.get("/kinds/{kind}", response_model=KindPart)
async def get_kind(_caller: StudyReader, kind: str) -> Response:
    """One kind of study, with its JSON schema."""
    try:
        return respond(await asyncio.to_thread(_kind, kind))
    except InputError as error:
        raise ApiError(404, "not_found", str(error)) from None


def _kind(kind: str) -> dict[str, Any]:
    described = inspect.cleandoc(find_study(kind).spec.__doc__ or "")
    return {"kind": kind, "description": described, "schema": cast(Any, schema_of(kind))}
