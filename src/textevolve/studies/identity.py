"""What makes a run what it is, compared: a run is gone on with only as it was begun."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from textevolve.errors import MismatchError

SHOWN = 3
"""Of how many differences it is said what they are."""


def refuse_differences(
    run_id: str, kept: Mapping[str, Any], wanted: Mapping[str, Any], what: str = "resumed"
) -> None:
    """Raises MismatchError, naming what differs, where a run cannot be gone on with as `wanted`."""
    differences = list(_differences(kept, wanted, ""))
    if differences:
        shown = "; ".join(differences[:SHOWN]) + ("; ..." if len(differences) > SHOWN else "")
        raise MismatchError(
            f"run {run_id} cannot be {what}: {shown}; start a new run instead, or resume it with"
            " the options, files and version of TextEvolve that it was begun with"
        )


def _differences(kept: object, wanted: object, path: str) -> Iterator[str]:
    if isinstance(kept, Mapping) and isinstance(wanted, Mapping):
        one, other = cast(Mapping[str, object], kept), cast(Mapping[str, object], wanted)
        for name in sorted({*one, *other}):
            place = f"{path}.{name}" if path else name
            yield from _differences(one.get(name), other.get(name), place)
    elif kept != wanted:
        yield f"{path} was {_shorten(kept)} and is now {_shorten(wanted)}"


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
