"""`/v1/studies` and `/v1/kinds`: start, watch, read, cancel and resume studies of any kind over
HTTP."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from textevolve.errors import InputError
from textevolve.evaluation import Case, check_images
from textevolve.json_texts import is_object
from textevolve.mappings import omit
from textevolve.remote.wire import CasePart, RecordPage, ResumePart, RunDetail, RunPage, RunPart
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.study import find_study, kinds, read_study, schema_of
from textevolve.server.bodies import BodyRoute, parse_aside, validate_items
from textevolve.server.errors import ApiError, bad_request, example_body, respond
from textevolve.server.identity import (
    THIS_MACHINE,
    Caller,
    MayRead,
    MayRun,
    caller_of,
    check_namespace,
)
from textevolve.server.options import is_here
from textevolve.server.state import Server, ServerState
from textevolve.server.streams import EventResponse, WhileConnected
from textevolve.server.studies.reading import (
    MEDIA,
    ReportFormat,
    RunFilter,
    VisibleRun,
    find_study_run,
    list_page,
    read_chunks,
    records_page,
    run_detail,
    stream_events,
    write_report,
)
from textevolve.store.runs import RunRecord
from textevolve.store.served import NamespaceMark, ServedRun, read_marks

RUN = "run"
"""The field of a request with the options of running the study."""


async def begin(
    server: ServerState, caller: Caller, body: Mapping[str, Any]
) -> tuple[RunRecord, int]:
    """Read a submitted study, store its files and the study as a run, and start it. Return the run
    with the status of the answer: 201 if the run is new, 202 if it existed and is running or now
    resumed, 200 if it is finished.

    Raises:
        InputError: a field, a judge or a file is invalid.
        SettingsError: a model is not available.
        ApiError: the caller may not see a namespace.
    """
    part = await parse_aside(partial(read_part, body.get(RUN, {})))
    namespace = choose_namespace(server, caller, part.namespace)
    mark = await asyncio.to_thread(_require_namespace, server, namespace)
    sent = await asyncio.to_thread(server.runner.uploads.keep, part.files)
    launch = part.model_dump(mode="json", exclude={"files", "namespace", "cases"})
    launch |= {"files": sent, **_standing(server, caller)}
    owner = mark.id if mark else ""
    served = ServedRun(
        "", namespace, caller.key, time.time(), "running", launch, namespace_id=owner
    )
    settings = server.runner.settings_of(served)
    store = server.store

    with server.runner.confine(served):
        fields = omit(body, [RUN])
        _, spec = await asyncio.to_thread(read_study, fields)
        cases = None
        sent_cases = part.cases
        if sent_cases is not None:
            cases = await parse_aside(lambda: list(map(_read_case, sent_cases)))
        start = Launch(name=part.name, source="HTTP")

        # The namespace of the settings marks no run, so one that is made anew finds the runs of
        # the old one, and marks its own.
        for home in (server.settings.namespace, "-"):
            plan = await driver.plan_run(spec, settings, start, cases, home=home, owner=owner)
            registered = await asyncio.to_thread(plan.register, store)
            earlier_run = await asyncio.to_thread(store.get_served, registered.id)
            if earlier_run is None or not earlier_run.outlives(mark):
                break

    run = registered.record
    run_row = replace(served, run_id=run.id)
    if run.status == "finished":  # one that the command line has finished is the client's now, too
        if await asyncio.to_thread(store.get_served, run.id) is None:
            await asyncio.to_thread(store.serve_run, run_row)
        return run, 200

    if not await server.runner.is_busy(run.id):
        await asyncio.to_thread(store.serve_run, run_row)
        server.runner.submit(run.id)

    return run, 201 if registered.is_new else 202


def _require_namespace(server: ServerState, name: str) -> NamespaceMark | None:
    """Return what tells a namespace from others of its name; None for the one of the settings,
    which exists once something is stored in it.

    Raises:
        ApiError: no such namespace exists.
    """
    mark = server.resources.read(read_marks).get(name)
    if mark is None and name != server.settings.namespace:
        raise ApiError(404, "not_found", f"no namespace '{name}'")

    return mark


def _standing(server: ServerState, caller: Caller) -> dict[str, Any]:
    """Return the caller's rights, which are stored with the run. `namespaces`: those that the
    caller sees; None: all. `trusted`: whether it is this machine and the server requires no key."""
    open_here = server.options.key_env is None and is_here(server.options.host)
    seen = None if caller.namespaces is None else sorted(caller.namespaces)
    return {"namespaces": seen, "trusted": open_here and caller == THIS_MACHINE}


def read_part(part: object) -> RunPart:
    """Read the options for running a study, the field `run` of a client's request.

    Raises:
        InputError: an option is invalid.
    """
    if not is_object(part):
        raise InputError(f"{RUN}: must be an object")
    try:
        fields = dict(part)
        fields["cases"] = validate_items(CasePart, fields.get("cases"))
        return RunPart(**fields)
    except InputError as error:
        raise InputError(f"{RUN}: {error}") from None


def choose_namespace(server: ServerState, caller: Caller, requested: str | None) -> str:
    """Return the requested namespace; by default the one of the settings if the caller may see it,
    otherwise the caller's only one.

    Raises:
        ApiError: the caller may not see the namespace, or must name one of several.
    """
    if requested is not None:
        check_namespace(caller, requested)
        return requested
    if caller.sees(server.settings.namespace):
        return server.settings.namespace
    seen = sorted(caller.namespaces or ())
    if len(seen) != 1:
        raise bad_request(f"name a namespace in run.namespace, one of: {', '.join(seen) or 'none'}")

    return seen[0]


def _read_case(sent: CasePart) -> Case:
    """Read a case of the request.

    Raises:
        InputError: its images are invalid.
    """
    case = Case(**dict(sent))
    if case.images or case.candidate_images:
        check_images(case)

    return case


router = APIRouter(prefix="/v1", tags=["studies"], route_class=BodyRoute)

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


async def _find_run(request: Request, server: Server, run_id: str) -> VisibleRun:
    # Not in one of the framework's threads, which are many, and each takes memory.
    return await asyncio.to_thread(find_study_run, server, caller_of(request), run_id)


SeenRun: TypeAlias = Annotated[VisibleRun, Depends(_find_run)]
"""The run in a path. The paths check first what the caller may do."""


def _describe(server: ServerState, caller: Caller, run_id: str, status: int) -> Response:
    """Return the response that describes a run in its current state."""
    detail = run_detail(server, find_study_run(server, caller, run_id))
    headers = {"location": f"/v1/studies/{run_id}"} if status == 201 else {}
    return respond(detail.model_dump(mode="json"), status, **headers)


@router.post("/studies", response_model=RunDetail, status_code=201)
async def begin_study(server: Server, caller: MayRun, body: StudyBody) -> Response:
    """Start a study, or return its existing run."""
    run, status = await begin(server, caller, body)
    return await asyncio.to_thread(_describe, server, caller, run.id, status)


@router.get("/studies", response_model=RunPage)
def list_studies(
    server: Server,
    caller: MayRead,
    run_filter: Annotated[RunFilter, Depends()],
    cursor: str = "",
    limit: Limit = 50,
) -> Response:
    """List runs, the newest first."""
    return respond(list_page(server, caller, run_filter, cursor, limit))


@router.get("/studies/{run_id}", response_model=RunDetail)
def get_study(server: Server, _caller: MayRead, seen: SeenRun) -> Response:
    """Return one run, with its usage."""
    return respond(run_detail(server, seen).model_dump(mode="json"))


@router.get("/studies/{run_id}/records", response_model=RecordPage)
def list_records(
    server: Server,
    _caller: MayRead,
    seen: SeenRun,
    status: Annotated[list[str], Query(max_length=3)] = [],  # noqa: B006  FastAPI reads it
    cursor: str = "",
    limit: Limit = 100,
) -> Response:
    """A run's records, a page at a time."""
    page = records_page(server.store, seen.run.id, tuple(status), cursor, limit)
    return Response(page, media_type="application/json")


