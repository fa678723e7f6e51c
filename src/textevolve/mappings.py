"""Choose entries of mappings: entries with a value, or with certain keys. Convert their values, and
read the fields of objects."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


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


def omit(values: Mapping[K, V], keys: Container[K]) -> dict[K, V]:
    """Return the entries without those of these keys."""
    return {key: value for key, value in values.items() if key not in keys}


def read_fields(record: object, *names: str) -> dict[str, Any]:
    """Return these fields of an object by their names, for the rows of tables and JSON output that
    have them under the same names; a field that the object lacks is None."""
    return {name: getattr(record, name, None) for name in names}


def first_of(values: Mapping[K, V], keys: Iterable[K]) -> V | None:
    """Return the value of the first of these keys that the mapping has; None if it has none."""
    return next((values[key] for key in keys if key in values), None)


def map_values(convert: Callable[[V], W], values: Mapping[K, V]) -> dict[K, W]:
    """Return the mapping with each value converted."""
    return {key: convert(value) for key, value in values.items()}
