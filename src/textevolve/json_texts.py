"""Values that may be JSON in a text, as in files, traces and applications: parse and write them."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

CONTAINERS = ("[", "{")
"""The first characters of an array and of an object in JSON."""


def parse_text(value: Any, marks: Collection[str] = (*CONTAINERS, '"')) -> Any:
    """Parse a text as JSON if it begins with one of `marks` and is valid; return any other value
    unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in marks:
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def parse_printed(value: Any) -> Any:
    """Parse a text as an array or object of JSON, or as a list or dictionary as Python prints it,
    which is what data frames write into a cell; return any other value unchanged."""
    parsed = parse_text(value, CONTAINERS)
    if parsed is value and isinstance(value, str) and value.lstrip()[:1] in CONTAINERS:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(value.strip())
    return parsed


def find_path(value: Any, path: str) -> Any:
    """Return the value at a path of names and positions, such as `data.0.text`; None if there is no
    such value. The name `*` stands for the only field of an object. A text that is an array or
    object is looked into."""
    for step in path.split("."):
        value = parse_printed(value)
        if step == "*" and isinstance(value, dict):
            fields = list(cast(dict[str, Any], value).values())
            value = fields[0] if len(fields) == 1 else None
            continue

        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (LookupError, TypeError, ValueError):
            return None

    return value


def write_text(value: object) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_object(value: object) -> dict[str, Any]:
    """Return an object of JSON as it is, and {} for any other value."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_array(value: object) -> list[Any]:
    """Return an array of JSON as it is, and [] for any other value."""
    return cast(list[Any], value) if isinstance(value, list) else []
