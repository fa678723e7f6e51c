"""Snapshots: copies of an agent's states at the beginning and the end of a node, plain, bounded,
and without secrets.

A snapshot consists only of None, numbers, texts, lists, tuples and dicts. Omitted data are marked:
a truncated text ends like `<12 more characters: not kept>`, and an object that cannot be copied
becomes `<Lock: not kept>`, so that evaluators can detect it (`find_loss`).
"""

from __future__ import annotations

import datetime
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, is_dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from textevolve.json_texts import is_object, is_sequence

MASK = "***"
"""The text that replaces a secret."""
MARK = "<{}: not kept>"
"""The form of the marks for omitted data."""
MARK_LENGTH = 60
"""The maximum number of characters of such a mark at the end of a truncated text."""
_MARKED = re.compile(r"<[^<>]{1,200}: not kept>\Z")
ARGUMENTS = "arguments"
"""The key of a tool call whose value is often JSON as a text."""
PYDANTIC = "__pydantic_fields__"
"""The attribute by which pydantic's models are recognised without importing pydantic."""
_kind: Callable[[Any], Any] = type
_dict: Any = dict  # its methods, not those of a class derived from it
_ATOMS = frozenset({bool, int, float, type(None)})
_TEXTS = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    PurePath,
    UUID,
    Decimal,
    Fraction,
)
"""The types whose values become texts."""
_SECRET = re.compile(
    "(password|passwd|passphrase|passcode|pwd|secrets?|token|bearer|authorization|credentials?"
    "|cookies?|(api|private|access|secret|signing|encryption|auth)[-_ .]?keys?)$",
    re.IGNORECASE,
)


def _plain_name(key: str) -> str:
    return "".join(filter(str.isalnum, key[:200])).lower()


@dataclass(frozen=True)
class SnapshotLimits:
    """How much of a state a snapshot contains.

    `characters`: of each text. `items`: of each container; a long list keeps its first and last
    items. `total`: items of the whole state. `depth`: levels of nested containers. `secrets`: names
    of keys whose values are masked, in addition to the usual ones (`api_key`, `token`, `password`,
    `authorization`, ...).
    """

    characters: int = 20_000
    items: int = 500
    total: int = 5_000
    depth: int = 12
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = tuple(map(_plain_name, self.secrets))
        object.__setattr__(self, "secrets", names)


WHOLE = SnapshotLimits(characters=10**9, items=10**9, total=10**9, depth=100)
"""The limits for recorded states: they are not truncated again, and only secrets are masked."""


@lru_cache(maxsize=10_000)
def _is_secret(key: str, secrets: tuple[str, ...]) -> bool:
    """Tell whether the value under this key is masked."""
    return bool(_SECRET.search(key[:200])) or (bool(secrets) and _plain_name(key) in secrets)


class Fields(dict[str, Any]):
    """The fields of an object (a dataclass, a pydantic model, a message), which can be read as keys
    or as attributes."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the snapshot has no field '{name}'") from None


def take_snapshot(state: object, limits: SnapshotLimits) -> Any:
    """Copy a state, so that nothing is shared with the agent. Raises nothing, and calls no code of
    the state's own unless it is a container of an unusual kind."""
    if type(state) is dict:
        flat = copy_flat(state, limits)
        if flat is not None:
            return flat

    return _Snapshot(limits).copy(state, 0)


def copy_flat(state: Any, limits: SnapshotLimits) -> dict[Any, Any] | None:
    """Copy a state of numbers and short texts under harmless keys. This is fast, and most states
    are like that. None if the state has anything else."""
    if len(state) > min(limits.items, limits.total):
        return None
    copied: dict[Any, Any] = _dict.copy(state)
    secrets = limits.secrets
    most = limits.characters

    for key, value in copied.items():
        kind = _kind(value)
        if kind not in _ATOMS and (kind is not str or len(value) > most):
            return None
        if type(key) is not str or key == ARGUMENTS or _is_secret(key, secrets):
            return None

    return copied


