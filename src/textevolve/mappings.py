"""Choose entries of mappings: entries with a value, or entries with certain keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def drop_none(values: Mapping[K, V | None]) -> dict[K, V]:
    """Return the entries whose value is not None."""
    return {key: value for key, value in values.items() if value is not None}


def drop_empty(values: Mapping[K, V | None]) -> dict[K, V]:
    """Return the entries whose value is not empty, zero, False or None."""
    return {key: value for key, value in values.items() if value}


def pick(values: Mapping[K, V], keys: Iterable[K]) -> dict[K, V]:
    """Return the entries with these keys, in their order; keys that the mapping lacks are left
    out."""
    return {key: values[key] for key in keys if key in values}


def first_of(values: Mapping[K, V], keys: Iterable[K]) -> V | None:
    """Return the value of the first of these keys that the mapping has; None if it has none."""
    return next((values[key] for key in keys if key in values), None)
