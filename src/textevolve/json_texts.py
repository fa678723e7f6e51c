"""Values that may be JSON in a text, as in files, traces and applications: parse and write them."""

from __future__ import annotations

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


def write_text(value: object) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_object(value: object) -> dict[str, Any]:
    """Return an object of JSON as it is, and {} for any other value."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_array(value: object) -> list[Any]:
    """Return an array of JSON as it is, and [] for any other value."""
    return cast(list[Any], value) if isinstance(value, list) else []
