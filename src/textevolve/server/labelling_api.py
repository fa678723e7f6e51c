"""`/v1/labelling`: tasks, agreement, export. Labels are given at the pages.

Labellers see neither the origin of texts nor other people's labels; figures and the export also
need the scope `read`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from textevolve.errors import InputError, NotFoundError
from textevolve.labelling.agreement import agree
from textevolve.labelling.label_rows import item_rows, label_rows
from textevolve.labelling.tasks import StoredTask
from textevolve.report.data import plain, write_rows
from textevolve.rows.images import ImageReading
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import respond
from textevolve.server.state import server_of
from textevolve.server.studies.reading import MEDIA, find_study_run
from textevolve.store import labelling as stored_labels
from textevolve.studies.case_rows import RowReading
from textevolve.studies.columns import Columns
from textevolve.studies.labelling import LabellingSpec, make_task, row_cases, run_cases

router = APIRouter(prefix="/v1/labelling", tags=["labelling"])

Labeller = Annotated[Caller, Depends(needs("label"))]
Reader = Annotated[Caller, Depends(needs("read"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
SENT_ROWS = RowReading(images=ImageReading(files=False))
"""A file that a client's row names would be one of the server's."""


class NewTask(LabellingSpec):
    """A task, with its rows or the run whose texts are labelled."""

    namespace: str | None = Field(None, description="Of the task; that of the settings else.")
    rows: tuple[Mapping[str, Any], ...] | None = Field(
        None, description="Rows with an input and one output or more, as files have them."
    )
    run: str | None = Field(None, description="A run in place of rows, by its id.")


def list_visible_tasks(request: Request, caller: Caller) -> list[StoredTask]:
    tasks = server_of(request).resources.read(stored_labels.list_tasks)
    return [task for task in tasks if caller.sees(task.namespace)]


def find_visible_task(request: Request, caller: Caller, id: str) -> StoredTask:
    """
    Raises:
        NotFoundError: there is no such task, or the caller does not see its namespace.
    """
    task = server_of(request).resources.read(stored_labels.get_task, id)
    if not caller.sees(task.namespace):
        raise NotFoundError("there is no such labelling task")
    return task


@router.get("")
def list_labelling_tasks(request: Request, caller: Labeller) -> Response:
    """The labelling tasks, the newest first, with how much each person has labelled."""
    return respond({"data": [_describe(task) for task in list_visible_tasks(request, caller)]})


@router.post("", status_code=201)
def create_labelling_task(given: NewTask, request: Request, caller: Labeller) -> Response:
    """Make a labelling task of rows, or of the texts of a run."""
    state = server_of(request)
    space = given.namespace or state.settings.namespace
    check_namespace(caller, space)
    if (given.rows is None) == (given.run is None):
        raise InputError("give rows or run")
    if given.run is not None:
        find_study_run(state.store, caller, given.run)
        cases, source = run_cases(given, state.store, given.run), f"run {given.run}"
    else:
        rows = [(f"row {n}", row) for n, row in enumerate(given.rows or (), 1)]
        cases = row_cases(rows, Columns(), lambda: SENT_ROWS)
        source = f"{len(rows)} rows over HTTP"
    spec, items = make_task(given, cases, source)
    if space == state.settings.namespace:
        state.resources.ensure_namespace(space)
    task = state.resources.write(stored_labels.create_task, space, given.name, spec, items)
    return respond(_describe(task), 201)


@router.get("/{id}")
def show_labelling_task(id: str, request: Request, caller: Labeller) -> Response:
    """A task, with how much each person has labelled."""
    return respond(_describe(find_visible_task(request, caller, id)))


@router.delete("/{id}")
def delete_labelling_task(id: str, request: Request, caller: Admin) -> Response:
    """Remove a task with its items and all labels."""
    task = find_visible_task(request, caller, id)
    server_of(request).resources.write(stored_labels.delete_task, task.id)
    return respond({"id": task.id, "deleted": True})


@router.get("/{id}/agreement")
def show_labelling_agreement(id: str, request: Request, caller: Reader) -> Response:
    """How far people agree with each other and with themselves."""
    task = find_visible_task(request, caller, id)
    items, labels = server_of(request).resources.read(stored_labels.read_task, task.id)
    return respond(plain(asdict(agree(task.spec, items, labels))))


@router.get("/{id}/export")
def export_labelling_labels(
    id: str,
    request: Request,
    caller: Reader,
    format: Literal["jsonl", "json", "csv"] = "jsonl",
    each: bool = False,
) -> Response:
    """The labels as rows that `bench agreement` and `bench rate` read; `each`: a row a label."""
    task = find_visible_task(request, caller, id)
    items, labels = server_of(request).resources.read(stored_labels.read_task, task.id)
    target, rows_of = io.BytesIO(), label_rows if each else item_rows
    write_rows(lambda: rows_of(task.spec, items, labels), target, f".{format}")
    name = f'attachment; filename="{task.name}.{format}"'
    headers = {"Content-Disposition": name, "Content-Type": MEDIA[format]}
    return Response(target.getvalue(), headers=headers)


def _describe(task: StoredTask) -> dict[str, Any]:
    """Return a task without its source, which may say whose texts they are."""
    return {**asdict(task), "spec": task.spec.model_dump(mode="json", exclude={"source"})}
