"""Export and import: files that carry namespaces, agents, collections and users from one store to
another.

Each line is a JSON object. The first line is a header; then come users, collections, each followed
by its memories, and agents, all in their current version. Embeddings are not exported; an import
computes them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, fields, replace
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from textevolve.agents.resources import AgentSpec, SpecVersion
from textevolve.desk.memories import MemoryDesk
from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.json_texts import is_mapping, is_sequence
from textevolve.memory.ranking import token_vectors
from textevolve.memory.record import MemoryRecord, stream_memories, write_time
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Diff, Report, Table, Texts
from textevolve.rows import parse_row, read_lines
from textevolve.spec import Frozen, explain, suggest
from textevolve.store import kinds, upkeep
from textevolve.store.kinds import AGENTS, COLLECTIONS, KINDS, NAMESPACES, USERS, Kind
from textevolve.store.memory_rows import chunks
from textevolve.store.upkeep import Exported

T = TypeVar("T")
FORMAT = "textevolve export"  # the name of the format in the header of an exported file
VERSION = 1

_STORED = {kind.noun: TypeAdapter[Any](kind.stored) for kind in KINDS.values()}
_MEMORY = TypeAdapter(MemoryRecord)


async def export_lines(
    desk: MemoryDesk, kind: Kind[Any, Any], name: str
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the lines of a file that holds one resource, or a namespace with everything in it.

    Raises:
        InputError: there is no resource of this name.
    """

    async def read(query: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(desk.resources.read, query, *args)

    yield {FORMAT: VERSION, "kind": kind.command}
    resources = [(kind, await read(kinds.get, kind, desk.namespace, name))]
    if kind is NAMESPACES:
        desk = replace(desk, namespace=name)
        for inner in (USERS, COLLECTIONS, AGENTS):
            resources += [(inner, each) for each in await read(kinds.list_all, inner, name)]

    for inner, stored in resources:
        yield {inner.noun: _STORED[inner.noun].dump_python(stored, mode="json")}
        if inner is COLLECTIONS:
            async with aclosing(stream_memories(desk.memories, stored.name)) as memories:
                async for memory in memories:
                    yield {"memory": _MEMORY.dump_python(memory, mode="json")}


def read_content(path: str, kind: Kind[Any, Any]) -> list[Exported]:
    """Read an exported file that holds one kind of resource; `-` is standard input.

    Raises:
        InputError: the file is no such export, or a line cannot be used; names the line.
    """
    return take_content(read_lines(path), kind, path)


def take_content(
    lines: Iterator[tuple[str, str]], kind: Kind[Any, Any], path: str
) -> list[Exported]:
    """Convert the lines of an exported file, each with its position before it, to resources: a
    namespace first, then users, collections and agents. `path`: the file's name for messages."""
    where, header = next(lines, (path, "{}"))
    head = parse_row(header, where, "line")
    other = KINDS.get(str(head.get("kind")))
    if head.get(FORMAT) is None or other is None:
        raise InputError(f"{where}: is not a file of textevolve {kind.command_path} export")
    if head[FORMAT] != VERSION:
        raise InputError(
            f"{where}: has version {head[FORMAT]} of the format, and this program reads {VERSION}"
        )

    if other is not kind:
        raise InputError(
            f"{where}: holds {other.command}; read it with: textevolve {other.command_path} import"
        )

    resources: list[Exported] = []

    for where, text in lines:
        row = parse_row(text, where, "line")
        try:
            _take_line(resources, row)
        except ValidationError as error:
            raise InputError(f"{where}: {explain(error)}") from None
        except (InputError, ValueError) as error:
            raise InputError(f"{where}: {error}") from None

    order = [NAMESPACES, USERS, COLLECTIONS, AGENTS]

    return sorted(resources, key=lambda resource: order.index(resource.kind))


def _take_line(resources: list[Exported], row: Mapping[str, Any]) -> None:
    """Read a line, and add its resource to the list, or its memory to the collection before it."""
    for kind in KINDS.values():
        if kind.noun in row:
            stored = _STORED[kind.noun].validate_python(row[kind.noun])
            _reject_unknown(row[kind.noun], stored)
            resources.append(Exported(kind, stored, kinds.spec_of(kind, stored)))
            return

    if "memory" not in row or not resources or resources[-1].kind is not COLLECTIONS:
        raise InputError("is not a line of an exported file, or is a memory before any collection")
    memory = _MEMORY.validate_python(row["memory"])
    _reject_unknown(row["memory"], memory)
    check_text("the text", memory.text)
    resources[-1].memories.append(memory)


def _reject_unknown(row: Mapping[str, Any], stored: Any) -> None:
    """Raise InputError if a resource or a memory has fields that would be lost."""
    known_names = {field.name for field in fields(stored)}
    unknown = sorted(row.keys() - known_names)
    if unknown:
        raise InputError(f"unknown field '{unknown[0]}'{suggest(unknown[0], sorted(known_names))}")


async def import_content(desk: MemoryDesk, resources: list[Exported], *, name: str | None) -> None:
    """Store the resources of an exported file in one transaction: in the desk's namespace, or in
    the namespace that the file holds. Texts are embedded first. `name`: another name for the
    resource or for that namespace.

    Raises:
        InputError: the name is taken. ModelError: a text cannot be embedded.
    """
    namespace = next((each for each in resources if each.kind is NAMESPACES), None)

    for each in resources:
        if name is not None and (namespace is None or namespace is each):
            each.spec = type(each.spec)(**{**each.spec.model_dump(), "name": name})
        if each.kind is AGENTS:
            prefix = f"{each.stored.namespace}/"
            each.spec = AgentSpec(**_bring_home(each.spec.model_dump(), prefix))

    space = desk.namespace if namespace is None else namespace.spec.name
    await asyncio.to_thread(desk.resources.read, upkeep.require_free_names, space, resources)
    for each in resources:
        for batch in chunks(each.memories):
            texts = [memory.text for memory in batch]
            vectors = await desk.embed_all(each.stored, texts)
            each.vectors |= {m.id: v for m, v in zip(batch, vectors, strict=True)}
            tokens = await token_vectors(desk.embed, each.stored, texts)
            each.tokens |= {m.id: t for m, t in zip(batch, tokens, strict=bool(tokens))}

    await asyncio.to_thread(desk.resources.write, upkeep.store_all, space, resources)


def _bring_home(value: Any, prefix: str) -> Any:
    """Return an agent's fields with the former namespace removed from the names of its
    collections."""
    if is_mapping(value):
        names = ("memory", "collections", "memories", "insights")
        return {n: _bring_home(v, prefix) if n in names else v for n, v in value.items()}

    if is_sequence(value):
        return [_bring_home(each, prefix) for each in value]

    return value.removeprefix(prefix) if isinstance(value, str) else value


# Reports on resources (namespaces, agents, collections and users): as data, in tables, and in
# full.

SHORT = 60


TIMES = ("created", "updated", "changed")


def describe(
    stored: Any,
    versions: Sequence[SpecVersion] = (),
    counts: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return a resource as JSON-ready data, with times in ISO 8601. `versions`: its versions;
    `counts`: the number of memories in each collection, by its name."""
    data: dict[str, Any] = {}
    for name, value in asdict(stored).items():
        data |= value.model_dump(mode="json") if isinstance(value, Frozen) else {name: value}
    if counts is not None:
        data["memories"] = counts.get(data["name"], 0)
    data.update({name: write_time(data[name]) for name in TIMES if name in data})
    if versions:
        data["versions"] = describe_versions(versions)

    return data


def describe_versions(versions: Sequence[SpecVersion]) -> list[dict[str, Any]]:
    return [{**asdict(each), "created": write_time(each.created)} for each in versions]


def draw_list(kind: Kind[Any, Any], data: Sequence[Mapping[str, Any]]) -> Report:
    """Draw a table with a row for each resource. `data`: as `describe` returns it."""
    numbers = ("spec_version", "memories")
    columns = [
        Column(name.replace("_", " "), "count" if name in numbers else "text")
        for name in kind.columns
    ]
    rows = map(_flatten, data)
    cells = [tuple(_cell(name, row.get(name)) for name in kind.columns) for row in rows]

    return Report(kind.command.capitalize(), "", [Table("", columns, cells)])


def draw_one(
    kind: Kind[Any, Any], described: Mapping[str, Any], versions: Sequence[SpecVersion]
) -> Report:
    """Draw all fields of a resource, and what changed from each version to the next; `versions`
    begins with the oldest. `described`: the result of `describe`."""
    data = _flatten(described)
    facts = {
        name.replace("_", " "): _write(value)
        for name, value in data.items()
        if name not in ("persona", "versions") and value not in (None, "", [])
    }
    blocks: list[Block] = []
    if "persona" in data:
        blocks.append(Texts("Persona", [("", data["persona"])]))
    for earlier, later in pairwise(versions):
        blocks += draw_difference(earlier, later)

    return Report(f"{kind.noun.capitalize()} {data['name']}", "", blocks, facts)


def draw_difference(earlier: SpecVersion, later: SpecVersion) -> list[Block]:
    """Draw the differences between two versions, field by field; a field that only one of them has
    is left out."""
    title = f"From version {earlier.version} to version {later.version}"
    title += f", {later.source}" if later.source else ""
    before = _flatten(earlier.spec)
    after = _flatten(later.spec)
    blocks: list[Block] = [
        Diff(f"{title}: {name.replace('_', ' ')}", _write(before[name]), _write(after[name]))
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]

    return blocks or [Diff(title, "", "")]


def _flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a resource with the fields of its specification at the top level."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def _cell(name: str, value: Any) -> Any:
    if name in TIMES:
        return str(value)[:16].replace("T", " ")
    return value if isinstance(value, int) else wording.shorten(_write(value), SHORT)


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_sequence(value):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
