"""Find, create, change and delete the rows of named resources in a namespace, for every kind of
resource.

Each query is bound to the id of the namespace, so it never returns rows of another one. Other
modules of the package interpret the rows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Row, Select, Table, delete, insert, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import NotFoundError, TakenError
from textevolve.evaluation import check_text
from textevolve.json_texts import is_mapping, is_object
from textevolve.spec import suggest
from textevolve.store import tables
from textevolve.store.dialects import insert_into

R = TypeVar("R")

PARENTS = {"namespaces": "agents", "users": "agents", "collections": "memories"}
"""The group of commands that contains another group."""


@dataclass(frozen=True, slots=True)
class ResourceTable:
    """The table of a kind of resource. `noun`: its name in messages. `command`: its group of
    commands. `prefix`: of its ids. `make`, `change`: the commands that create and change a
    resource, with {} for its name."""

    noun: str
    command: str
    table: Table
    prefix: str
    make: str = "create {}"
    change: str = "update {}"

    @property
    def walled(self) -> bool:
        """Return whether resources of this kind belong to a namespace."""
        return "namespace_id" in self.table.c

    @property
    def command_path(self) -> str:
        """Return the words after `textevolve` that begin the commands of this kind."""
        return " ".join(filter(None, (PARENTS.get(self.command), self.command)))

    def query(self) -> Select[Any]:
        """Select rows. A row of a namespace has the namespace's name as `namespace`."""
        query = select(self.table).select_from(self.table)
        spaces = tables.namespaces
        if not self.walled:
            return query
        joined = query.join(spaces, spaces.c.id == self.table.c.namespace_id)
        return joined.add_columns(spaces.c.name.label("namespace"))

    def full_name(self, name: str, namespace: str) -> str:
        return f"{namespace}/{name}" if self.walled else name

    def place(self, namespace: str) -> str:
        return f" in the namespace '{namespace}'" if self.walled else ""


@dataclass(frozen=True, slots=True)
class NameRange:
    """A range of a list that is sorted by name: the names after `after`, at most `limit` of them; a
    limit of None: all."""

    after: str = ""
    limit: int | None = None


EVERYTHING = NameRange()

NAMESPACE = ResourceTable("namespace", "namespaces", tables.namespaces, "ns")


def new_id(kind: ResourceTable) -> str:
    """Return a new random id, which nobody can guess."""
    return f"{kind.prefix}_{secrets.token_hex(16)}"


def namespace_id(connection: Connection, name: str) -> str:
    """Return the id of a namespace.

    Raises:
        NotFoundError: there is no such namespace; names the command that creates one.
    """
    return require_row(connection, NAMESPACE, name).id


def require_row(
    connection: Connection, kind: ResourceTable, name: str, namespace: str = ""
) -> Row[Any]:
    """Return the row of this name in a namespace; for namespaces themselves, `namespace` is
    ignored.

    Raises:
        NotFoundError: no row has this name; the message suggests the nearest name.
    """
    query = _among(kind, connection, namespace)
    row = connection.execute(query.where(kind.table.c.name == name)).one_or_none()

    if row is None:
        near = suggest(name, [each.name for each in connection.execute(query)])
        command = kind.make.format(kind.full_name(name, namespace))
        raise NotFoundError(
            f"there is no {kind.noun} '{name}'{kind.place(namespace)}{near}; make it with:"
            f" textevolve {kind.command_path} {command}"
        )

    return row


def list_rows(
    connection: Connection,
    kind: ResourceTable,
    namespace: str,
    span: NameRange = EVERYTHING,
) -> list[Row[Any]]:
    """List the rows of a namespace that are in `span`, sorted by name."""
    query = _among(kind, connection, namespace)
    if span.after:
        query = query.where(kind.table.c.name > span.after)
    return list(connection.execute(query.limit(span.limit)).all())


def _among(kind: ResourceTable, connection: Connection, namespace: str) -> Select[Any]:
    query = kind.query().order_by(kind.table.c.name)
    if not kind.walled:
        return query
    return query.where(kind.table.c.namespace_id == namespace_id(connection, namespace))


