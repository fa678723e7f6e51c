"""Labelling in a browser: the tasks, one item at a time, and how far people agree.

Each answer is a form that is sent and kept before the next item is shown, so that it works without
a script; `static/labelling.js` adds keys. A person is the key's name, or is asked for a name once.
"""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.errors import InputError
from textevolve.labelling.tasks import CHOICES, SKIP, StoredTask, check_labeller
from textevolve.server.access import Caller, needs
from textevolve.server.errors import ApiError
from textevolve.server.labelling.answers import (
    Desk,
    find_visible_task,
    list_visible_tasks,
    open_desk_of,
)
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.state import server_of
from textevolve.store import labelling as stored_labels
from textevolve.studies.labelling import report_task

router = APIRouter(prefix="/labelling")

_Labels = Annotated[Caller, Depends(needs("label"))]
_Reads = Annotated[Caller, Depends(needs("read"))]
COOKIE = "labeller"
COOKIE_SECONDS = 365 * 86_400
SEE_OTHER = 303


@router.get("")
async def show_tasks(request: Request, caller: _Labels) -> Response:
    tasks = await list_visible_tasks(server_of(request), caller)
    return draw(request, "labelling.html", tasks=tasks, name=_name_of(request, caller))


@router.post("/name")
async def take_name(request: Request, caller: _Labels) -> Response:
    """Keep who labels here. An empty name asks anew."""
    form = await read_form(request)
    given = form.get("name", "").strip()
    aim = form.get("then", "")
    aim = aim if aim.startswith("/labelling/") and "\\" not in aim else "/labelling"
    answer = RedirectResponse(aim, SEE_OTHER)
    if not given:
        answer.delete_cookie(COOKIE, path="/labelling")
        return answer
    try:
        name = check_labeller(given)
    except InputError as error:
        return draw(request, "labelling_name.html", 400, then=aim, said=str(error), name=given)
    secure = request.url.scheme == "https"
    answer.set_cookie(
        COOKIE,
        quote(name, safe=""),
        max_age=COOKIE_SECONDS,
        path="/labelling",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return answer


@router.get("/{id}")
async def show_item(
    id: str, request: Request, caller: _Labels, item: int | None = None
) -> Response:
    """The item that is asked for, or the next without a label."""
    task = await find_visible_task(server_of(request), caller, id)
    name = _name_of(request, caller)
    if not name:
        return draw(request, "labelling_name.html", then=f"/labelling/{id}", said="", name="")
    desk = await open_desk_of(server_of(request), task, name)
    position = desk.next_after(-1) if item is None else item
    if position is None:
        return draw(request, "labelling_done.html", task=task, desk=desk)
    return draw(
        request,
        "labelling_item.html",
        task=task,
        desk=desk,
        position=position,
        showing=await desk.show(position),
        answer=desk.shown_answer(position),
        note=desk.labels[position].note if position in desk.labels else "",
    )


@router.post("/{id}")
async def take_answer(id: str, request: Request, caller: _Labels) -> Response:
    """Keep an answer, and go to the next item without one."""
    desk = await _open(request, caller, id)
    if desk is None:
        return RedirectResponse(f"/labelling/{id}", SEE_OTHER)
    form = await read_form(request)
    position = _read_position(form.get("item", ""), desk.task)
    await desk.answer(position, _read_answer(form, desk.task), form.get("note", ""))
    aim = desk.next_after(position)
    again = f"?item={aim}" if aim is not None and aim != position else ""
    return RedirectResponse(f"/labelling/{id}{again}", SEE_OTHER)


@router.post("/{id}/undo")
async def undo_answer(id: str, request: Request, caller: _Labels) -> Response:
    """Take back what was said last, and show it again."""
    desk = await _open(request, caller, id)
    latest = desk.latest if desk is not None else None
    if desk is None or latest is None:
        return RedirectResponse(f"/labelling/{id}", SEE_OTHER)
    await desk.take_back(latest.position)
    return RedirectResponse(f"/labelling/{id}?item={latest.position}", SEE_OTHER)


@router.get("/{id}/agreement")
async def show_agreement(id: str, request: Request, caller: _Reads) -> Response:
    state = server_of(request)
    task = await find_visible_task(state, caller, id)
    items, labels = await asyncio.to_thread(state.resources.read, stored_labels.read_task, task.id)
    report = await asyncio.to_thread(report_task, task, items, labels)
    return draw(request, "labelling_agreement.html", task=task, report=report)


async def _open(request: Request, caller: Caller, id: str) -> Desk | None:
    """None where nobody has said who labels."""
    state = server_of(request)
    task = await find_visible_task(state, caller, id)
    name = _name_of(request, caller)
    return await open_desk_of(state, task, name) if name else None


def _name_of(request: Request, caller: Caller) -> str:
    """Who labels: the key's name, or the one that was given here; empty where none was."""
    given = caller.name if caller.key else unquote(request.cookies.get(COOKIE, ""))
    try:
        return check_labeller(given)
    except InputError:
        return ""


def _read_position(given: str, task: StoredTask) -> int:
    if given.isascii() and given.isdigit() and int(given[:9]) < task.positions:
        return int(given)
    raise ApiError(404, "not_found", "the labelling task has no such item")


def _read_answer(form: dict[str, str], task: StoredTask) -> str:
    """The button that was pressed, or a choice for each question."""
    given = form.get("answer", "")
    if given in (SKIP, *CHOICES) or len(task.spec.questions) < 2:
        return given
    return ",".join(form.get(f"q{n}", "") for n in range(len(task.spec.questions)))
