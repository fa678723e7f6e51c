"""Results as HTML in notebooks and as data frames.

The modules that draw pages register how each type of result is shown (`show_as`), so that results
do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from textevolve.errors import SettingsError

FRAMES = {"pandas": {}, "polars": {"infer_schema_length": None}}
"""The packages whose data frames `to_frame` returns, the first one that is installed, with options.
Without its option polars takes the types of columns from the first 100 rows."""
TableRows = Iterable[Mapping[str, Any]]


_ways: dict[type, tuple[Callable[[Any], str], Callable[[Any], TableRows]]] = {}
"""The registered functions by the type of result: they return it as an HTML fragment and as table
rows."""


def show_as(
    kind: type, html: Callable[[Any], str], rows: Callable[[Any], TableRows] = lambda _: ()
) -> None:
    """Register functions that return a result of type `kind` as an HTML fragment and as table
    rows."""
    _ways[kind] = html, rows


@dataclass(frozen=True)
class Drawing:
    """HTML with inline SVG, which notebooks show. `html`: the fragment with its own style."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


class Shown:
    """The base of results that notebooks show as HTML and that convert to a data frame."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        ways = _ways.get(type(self))
        return None if ways is None else ways[0](self)

    def _rows(self) -> TableRows:  # results of runs have one of their own (`attach_run`)
        ways = _ways.get(type(self))
        return () if ways is None else ways[1](self)

    def to_frame(self) -> Any:
        """Return the result as a data frame of pandas, or of polars if pandas is not installed. The
        columns are those of the CSV file.

        Raises:
            SettingsError: neither package is installed.
        """
        rows = list(map(dict, self._rows()))

        for name, options in FRAMES.items():
            try:
                return import_module(name).DataFrame(rows, **options)
            except ImportError:
                continue

        raise SettingsError(
            "a data frame needs pandas or polars: pip install pandas, or pip install polars"
        )
