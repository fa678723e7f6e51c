"""`/v1/labelling`: tasks, the items of one as a person sees them, labels, agreement, export.

Whoever labels sees neither where texts come from nor what others said: for that, and for the
export, the scope `read` is needed, too.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from textevolve.errors import InputError
from textevolve.labelling.agreement import agree
from textevolve.labelling.label_rows import item_rows, label_rows
from textevolve.labelling.tasks import GivenLabel, StoredTask, check_labeller
from textevolve.report.data import plain, write_rows
from textevolve.rows.images import ImageReading
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import ApiError, as_api_error, respond
from textevolve.server.labelling.answers import (
    Desk,
    find_visible_task,
    list_visible_tasks,
    open_desk_of,
)
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies.reading import find_seen
from textevolve.spec import Frozen
from textevolve.store import labelling as stored_labels
from textevolve.studies.case_rows import RowReading
from textevolve.studies.columns import Columns
from textevolve.studies.labelling import LabellingSpec, make_task, row_cases, run_cases

router = APIRouter(prefix="/v1/labelling", tags=["labelling"])

_Labels = Annotated[Caller, Depends(needs("label"))]
_Reads = Annotated[Caller, Depends(needs("read"))]
_Administers = Annotated[Caller, Depends(needs("admin"))]
PAGE = 100
TYPES = {
    "jsonl": "application/x-ndjson",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
}


class NewTask(LabellingSpec):
    """A task, with its rows or the run whose texts are labelled."""

    namespace: str | None = Field(None, description="Of the task; that of the settings else.")
    rows: tuple[Mapping[str, Any], ...] | None = Field(
        None, description="Rows with an input and one output or more, as files have them."
    )
    run: str | None = Field(None, description="A run in place of rows, by its id.")


class NewLabel(Frozen):
    """What somebody says of an item, as it was shown to them."""

    answer: str = Field(
        max_length=200,
        description="first, second or tie, of the texts as shown; of a single text the level, from"
        " 0 on (of several questions with commas between them); or skip.",
    )
    note: str = ""
    labeller: str | None = Field(None, description="Who says it, where no key says so.")


@router.get("")
async def list_labelling_tasks(request: Request, caller: _Labels) -> Response:
    """The labelling tasks, the newest first, with how much each person has labelled."""
    found = await list_visible_tasks(server_of(request), caller)
    return respond({"data": [_describe(task) for task in found]})


@router.post("", status_code=201)
async def create_labelling_task(given: NewTask, request: Request, caller: _Labels) -> Response:
    """Make a labelling task of rows, or of the texts of a run."""
    state = server_of(request)
    space = given.namespace or state.settings.namespace
    check_namespace(caller, space)
    if (given.rows is None) == (given.run is None):
        raise ApiError(400, "invalid_request", "give rows or run")

    def make() -> StoredTask:
        if given.run is not None:
            find_seen(state.store, caller, given.run)
            cases, source = run_cases(given, state.store, given.run), f"run {given.run}"
        else:
            placed = [(f"row {n}", row) for n, row in enumerate(given.rows or (), 1)]
            cases, source = row_cases(placed, Columns(), _reading), f"{len(placed)} rows over HTTP"
        spec, items = make_task(given, cases, source)
        if space == state.settings.namespace:
            state.resources.ensure_namespace(space)
        return state.resources.write(stored_labels.create_task, space, given.name, spec, items)

    try:
        return respond(_describe(await asyncio.to_thread(make)), 201)
    except InputError as error:
        raise as_api_error(error) from None


@router.get("/{id}")
async def show_labelling_task(id: str, request: Request, caller: _Labels) -> Response:
    """A task, with how much each person has labelled."""
    return respond(_describe(await find_visible_task(server_of(request), caller, id)))


@router.delete("/{id}")
async def delete_labelling_task(id: str, request: Request, caller: _Administers) -> Response:
    """Remove a task with its items and all labels."""
    state = server_of(request)
    task = await find_visible_task(state, caller, id)
    await asyncio.to_thread(state.resources.write, stored_labels.delete_task, task.id)
    return respond({"id": task.id, "deleted": True})


@router.get("/{id}/items")
async def list_labelling_items(
    id: str,
    request: Request,
    caller: _Labels,
    labeller: str | None = None,
    start: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = 20,
) -> Response:
    """Items in the order in which this person is to see them, with what they said so far."""
    desk = await _open(request, caller, id, labeller)
    end = min(desk.task.positions, start + limit)
    shown = [await _show_item(desk, position) for position in range(start, end)]
    return respond({"data": shown, "total": desk.task.positions, "labelled": len(desk.labels)})


def _reading() -> RowReading:
    """Of rows that a client sends: what it calls a file would be one of the server's."""
    return RowReading(images=ImageReading(files=False))


