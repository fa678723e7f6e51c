"""Split a long sequence into lists that fit into memory, however large its items are: a limit of
items alone would let a few long texts take gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

PORTION_BYTES = 8_000_000
"""The size of the items of a list at which it ends."""


def split_portions(
    items: Iterable[T],
    most: int,
    size_of: Callable[[T], int],
    most_bytes: int = PORTION_BYTES,
) -> Iterator[list[T]]:
    """Yield the items in lists of at most `most`; a list ends with the item that brings the sum of
    their sizes to `most_bytes`. Items are read as they are needed."""
    portion: list[T] = []
    size = 0

    for item in items:
        portion.append(item)
        size += size_of(item)
        if len(portion) == most or size >= most_bytes:
            yield portion
            portion = []
            size = 0

    if portion:
        yield portion


def take_portion(
    items: Iterable[T],
    most: int,
    size_of: Callable[[T], int],
    most_bytes: int = PORTION_BYTES,
) -> list[T]:
    """Return the first such list; an empty one without items."""
    empty: list[T] = []
    return next(split_portions(items, most, size_of, most_bytes), empty)


def measure(values: Iterable[object]) -> int:
    """Return the sum of the lengths of the texts and bytes among some values."""
    return sum(len(value) for value in values if isinstance(value, str | bytes))
