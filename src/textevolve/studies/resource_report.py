"""How namespaces, agents, collections and users are shown: as data, in tables, and whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, cast

from textevolve.agents.resources import (
    AgentSpec,
    CollectionSpec,
    NamespaceSpec,
    PersonaVersion,
    UserSpec,
)
from textevolve.memory.memory_spec import write_time
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Report, Table, Texts
from textevolve.spec import Frozen

SHORT = 60


@dataclass(frozen=True)
class ResourceView:
    """`command`: the group; `group`: what works on it in an open namespace; `columns`: fields that
    a list shows. `fixed`: fields that are chosen for good. `walled`: it belongs to a namespace.
    `holds`: what is lost with it."""

    noun: str
    command: str
    spec: type[Frozen]
    columns: Sequence[str]
    fixed: Sequence[str] = ("name",)
    walled: bool = True
    personas: bool = False
    holds: str = ""

    @property
    def group(self) -> Callable[[Any], Any]:
        return attrgetter(self.command)


VIEWS: Mapping[str, ResourceView] = {
    view.command: view
    for view in (
        ResourceView(
            "namespace",
            "namespaces",
            NamespaceSpec,
            ("name", "created", "description"),
            walled=False,
            holds="all its agents, collections, memories, users and chats",
        ),
        ResourceView(
            "agent",
            "agents",
            AgentSpec,
            ("name", "persona_version", "updated", "model", "collections", "persona"),
            personas=True,
            holds="its personas and chats (memories stay in their collections)",
        ),
        ResourceView(
            "collection",
            "collections",
            CollectionSpec,
            ("name", "kind", "memories", "changed", "embedder", "description"),
            ("name", "kind", "embedder", "dimension"),
            holds="all its memories",
        ),
        ResourceView("user", "users", UserSpec, ("name", "created", "description")),
    )
}
TIMES = ("created", "updated", "changed")


def describe(stored: Any, personas: Sequence[PersonaVersion] = ()) -> dict[str, Any]:
    """What is stored, as JSON-ready data; times as ISO 8601."""
    found: dict[str, Any] = {}
    for name, value in asdict(stored).items():
        found |= value.model_dump(mode="json") if isinstance(value, Frozen) else {name: value}
    if personas:
        found["personas"] = [asdict(one) for one in personas]
    for one in (found, *found.get("personas", ())):
        one.update({name: write_time(one[name]) for name in TIMES if name in one})
    return found


def draw_list(view: ResourceView, data: Sequence[Mapping[str, Any]]) -> Report:
    """A line for each of those that are described so."""
    rows = [_flatten(one) for one in data]
    numbers = ("persona_version", "memories") if view.noun == "collection" else ("persona_version",)
    columns = [
        Column(name.replace("_", " "), "count" if name in numbers else "text")
        for name in view.columns
    ]
    cells = [tuple(_cell(name, row.get(name)) for name in view.columns) for row in rows]
    return Report(view.command.capitalize(), "", [Table("", columns, cells)])


def draw_one(
    view: ResourceView,
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
    return Report(f"{view.noun.capitalize()} {data['name']}", "", blocks, facts)


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