def insert_row(
    connection: Connection,
    kind: ResourceTable,
    spec: BaseModel,
    namespace: str,
    values: Mapping[str, Any],
) -> str:
    """Create a row for a specification; return its id.

    Raises:
        TakenError: the name is taken. InputError: a text cannot be stored.
    """
    check_texts(spec)
    row: dict[str, Any] = {"id": new_id(kind), "name": getattr(spec, "name")}  # noqa: B009
    if kind.walled:
        row["namespace_id"] = namespace_id(connection, namespace)
    require_free_name(connection, kind, row["name"], namespace)
    now = time.time()
    defaults = {"created": now, "updated": now, "changed": now, "version": 0}
    row |= {column: value for column, value in defaults.items() if column in kind.table.c}
    insert_rows(connection, kind.table, [{**row, **values}])

    return row["id"]


def require_free_name(
    connection: Connection, kind: ResourceTable, name: str, namespace: str
) -> None:
    """Check that a name is free.

    Raises:
        TakenError: the name is taken.
    """
    query = _among(kind, connection, namespace).where(kind.table.c.name == name)

    if connection.execute(query).one_or_none() is not None:
        raise TakenError(
            f"the {kind.noun} '{name}' exists already{kind.place(namespace)}; change it with:"
            f" textevolve {kind.command_path} {kind.change.format(kind.full_name(name, namespace))}"
        )


def update_row(connection: Connection, kind: ResourceTable, id: str, /, **values: Any) -> None:
    update_where(connection, kind.table, {"updated": time.time(), **values}, id=id)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, if there are any."""
    if rows:
        connection.execute(insert(table), rows)


def insert_unless_stored(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless there is one with its key; return whether it was inserted."""
    statement = insert_into(connection, table).values(row).on_conflict_do_nothing()
    return connection.execute(statement).rowcount > 0


def replace_row(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Insert a row, or replace the row with its primary key."""
    statement = insert_into(connection, table).values(row)
    keys = list(table.primary_key.columns)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=row))


def fetch_all(
    connection: Connection, table: Table, *order: str, **equal: Any
) -> Sequence[Row[Any]]:
    """Return the rows whose columns equal these values, ordered by the columns `order`. Here and
    in the functions below, a list or a query stands for any of its values."""
    query = select(table).where(*match(table, equal))
    return connection.execute(query.order_by(*(table.c[name] for name in order))).all()


def fetch_one(connection: Connection, table: Table, **equal: Any) -> Row[Any] | None:
    """Return the row whose columns equal these values, None if there is none."""
    return connection.execute(select(table).where(*match(table, equal))).one_or_none()


def update_where(
    connection: Connection, table: Table, values: Mapping[str, Any], **equal: Any
) -> int:
    """Change the rows whose columns equal these values; return how many there were."""
    return connection.execute(update(table).where(*match(table, equal)).values(values)).rowcount


def delete_where(connection: Connection, table: Table, **equal: Any) -> int:
    """Remove the rows whose columns equal these values; return how many there were."""
    return connection.execute(delete(table).where(*match(table, equal))).rowcount


def match(table: Table, equal: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """Return the conditions that columns equal these values."""
    return [
        table.c[name].in_(value) if type(value) in (list, Select) else table.c[name] == value
        for name, value in equal.items()
    ]


def mapping_of(row: Row[Any]) -> dict[str, Any]:
    """Return a row's values by column."""
    return dict(row._mapping)  # pyright: ignore[reportPrivateUsage]  it is public


def build(cls: type[R], values: Mapping[str, Any]) -> R:
    """Build a dataclass from the values that it has fields for."""
    return cls(**{field.name: values[field.name] for field in fields(cls)})  # pyright: ignore[reportArgumentType]


def merge_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a specification with some of them changed, including fields of nested
    specifications."""
    merged = dict(old)
    for name, value in new.items():
        both = isinstance(merged.get(name), dict) and is_mapping(value)
        merged[name] = merge_fields(merged[name], value) if both else value
    return merged


def check_texts(spec: BaseModel) -> None:
    """Check that the database can store all texts of a specification.

    Raises:
        InputError: a text in it cannot be stored.
    """
    for name, text in _texts(spec.model_dump(), ""):
        if text:
            check_text(name, text)


def _texts(values: Mapping[str, Any], before: str) -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, str):
            yield f"{before}{name}", value
        elif is_object(value):
            yield from _texts(value, f"{before}{name}.")
        elif isinstance(value, tuple):
            several = cast(tuple[Any, ...], value)
            yield from ((f"{before}{name}", text) for text in several if isinstance(text, str))