@router.get("/studies/{run_id}/report", response_class=Response)
def get_report(
    server: Server, _caller: MayRead, seen: SeenRun, format: ReportFormat = "json"
) -> Response:
    """Return the report of a run so far, in one of several formats."""
    file = write_report(server, seen, format)
    # The style of an HTML report stands within it, which pages of the server may not have.
    disposition = "inline" if format in ("md", "json") else "attachment"
    headers = {"content-disposition": f'{disposition}; filename="{seen.run.id}.{format}"'}
    return StreamingResponse(read_chunks(file), 200, headers, MEDIA[format])


@router.get("/studies/{run_id}/events", response_class=Response)
async def watch_study(request: Request, server: Server, caller: MayRead, run_id: str) -> Response:
    """Stream the events of a run as server-sent events; resumes after `Last-Event-ID`."""
    after = request.headers.get("last-event-id", "").strip() or "0"
    if not (after.isascii() and after.isdigit() and int(after[:20]) <= LARGEST_REVISION):
        raise InputError("Last-Event-ID: is not the id of an event")

    async def make() -> Response:
        await asyncio.to_thread(find_study_run, server, caller, run_id)
        return EventResponse(stream_events(server.runner, run_id, int(after)), nullcontext())

    return WhileConnected(make, server.limits.stream_place(caller))


