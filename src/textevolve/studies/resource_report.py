"""How namespaces, agents, collections and users are shown: as data, in tables, and whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from textevolve.agents.resources import PersonaVersion
from textevolve.memory.memory_spec import write_time
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Report, Table, Texts
from textevolve.spec import Frozen
from textevolve.store.kinds import COLLECTIONS, Kind

SHORT = 60


TIMES = ("created", "updated", "changed")


def describe(
    stored: Any,
    personas: Sequence[PersonaVersion] = (),
    counts: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Describe a resource as JSON-ready data, with times as ISO 8601. `counts`: how many memories
    each collection holds, by its name."""
    found: dict[str, Any] = {}
    for name, value in asdict(stored).items():
        found |= value.model_dump(mode="json") if isinstance(value, Frozen) else {name: value}
    if counts is not None:
        found["memories"] = counts.get(found["name"], 0)
    if personas:
        found["personas"] = [asdict(one) for one in personas]
    for one in (found, *found.get("personas", ())):
        one.update({name: write_time(one[name]) for name in TIMES if name in one})
    return found


def draw_list(kind: Kind[Any, Any], data: Sequence[Mapping[str, Any]]) -> Report:
    """A line for each of those that are described so."""
    rows = [_flatten(one) for one in data]
    numbers = ("persona_version", "memories") if kind is COLLECTIONS else ("persona_version",)
    columns = [
        Column(name.replace("_", " "), "count" if name in numbers else "text")
        for name in kind.columns
    ]
    cells = [tuple(_cell(name, row.get(name)) for name in kind.columns) for row in rows]
    return Report(kind.command.capitalize(), "", [Table("", columns, cells)])


def draw_one(
    kind: Kind[Any, Any],
    described: Mapping[str, Any],
    personas: Sequence[PersonaVersion],
    *,
    whole: bool,
) -> Report:
    """All its fields; `whole`: with all versions of the persona."""
    data = _flatten(described)
    facts = {
        name.replace("_", " "): _say(value)
        for name, value in data.items()
        if name != "persona" and value not in (None, "", [])
    }
    blocks: list[Block] = []
    if personas:
        shown = [(_title(one), one.text) for one in (personas if whole else personas[-1:])]
        blocks.append(Texts("Persona", shown))
    return Report(f"{kind.noun.capitalize()} {data['name']}", "", blocks, facts)


def _title(persona: PersonaVersion) -> str:
    made = f"version {persona.version}, {write_time(persona.created)[:16].replace('T', ' ')}"
    return made + (f", {persona.source}" if persona.source else "")


def _flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """With the fields of the specifications in it beside the others."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _cell(name: str, value: Any) -> Any:
    if name in TIMES:
        return str(value)[:16].replace("T", " ")
    return value if isinstance(value, int) else wording.shorten(_say(value), SHORT)


def _say(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast(Sequence[Any], value)))
    return "" if value is None else str(value)
