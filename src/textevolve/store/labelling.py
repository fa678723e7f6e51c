"""Labelling tasks, their items, and people's labels.

All functions take a connection. A later label of the same person for the same item replaces the
earlier one, so several tabs and people do not conflict.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.engine import Connection

from textevolve.errors import InputError, NotFoundError
from textevolve.labelling.tasks import (
    LabelItem,
    PersonLabel,
    StoredTask,
    TaskSpec,
    check_answer,
    check_labeller,
    check_note,
)
from textevolve.store.resource_rows import (
    ResourceTable,
    build,
    delete_where,
    fetch_all,
    fetch_one,
    insert_rows,
    namespace_id,
    new_id,
    replace_row,
    require_row,
)
from textevolve.store.tables import labelling_items, labelling_tasks, labels
from textevolve.texts.prose import fold_case

TASK = ResourceTable("labelling task", "labels", labelling_tasks, "la", "create {} DATA")


def create_task(
    connection: Connection, namespace: str, name: str, spec: TaskSpec, items: Sequence[LabelItem]
) -> StoredTask:
    """Create a labelling task with its items.

    Raises:
        InputError: the name is taken, there is no such namespace, or there are no items.
    """
    if not items:
        raise InputError(f"labelling task '{name}': there is nothing to label")
    space = namespace_id(connection, namespace)

    if fetch_one(connection, labelling_tasks, namespace_id=space, name=name) is not None:
        raise InputError(
            f"there is a labelling task '{name}' already; give another name, or delete it with:"
            f" textevolve labels delete {name}"
        )

    id = new_id(TASK)
    row = {"id": id, "namespace_id": space, "name": name, "created": time.time()}
    row["spec"] = _ascii(spec.model_dump(mode="json"))
    insert_rows(connection, labelling_tasks, [row])
    rows = [
        {"task_id": id, "position": position, "item": _ascii(asdict(item))}
        for position, item in enumerate(items)
    ]
    insert_rows(connection, labelling_items, rows)

    return get_task(connection, id)


def _ascii(data: Any) -> str:
    """Encode data as JSON in ASCII, which escapes characters that a database cannot store, such as
    NUL and half a surrogate pair."""
    return json.dumps(data, separators=(",", ":"))


def find_task(connection: Connection, namespace: str, name: str) -> StoredTask:
    """Find a labelling task by name.

    Raises:
        NotFoundError: the task does not exist; the message suggests the nearest name.
    """
    return _read_task(connection, require_row(connection, TASK, name, namespace))


def get_task(connection: Connection, id: str) -> StoredTask:
    """Return the task with this id.

    Raises:
        NotFoundError: no task has this id.
    """
    row = connection.execute(TASK.query().where(labelling_tasks.c.id == id)).one_or_none()
    if row is None:
        raise NotFoundError("there is no such labelling task")

    return _read_task(connection, row)


def list_tasks(connection: Connection, namespace: str | None = None) -> list[StoredTask]:
    """List the tasks of a namespace, or all, the newest first."""
    query = TASK.query().order_by(labelling_tasks.c.created.desc())
    if namespace is not None:
        query = query.where(labelling_tasks.c.namespace_id == namespace_id(connection, namespace))
    return [_read_task(connection, row) for row in connection.execute(query).all()]


def _read_task(connection: Connection, row: Row[Any]) -> StoredTask:
    items = select(func.count()).where(labelling_items.c.task_id == row.id)
    number = func.count().label("number")
    done = select(labels.c.labeller, number).where(labels.c.task_id == row.id)
    by_labeller = done.group_by(labels.c.labeller).order_by(labels.c.labeller)
    return StoredTask(
        id=row.id,
        namespace=row.namespace,
        name=row.name,
        spec=TaskSpec(**json.loads(row.spec)),
        created=row.created,
        positions=connection.execute(items).scalar_one(),
        done={each.labeller: each.number for each in connection.execute(by_labeller)},
    )


def read_task(connection: Connection, id: str) -> tuple[list[LabelItem], list[PersonLabel]]:
    """Read all items of a task, in the order of their positions, and all its labels."""
    rows = fetch_all(connection, labelling_items, "position", task_id=id)
    return [_read_item(row.item) for row in rows], read_labels(connection, id)


def read_task_item(connection: Connection, task: str, position: int) -> LabelItem:
    """Return the item at a position of a task.

    Raises:
        NotFoundError: the task has no such position.
    """
    row = fetch_one(connection, labelling_items, task_id=task, position=position)
    if row is None:
        raise NotFoundError(f"the labelling task has no item {position}")

    return _read_item(row.item)


def _read_item(text: str) -> LabelItem:
    fields: dict[str, Any] = json.loads(text)
    for name in ("texts", "candidates", "variants"):
        fields[name] = tuple(fields[name])
    # Tasks of earlier versions have no strata.
    stratum = fields.get("stratum")
    fields["stratum"] = tuple(stratum) if stratum else None
    return build(LabelItem, fields)


def read_labels(
    connection: Connection, task: str, labeller: str | None = None
) -> list[PersonLabel]:
    """Return the labels of a task, of all labellers or one, sorted by position, then by
    labeller."""
    person: dict[str, str] = {}
    if labeller is not None:
        person = {"labeller": find_labeller(connection, task, labeller)}
    rows = fetch_all(connection, labels, "position", "labeller", task_id=task, **person)
    return [
        PersonLabel(row.position, row.labeller, created=row.created, **json.loads(row.label))
        for row in rows
    ]


def find_labeller(connection: Connection, task: str, name: str) -> str:
    """Return the name of a labeller as earlier labels of the task have it, since a person may write
    it in another case."""
    query = select(labels.c.labeller).where(labels.c.task_id == task).distinct()
    names = sorted(connection.execute(query).scalars())
    if name in names:
        return name

    return next((known for known in names if fold_case(known) == fold_case(name)), name)


def keep_label(connection: Connection, task: StoredTask, label: PersonLabel) -> PersonLabel:
    """Store a person's label of an item, replacing an earlier one. A name that differs from that of
    an earlier label in case alone is the same person's.

    Raises:
        InputError: the task has no such item, or no such answer.
    """
    read_task_item(connection, task.id, label.position)
    checked = replace(
        label,
        labeller=find_labeller(connection, task.id, check_labeller(label.labeller)),
        answer=check_answer(task.spec, label.answer),
        note=check_note(label.note),
        created=label.created or time.time(),
    )
    label_data = {"answer": checked.answer, "note": checked.note, "swapped": checked.swapped}
    row = {"task_id": task.id, "position": checked.position, "labeller": checked.labeller}
    row |= {"created": checked.created, "label": _ascii(label_data)}
    replace_row(connection, labels, row)

    return checked


def delete_task(connection: Connection, id: str) -> None:
    """Remove a task with its items and labels."""
    for table in (labels, labelling_items):
        delete_where(connection, table, task_id=id)
    delete_where(connection, labelling_tasks, id=id)


def delete_tasks_of(connection: Connection, namespace: str) -> None:
    """Remove all tasks of a namespace, by its id."""
    for task in fetch_all(connection, labelling_tasks, namespace_id=namespace):
        delete_task(connection, task.id)
