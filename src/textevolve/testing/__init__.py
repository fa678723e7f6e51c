"""Assertions on texts, for tests that pytest runs: `assert_text` and `assert_texts`.

    from textevolve.testing import assert_text

    def test_tides():
        assert_text("Why are there tides?", answer("Why are there tides?"), min_score=0.7)

For async tests each has a variant with an `a` before its name (`aassert_text`). pytest finds the
plugin `textevolve.testing.plugin` by its entry point. The names below are loaded when they are
first used, and heavy modules only when a text is judged.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textevolve.testing.assertions import (
        aassert_text,
        aassert_texts,
        assert_text,
        assert_texts,
    )

__all__ = [
    "aassert_text",
    "aassert_texts",
    "assert_text",
    "assert_texts",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.assertions"), name)
