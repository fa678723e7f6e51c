"""The JSON of resources and memories, as the OpenAPI document tells it, with an example of each.

Bodies are the specifications themselves, or made from them: with all fields left open for a change,
or without those that a path says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, cast

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, create_model

from textevolve.memory.memory_spec import Time
from textevolve.memory.recall_settings import RecallSettings
from textevolve.spec import Frozen, option
from textevolve.store.kinds import Kind

LINES = "application/x-ndjson"
"""Lines of JSON."""


def example_body(example: Mapping[str, Any]) -> Any:
    """What marks a parameter as the body, with an example of it."""
    return Body(openapi_examples={"example": {"value": dict(example)}})


def lines_body(description: str, example: str) -> dict[str, Any]:
    """What the OpenAPI document says of a body of JSON lines."""
    told = {"schema": {"type": "string"}, "example": example}
    return {"requestBody": {"description": description, "required": True, "content": {LINES: told}}}


def open_fields(spec: type[BaseModel], name: str, without: Sequence[str] = ()) -> type[BaseModel]:
    """A specification whose fields may all be left out, as for a change. What a field that is given
    may be stays the same; what has to fit together is checked when the change is made."""
    fields: dict[str, Any] = {}
    for own, info in spec.model_fields.items():
        if own in without:
            continue
        kind, changed = info.annotation, copy(info)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = open_fields(kind, f"{name}{own.capitalize()}")
        changed.default_factory, changed.default = None, None
        fields[own] = (kind, changed)
    made = _make(name, fields, extra="forbid", allow_inf_nan=False)
    made.__doc__ = f"What is to change of: {(spec.__doc__ or '').strip()}"
    return made


def _make(name: str, fields: Mapping[str, Any], **config: Any) -> type[BaseModel]:
    make = cast(Callable[..., type[BaseModel]], create_model)
    return make(name, __config__=ConfigDict(**config), **fields)  # pyright: ignore[reportArgumentType]


EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "namespaces": {"name": "acme", "description": "The support team's."},
    "agents": {
        "name": "ada",
        "persona": "You are Ada, who answers briefly and says when she does not know.",
        "memory": {"collections": ["notes"], "limit": 5},
        "memories": "notes",
    },
    "collections": {"name": "notes", "kind": "episodic", "description": "What customers said."},
    "users": {"name": "ann", "description": "Speaks Norwegian."},
}
"""Of each kind, a body that makes one."""


def changes_of(kind: Kind[Any, Any]) -> type[BaseModel]:
    """The body of a change."""
    return open_fields(kind.spec, f"{kind.noun.capitalize()}Changes", kind.fixed)


class Revert(Frozen):
    """Which version of a resource becomes the newest one once more."""

    version: int = Field(ge=1, description="As `versions` numbers them.")


NEW_MEMORY = {
    "text": "Ann drinks green tea.",
    "importance": 0.7,
    "valid_from": "2025-01-31",
    "source": "chat 3",
    "entities": ["Ann"],
}

MEMORY_LINES = (
    '{"text": "Ann drinks green tea.", "importance": 0.7}\n{"text": "Ann lives in Oslo."}\n'
)
SEARCH = {"query": "What does Ann drink?", "limit": 5}


class MemorySearch(RecallSettings):
    """A search by meaning and by words. The score of a memory is the mean of its relevance,
    importance and recency, each from 0 to 1 among those that were found, weighted by the fields of
    these names."""

    # The path says the collection, and nobody here makes summaries.
    collections: ClassVar[tuple[str, ...]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]
    summarize: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]

    query: str = option(description="A text; what bears on it is found.", min_length=1)
    as_of: Time | None = option(None, "What held at that time; now, unless given.")