@router.post("/studies/{run_id}/cancel", response_model=RunDetail, status_code=202)
async def cancel_study(server: Server, caller: MayRun, seen: SeenRun) -> Response:
    """Cancel a run; its answers stay stored."""
    run_id = seen.run.id
    if not server.runner.works_on(run_id):
        if seen.served is None and seen.run.status == "running":
            raise ApiError(
                409,
                "in_work",
                f"run {run_id} was started by a command, not by this server; stop that command",
            )

        if seen.run.status == "finished":
            raise ApiError(409, "finished", f"run {run_id} is finished")

    await server.runner.cancel(run_id)

    return await asyncio.to_thread(_describe, server, caller, run_id, 202)


@router.post("/studies/{run_id}/resume", response_model=RunDetail, status_code=202)
async def resume_study(
    server: Server, caller: MayRun, seen: SeenRun, changes: Changes = AS_IT_WAS
) -> Response:
    """Resume a run that was interrupted or cancelled, or has failed."""
    run_id = seen.run.id
    if seen.served is None:
        raise ApiError(
            409,
            "not_served",
            f"run {run_id} was started without the server; use: textevolve runs resume",
        )

    status = 200 if seen.run.status == "finished" else 202

    if status == 202 and not await server.runner.is_busy(run_id):
        changed = changes.model_dump(mode="json", exclude_none=True) | _standing(server, caller)
        launch = {**seen.served.launch, **changed}
        again = replace(seen.served, key_id=caller.key, wanted="running", launch=launch, reason="")
        await asyncio.to_thread(server.store.serve_run, again)
        server.runner.submit(run_id)

    return await asyncio.to_thread(_describe, server, caller, run_id, status)


@router.delete("/studies/{run_id}", status_code=204)
async def delete_study(server: Server, _caller: MayRun, seen: SeenRun) -> Response:
    """Delete a run, with its uploaded files and the answers that no other run uses."""
    run_id = seen.run.id
    if seen.run.status == "running" or await server.runner.is_busy(run_id):
        raise ApiError(409, "in_work", f"run {run_id} is running; cancel it first")
    await asyncio.to_thread(server.store.delete_run, run_id)
    if seen.served is not None:
        await asyncio.to_thread(server.runner.uploads.drop, seen.served.launch.get("files", ""))
    return Response(status_code=204)


@router.get("/kinds")
def list_kinds(_caller: MayRead) -> Response:
    """The kinds of studies, with the JSON schema of each."""
    data: list[dict[str, Any]] = []
    for kind in kinds():
        description = inspect.cleandoc(find_study(kind).spec.__doc__ or "")
        data.append({"kind": kind, "description": description, "schema": schema_of(kind)})
    return respond({"data": data})
