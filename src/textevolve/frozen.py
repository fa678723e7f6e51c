"""How a value is declared: a dataclass that is not changed once it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """Make a class a dataclass whose fields are set once, and that takes no others (slots)."""
    return dataclass(frozen=True, slots=True)(kind)
