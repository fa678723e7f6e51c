"""Mappings without the entries that say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def drop_none(values: Mapping[K, V | None]) -> dict[K, V]:
    """Return the entries whose value is not None."""
    return {key: value for key, value in values.items() if value is not None}


def drop_empty(values: Mapping[K, V | None]) -> dict[K, V]:
    """Return the entries whose value is not empty, zero, False or None."""
    return {key: value for key, value in values.items() if value}