class _Snapshot:
    """The copying of one state. `left`: the number of items that may still be copied. Types are
    checked with `type(value)`, since `isinstance` may run code of the value."""

    __slots__ = ("left", "limits")

    def __init__(self, limits: SnapshotLimits) -> None:
        self.limits = limits
        self.left = limits.total

    def copy(self, value: Any, depth: int) -> Any:
        kind = _kind(value)
        if kind in _ATOMS:
            return value
        if kind is str:
            return self._copy_text(value)
        name = str(kind.__name__)[:80]

        try:
            kept_as, parts = _open(value, kind)
            if kept_as is None:
                return self._copy_scalar(value, kind, name, depth)
            if depth >= self.limits.depth:
                return MARK.format(f"{name}, nested deeper than {depth}")
            if self.left <= 0 and len(parts):
                return MARK.format(f"{name}, since the state has too many items")
            copy = self._copy_list if kept_as in (list, tuple) else self._copy_dict
            return cast(Any, kept_as(copy(parts, depth)))
        except Exception as error:  # noqa: BLE001  the value's own code may raise anything
            return MARK.format(f"{name}, reading which raised {type(error).__name__}")

    def _copy_text(self, text: str) -> str:
        most = self.limits.characters
        if len(text) <= most or (len(text) <= most + MARK_LENGTH and _MARKED.search(text, most)):
            return text
        return text[:most] + MARK.format(f"{len(text) - most:,} more characters")

    def _copy_scalar(self, value: Any, kind: Any, name: str, depth: int) -> Any:
        if issubclass(kind, Enum):
            return self.copy(value.value, depth)
        if issubclass(kind, str):
            return self.copy(str.__str__(value), depth)
        if issubclass(kind, (int, float)):
            return float(value) if issubclass(kind, float) else int(value)
        if issubclass(kind, _TEXTS):
            return str(value)
        if kind.__module__ == "numpy" and not getattr(value, "shape", (0,)):
            return self.copy(value.item(), depth)  # a number of numpy's

        return MARK.format(name)

    def _copy_dict(self, mapping: Any, depth: int) -> dict[Any, Any]:
        length = len(mapping)
        most = min(self.limits.items, self.left)
        fits = length <= most
        if fits:
            # In one step: no other thread can change it meanwhile.
            pairs: dict[Any, Any] = _dict.copy(mapping)
        else:
            pairs = dict(islice(_dict.items(mapping), most - 1))

        self.left -= len(pairs)
        copied: dict[Any, Any] = {}

        for key, value in pairs.items():
            name = key if _kind(key) is str else self.copy(key, self.limits.depth - 1)
            name = name if _kind(name) in _ATOMS else str(name)
            if type(name) is str:
                if _is_secret(name, self.limits.secrets):
                    copied[name] = MASK
                    continue
                if name == ARGUMENTS and type(value) is str:
                    value = mask_json(value, self.limits)

            copied[name] = self.copy(value, depth + 1)

        if not fits:
            copied["…"] = MARK.format(f"{length - len(pairs):,} more keys")

        return copied

    def _copy_list(self, values: Any, depth: int) -> list[Any]:
        """Copy the first and the last items up to the limit, since the last ones often matter."""
        length = len(values)
        most = min(self.limits.items, self.left)
        leading_values: list[Any] = list(
            islice(values, length if length <= most else (most + 1) // 2)
        )
        last: list[Any] = []
        if length > most and hasattr(values, "__reversed__"):
            last = list(islice(reversed(values), most // 2))[::-1]
        self.left -= len(leading_values) + len(last)
        copied = [self.copy(value, depth + 1) for value in (*leading_values, *last)]
        if left_out := length - len(copied):
            copied.insert(len(leading_values), MARK.format(f"{left_out:,} more items"))

        return copied


def _open(value: Any, kind: Any) -> tuple[Any, Any]:
    """Return the type with which a container is stored, and its parts; None for any other value."""
    if issubclass(kind, dict):
        return (Fields if kind is Fields else dict), value
    if issubclass(kind, tuple):
        return tuple, value
    if issubclass(kind, (list, deque, Set)):
        return list, value
    if is_dataclass(kind):
        return Fields, {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if hasattr(kind, PYDANTIC):
        extra: Any = getattr(value, "__pydantic_extra__", None) or {}
        return Fields, {**value.__dict__, **extra}

    return None, None


def mask_json(text: str, limits: SnapshotLimits) -> str:
    """Mask the values of keys that name secrets in a JSON text; other texts stay unchanged."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text

    masked = take_snapshot(value, replace(WHOLE, secrets=limits.secrets))

    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def find_loss(value: Any) -> str | None:
    """Return the mark of the data that a snapshot omits; None if it is complete. A truncated value
    cannot be judged, since it differs from the agent's own."""
    if isinstance(value, str):
        match = _MARKED.search(value)
        return match and match[0]
    inner: Iterable[Any] = value if is_sequence(value) else ()
    if is_object(value):
        inner = value.values()

    return next((loss for part in inner if (loss := find_loss(part))), None)
