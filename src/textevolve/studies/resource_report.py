"""Reports on resources (namespaces, agents, collections and users): as data, in tables, and in
full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, cast

from textevolve.agents.resources import SpecVersion
from textevolve.memory.memory_spec import write_time
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Diff, Report, Table, Texts
from textevolve.spec import Frozen
from textevolve.store.kinds import COLLECTIONS, Kind

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
    rows = [_flatten(row) for row in data]
    numbers = ("spec_version", "memories") if kind is COLLECTIONS else ("spec_version",)
    columns = [
        Column(name.replace("_", " "), "count" if name in numbers else "text")
        for name in kind.columns
    ]
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
    before, after = _flatten(earlier.spec), _flatten(later.spec)
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
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast(Sequence[Any], value)))
    return "" if value is None else str(value)
