"""Pages for labelling by people: the tasks, one item at a time, and how far the labellers agree.

Each answer is a form that is stored before the next item is shown, so labelling works without a
script; `static/labelling.js` adds keys. The name of a labeller is the name of the caller's key, or
a name that the person enters once. To avoid bias, the pages do not show where a text comes from: no
id, no variant, no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.errors import InputError, NotFoundError
from textevolve.labelling.tasks import (
    LabelItem,
    PersonLabel,
    StoredTask,
    check_labeller,
    is_swapped,
    show_to,
    turn,
)
from textevolve.server.guard import make_cookie, read_cookie
from textevolve.server.identity import Caller, MayLabel
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.state import Server
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import Store

router = APIRouter(prefix="/labelling")

Form = Annotated[dict[str, str], Depends(read_form)]
COOKIE = "labeller"
COOKIE_SECONDS = 365 * 86_400
SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Desk:
    """A labelling task as one person works on it.

    Attributes:
        task: The task with its items.
        labeller: The name of the person; may be empty.
        labels: The labels of this person, by the position of the item.
    """

    resources: Store
    task: StoredTask
    labeller: str
    labels: Mapping[int, PersonLabel]

    def next_after(self, position: int) -> int | None:
        """Return the next position without a label, searching from `position` to the end and then
        from the beginning; None if all have one."""
        places = [*range(position + 1, self.task.positions), *range(position + 1)]
        return next((place for place in places if place not in self.labels), None)

    def read(self, position: int) -> LabelItem:
        return self.resources.read(stored_labels.read_task_item, self.task.id, position)

    def show(self, position: int) -> LabelItem:
        return show_to(self.task.id, self.read(position), self.labeller)


def _open(request: Request, server: Server, caller: MayLabel, id: str) -> Desk:
    """Open a task with the labels of the labeller; a labeller without a name has none.

    Raises:
        NotFoundError: there is no such task, or the caller does not see its namespace.
    """
    task = server.resources.read(stored_labels.get_task, id)
    if not caller.sees(task.namespace):
        raise NotFoundError("there is no such labelling task")
    name = _labeller_of(request, caller)
    labels = server.resources.read(stored_labels.read_labels, task.id, name)

    return Desk(server.resources, task, name, {label.position: label for label in labels})


OpenDesk = Annotated[Desk, Depends(_open)]


@router.get("")
def show_tasks(request: Request, server: Server, caller: MayLabel) -> Response:
    tasks = server.resources.read(stored_labels.list_tasks)
    tasks = [task for task in tasks if caller.sees(task.namespace)]
    return draw(request, "labelling.html", tasks=tasks, name=_labeller_of(request, caller))


@router.post("/name")
def take_name(request: Request, caller: MayLabel, form: Form) -> Response:
    """Store the labeller's name in a cookie; an empty name removes it."""
    target = form.get("then", "")
    name = form.get("name", "").strip()
    target = target if target.startswith("/labelling/") and "\\" not in target else "/labelling"
    response = RedirectResponse(target, SEE_OTHER)
    seconds = COOKIE_SECONDS if name else 0
    try:
        value = quote(check_labeller(name), safe="") if name else ""
    except InputError as error:
        return draw(request, "labelling_name.html", 400, then=target, said=str(error), name=name)

    response.headers["set-cookie"] = make_cookie(request.scope, COOKIE, value, seconds)

    return response


@router.get("/{id}")
def show_item(id: str, request: Request, desk: OpenDesk, item: int | None = None) -> Response:
    """Show the item at a position, by default the first one without a label of this person."""
    if not desk.labeller:
        return draw(request, "labelling_name.html", then=f"/labelling/{id}", said="", name="")
    position = desk.next_after(-1) if item is None else item
    if position is None:
        return draw(request, "labelling_done.html", task=desk.task, desk=desk)
    label = desk.labels.get(position)

    return draw(
        request,
        "labelling_item.html",
        task=desk.task,
        desk=desk,
        position=position,
        showing=desk.show(position),
        answer=turn(label.answer, swapped=label.swapped) if label else "",
        note=label.note if label else "",
    )


@router.post("/{id}")
def take_answer(id: str, desk: OpenDesk, form: Form) -> Response:
    """Store an answer, converted from the order in which the page showed a pair of texts to the
    order of the item; then go to the next item without an answer."""
    if not desk.labeller:
        return RedirectResponse(f"/labelling/{id}", SEE_OTHER)
    digits = form.get("item", "")
    answer = form.get("answer", "")
    if not (digits.isascii() and digits.isdigit() and int(digits[:9]) < desk.task.positions):
        raise NotFoundError("the labelling task has no such item")
    position = int(digits)
    swapped = is_swapped(id, desk.read(position), desk.labeller)
    answer = turn(answer, swapped=swapped)
    label = PersonLabel(position, desk.labeller, answer, form.get("note", ""), swapped)
    desk.resources.write(stored_labels.keep_label, desk.task, label)
    following = desk.next_after(position)
    query = f"?item={following}" if following is not None and following != position else ""

    return RedirectResponse(f"/labelling/{id}{query}", SEE_OTHER)


def _labeller_of(request: Request, caller: Caller) -> str:
    """Return the name of the caller's key, or without a key the name in the cookie; an empty text
    if there is none or it is invalid."""
    stored = read_cookie(request.scope, COOKIE)
    name = caller.name if caller.key else unquote(stored)
    try:
        return check_labeller(name)
    except InputError:
        return ""