async def _show_item(desk: Desk, position: int) -> dict[str, Any]:
    showing = await desk.show(position)
    said, label = desk.shown_answer(position) or None, desk.labels.get(position)
    told = asdict(showing).items()
    seen = {n: v for n, v in told if n != "swapped" and (v or not n.endswith("images"))}
    return {"position": position, **seen, "answer": said, "note": label.note if label else ""}


@router.put("/{id}/labels/{position}")
async def keep_labelling_label(
    id: str, position: int, given: NewLabel, request: Request, caller: _Labels
) -> Response:
    """Keep what a person says of an item, in place of what they said before."""
    desk = await _open(request, caller, id, given.labeller)
    await desk.answer(position, given.answer, given.note)
    return respond({"position": position, "labeller": desk.labeller, "answer": given.answer})


@router.delete("/{id}/labels/{position}")
async def delete_labelling_label(
    id: str, position: int, request: Request, caller: _Labels, labeller: str | None = None
) -> Response:
    """Take a label back."""
    desk = await _open(request, caller, id, labeller)
    return respond({"position": position, "deleted": await desk.take_back(position)})


@router.get("/{id}/labels")
async def list_labelling_labels(id: str, request: Request, caller: _Reads) -> Response:
    """All labels, a row for each, second showings among them."""
    task, items, labels = await _read(request, caller, id)
    return respond({"data": plain(list(label_rows(task.spec, items, labels)))})


@router.get("/{id}/agreement")
async def show_labelling_agreement(id: str, request: Request, caller: _Reads) -> Response:
    """How far people agree with each other and with themselves."""
    task, items, labels = await _read(request, caller, id)
    found = await asyncio.to_thread(agree, task.spec, items, labels)
    return respond(plain(asdict(found)))


@router.get("/{id}/export")
async def export_labelling_labels(
    id: str,
    request: Request,
    caller: _Reads,
    format: Literal["jsonl", "json", "csv"] = "jsonl",
    each: bool = False,
) -> Response:
    """The labels as rows that `bench agreement` and `bench rate` read; `each`: a row a label."""
    task, items, labels = await _read(request, caller, id)
    target = io.BytesIO()
    make = label_rows if each else item_rows
    write_rows(lambda: make(task.spec, items, labels), target, f".{format}")
    name = f'attachment; filename="{task.name}.{format}"'
    headers = {"Content-Disposition": name, "Content-Type": TYPES[format]}
    return Response(target.getvalue(), headers=headers)


async def _open(request: Request, caller: Caller, id: str, named: str | None) -> Desk:
    """The task before whoever labels: whom the key names, or else who is named."""
    state = server_of(request)
    task = await find_visible_task(state, caller, id)
    name = caller.name if caller.key else named
    if not name:
        raise ApiError(400, "invalid_request", "say who labels: labeller")
    try:
        return await open_desk_of(state, task, check_labeller(name))
    except InputError as error:
        raise as_api_error(error) from None


async def _read(
    request: Request, caller: Caller, id: str
) -> tuple[StoredTask, list[Any], list[GivenLabel]]:
    state: ServerState = server_of(request)
    task = await find_visible_task(state, caller, id)
    items, labels = await asyncio.to_thread(state.resources.read, stored_labels.read_task, task.id)
    return task, items, labels


def _describe(task: StoredTask) -> dict[str, Any]:
    """A task without where its items come from, which may say whose texts they are."""
    spec = task.spec.model_dump(mode="json", exclude={"source"})
    return {**asdict(task), "spec": spec}
