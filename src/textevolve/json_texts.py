"""JSON in texts, as files, traces and applications have it: read if it is some, written if not."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any

CONTAINERS = ("[", "{")
"""The first characters of an array and of an object."""


def parse_text(value: Any, marks: Collection[str] = (*CONTAINERS, '"')) -> Any:
    """Return what a JSON text holds that begins with one of `marks`; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in marks:
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def write_text(value: object) -> str:
    """Return a text as it stands, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
