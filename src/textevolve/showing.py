"""How a result shows itself: in a notebook as HTML, and as a data frame.

What is shown of a type of result is said by the floors above (`show_as`), so that a result does not
depend on pages; here is only what all results have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from textevolve.errors import SettingsError

FRAMES = ("pandas", "polars")


@dataclass(frozen=True, slots=True)
class _Ways:
    html: Callable[[Any], str]
    rows: Callable[[Any], Iterable[Mapping[str, Any]]]


_ways: dict[type, _Ways] = {}


def show_as(
    kind: type, html: Callable[[Any], str], rows: Callable[[Any], Iterable[Mapping[str, Any]]]
) -> None:
    """Say how results of a type are shown: as an HTML fragment, and as rows of a table."""
    _ways[kind] = _Ways(html, rows)


class Shown:
    """A result that a notebook draws, and that becomes a data frame."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        ways = _ways.get(type(self))
        return None if ways is None else ways.html(self)

    def to_frame(self) -> Any:
        """A data frame of pandas or polars, whichever is there; its columns are those of CSV files.

        Raises:
            SettingsError: neither is installed.
        """
        ways = _ways.get(type(self))
        rows = [] if ways is None else [dict(row) for row in ways.rows(self)]
        for name in FRAMES:
            try:
                return import_module(name).DataFrame(rows)
            except ImportError:
                continue
        raise SettingsError(
            "a data frame needs pandas or polars: pip install pandas, or pip install polars"
        )
