"""What somebody who labels is shown, and how their answer is kept: the same by API and by page.

Nothing that is shown says where a text comes from: no id, no variant, no score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from textevolve.errors import InputError
from textevolve.labelling.order import ShownItem, show_to
from textevolve.labelling.tasks import GivenLabel, StoredTask, turn
from textevolve.server.access import Caller
from textevolve.server.errors import ApiError
from textevolve.server.state import ServerState
from textevolve.store import labelling as stored_labels

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Desk:
    """A task before one person: what they have labelled so far, by position."""

    state: ServerState
    task: StoredTask
    labeller: str
    labels: Mapping[int, GivenLabel]

    def next_after(self, position: int) -> int | None:
        """The next position without a label, from there on and then from the beginning; None where
        all have one."""
        places = [*range(position + 1, self.task.positions), *range(position + 1)]
        return next((one for one in places if one not in self.labels), None)

    @property
    def latest(self) -> GivenLabel | None:
        """What they said last."""
        return max(self.labels.values(), key=lambda one: one.created, default=None)

    async def show(self, position: int) -> ShownItem:
        """
        Raises:
            ApiError: the task has no such item.
        """
        item = await _read(self.state, stored_labels.read_task_item, self.task.id, position)
        return show_to(self.task.id, self.task.spec, item, self.labeller)

    async def answer(self, position: int, answer: str, note: str) -> GivenLabel:
        """Keep an answer about texts as they are shown; it is on the disk when this returns.

        Raises:
            ApiError: the task has no such item, or no such answer.
        """
        swapped = (await self.show(position)).swapped
        said = turn(answer, swapped=swapped)
        label = GivenLabel(position, self.labeller, said, note, swapped)
        try:
            return await asyncio.to_thread(
                self.state.resources.write, stored_labels.keep_label, self.task, label
            )
        except InputError as error:
            raise ApiError(400, "invalid_request", str(error)) from None

    async def take_back(self, position: int) -> bool:
        return await asyncio.to_thread(
            self.state.resources.write,
            stored_labels.drop_label,
            self.task.id,
            position,
            self.labeller,
        )

    def shown_answer(self, position: int) -> str:
        """What they said of the texts as they are shown; empty where nothing."""
        label = self.labels.get(position)
        return "" if label is None else turn(label.answer, swapped=label.swapped)


async def find_visible_task(state: ServerState, caller: Caller, id: str) -> StoredTask:
    """
    Raises:
        ApiError: there is no such task, or the caller does not see its namespace.
    """
    task = await _read(state, stored_labels.get_task, id)
    if not caller.sees(task.namespace):
        raise ApiError(404, "not_found", "there is no such labelling task")
    return task


async def list_visible_tasks(state: ServerState, caller: Caller) -> list[StoredTask]:
    found = await asyncio.to_thread(state.resources.read, stored_labels.list_tasks)
    return [task for task in found if caller.sees(task.namespace)]


async def open_desk_of(state: ServerState, task: StoredTask, labeller: str) -> Desk:
    labels = await asyncio.to_thread(
        state.resources.read, stored_labels.read_labels, task.id, labeller
    )
    return Desk(state, task, labeller, {one.position: one for one in labels})


async def _read(
    state: ServerState, query: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Read from the store; 404 if there is no such thing."""
    try:
        return await asyncio.to_thread(state.resources.read, query, *args, **kwargs)
    except InputError as error:
        raise ApiError(404, "not_found", str(error)) from None
