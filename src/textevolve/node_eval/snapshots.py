"""Copies of an agent's states, taken at the boundary of a node: plain, bounded, without secrets.

A snapshot is made of None, numbers, texts, lists, tuples and dicts alone. What cannot be kept is a
`Description`, a text that was cut a `CutText`: whoever judges can tell them from the agent's own.
"""

from __future__ import annotations

import datetime
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, cast

from textevolve.errors import InputError

MASK = "***"
ARGUMENTS = "arguments"
"""Of a call of a tool: what stands under this key is often JSON as a text."""
PYDANTIC = "__pydantic_fields__"
_kind: Callable[[Any], type[Any]] = type
_copy_dict: Callable[[Any], dict[Any, Any]] = cast(
    Any, dict
).copy  # not that of a class derived from dict
_ATOMS = frozenset({bool, int, float, type(None)})
_TEXTS = (datetime.date, datetime.time, datetime.timedelta, PurePath)
_TEXT_NAMES = frozenset({"UUID", "Decimal", "Fraction"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_SECRET_ENDS = frozenset(
    {
        *("password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "bearer"),
        *("authorization", "credential", "credentials", "cookie", "cookies", "apikey", "passcode"),
    }
)
_SECRET_KEYS = frozenset({"api", "private", "access", "secret", "signing", "encryption", "auth"})
_MOST_KEYS_KNOWN = 10_000


@dataclass(frozen=True)
class SnapshotLimits:
    """How much of a state is kept.

    `characters` of each text; `items` of each container, from its two ends; `total` items of the
    whole state; `depth` of containers in containers. `secrets`: names of keys whose values are
    masked, beside those that are always (`api_key`, `token`, `password`, `authorization`, ...).
    """

    characters: int = 20_000
    items: int = 500
    total: int = 5_000
    depth: int = 12
    secrets: tuple[str, ...] = ()
    _known: dict[str, bool] = field(
        default_factory=dict[str, bool], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name in ("characters", "items", "total", "depth"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"the limit of {name} must be a whole number from 1 on")
        if isinstance(self.secrets, str):
            raise InputError("secrets must be a sequence of names, not one text")

    def hides(self, key: str) -> bool:
        """Whether the value under this key is a secret."""
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KEYS_KNOWN:
                self._known.clear()
            known = self._judge(key)
            if key != ARGUMENTS:  # which has to be looked at each time
                self._known[key] = known
        return known

    def _judge(self, key: str) -> bool:
        words = [word.lower() for word in _WORDS.findall(key[:200])]
        if not words:
            return False
        name = "".join(words)
        if any(name == "".join(map(str.lower, _WORDS.findall(own))) for own in self.secrets):
            return True
        if words[-1] in _SECRET_ENDS or name.endswith(("apikey", "password")):
            return True
        return words[-1] in ("key", "keys") and len(words) > 1 and words[-2] in _SECRET_KEYS


class Description(str):
    """What stands in a snapshot for something that is not kept."""

    __slots__ = ()


class CutText(str):
    """The first characters of a text that was longer; `full_length` is that of the whole."""

    __slots__ = ("full_length",)

    full_length: int


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
    """A copy that nobody shares with the agent. Raises nothing, and calls no code of the state's
    own unless it is a container of an unusual kind."""
    kind = type(state)
    if kind in _ATOMS or (kind is str and len(cast(str, state)) <= limits.characters):
        return state
    if kind is dict and (copied := _copy_flat(cast("dict[Any, Any]", state), limits)) is not None:
        return copied
    try:
        return _Snapshot(limits).copy(state, 0)
    except Exception as error:  # noqa: BLE001  the state's own code may raise anything
        return Description(f"<{_name(state)}: not kept, reading it raised {type(error).__name__}>")


def _copy_flat(state: dict[Any, Any], limits: SnapshotLimits) -> dict[Any, Any] | None:
    """What most states are, the short way: nothing but numbers and short texts under keys that have
    been seen before and hide nothing; None where the state is another."""
    if len(state) > limits.items or len(state) > limits.total:
        return None
    copied = _copy_dict(state)
    known, longest = limits._known, limits.characters  # pyright: ignore[reportPrivateUsage]
    for key, one in copied.items():
        kind = _kind(one)
        if kind not in _ATOMS and (kind is not str or len(one) > longest):
            return None
        if known.get(key) is not False:
            return None
    return copied


class _Snapshot:
    """One state on its way into a snapshot: what is left of the limits, and what it is inside."""

    __slots__ = ("inside", "left", "limits")

    def __init__(self, limits: SnapshotLimits) -> None:
        self.limits = limits
        self.left = limits.total
        self.inside: set[int] = set()

    def copy(self, value: Any, depth: int) -> Any:
        kind = _kind(value)
        if kind in _ATOMS:
            return value
        if kind is str:
            return value if len(value) <= self.limits.characters else self._cut(value)
        if kind is dict:
            return self._container(value, depth, self._dict)
        if kind is list:
            return self._container(value, depth, self._list)
        return self._other(value, depth)

    def _container(self, value: Any, depth: int, copy: Any) -> Any:
        if depth >= self.limits.depth:
            return Description(f"<{_name(value)}: not kept, nested deeper than {depth}>")
        if self.left <= 0 and value:
            return Description(f"<{_name(value)}: not kept, the state has too many items>")
        key = id(value)
        if key in self.inside:
            return Description(f"<{_name(value)}: stands within itself>")
        self.inside.add(key)
        try:
            return copy(value, depth)
        except Exception as error:  # noqa: BLE001  the value's own code may raise anything
            said = f"<{_name(value)}: not kept, reading it raised {type(error).__name__}>"
            return Description(said)
        finally:
            self.inside.discard(key)

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        whole, most = len(value), min(self.limits.items, self.left)
        if whole > most:
            last = list(islice(reversed(value.items()), most // 2))
            copied: dict[Any, Any] = dict([*islice(value.items(), (most + 1) // 2), *last[::-1]])
        else:  # in one step of the interpreter: no other thread can change it meanwhile
            copied = _copy_dict(value)
        self.left -= len(copied)
        limits, longest = self.limits, self.limits.characters
        known, odd = limits._known, False  # pyright: ignore[reportPrivateUsage]
        for key, one in copied.items():
            if type(key) is not str:
                odd = True
            elif known.get(key) is not False:
                if limits.hides(key):
                    copied[key] = MASK
                    continue
                if key == ARGUMENTS and type(one) is str:
                    one = copied[key] = mask_json(one, limits)
            kind = _kind(one)
            if kind not in _ATOMS and (kind is not str or len(one) > longest):
                copied[key] = self.copy(one, depth + 1)
        if odd:
            copied = self._rename(copied)
        if whole > most:
            copied["…"] = Description(f"<{whole - most:,} more keys, not kept>")
        return copied

    def _rename(self, copied: dict[Any, Any]) -> dict[Any, Any]:
        """Keys as texts and numbers; those that then hide a secret hide it."""
        named = {self._key(key): one for key, one in copied.items()}
        hides = self.limits.hides
        return {k: MASK if isinstance(k, str) and hides(k) else one for k, one in named.items()}

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        return self._sequence(value, depth)

    def _sequence(self, values: Any, depth: int) -> list[Any]:
        """`values` has a length and a beginning, and maybe an end: what came last often matters."""
        whole, most = len(values), min(self.limits.items, self.left)
        kept: list[Any] = list(islice(values, whole if whole <= most else (most + 1) // 2))
        if whole > most and hasattr(values, "__reversed__"):
            kept += list(islice(reversed(values), most // 2))[::-1]
        self.left -= len(kept)
        copied = [self.copy(one, depth + 1) for one in kept]
        if whole > len(kept):
            said = Description(f"<{whole - len(kept):,} more items, not kept>")
            copied.insert((most + 1) // 2, said)
        return copied

    def _cut(self, text: str) -> CutText:
        cut = CutText(text[: self.limits.characters])
        cut.full_length = len(text)
        return cut

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return str.__str__(key)
        if isinstance(key, Enum):
            return self._key(key.value)
        if key is None or type(key) in _ATOMS:
            return key
        if type(key) is tuple and all(_kind(part) in (str, int) for part in cast(Any, key)):
            return str(cast(Any, key))
        return f"<{_name(cast(object, key))}>"

    def _other(self, value: Any, depth: int) -> Any:
        """Kinds that are rarer than those above, the likelier ones first."""
        kind = _kind(value)
        if kind in (Description, CutText):
            return value
        if isinstance(value, Enum):
            return self.copy(value.value, depth)
        if isinstance(value, str):
            return self.copy(str.__str__(value), depth)
        if isinstance(value, (bool, int, float)):
            return float(value) if isinstance(value, float) else int(value)
        if issubclass(kind, tuple):
            return self._container(value, depth, self._tuple)
        if kind is Fields:
            return self._container(value, depth, self._fields)
        if is_dataclass(kind) or hasattr(kind, PYDANTIC):
            return self._container(value, depth, self._object)
        if isinstance(value, dict):
            return self._container(cast(Any, value), depth, self._dict)
        if isinstance(value, (list, deque, Set)):
            values = cast("Iterable[Any]", value)
            return self._container(values, depth, self._sequence)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value)
            return self._container(pairs, depth, self._mapping)
        if isinstance(value, _TEXTS) or kind.__name__ in _TEXT_NAMES:
            return str(value)
        if kind.__module__ == "numpy" and not getattr(value, "shape", (0,)):
            return self.copy(value.item(), depth)  # a number of numpy's
        return describe(value)

    def _tuple(self, value: tuple[Any, ...], depth: int) -> Any:
        names: Any = getattr(type(value), "_fields", None)
        if isinstance(names, tuple):
            pairs = dict(zip(cast("tuple[str, ...]", names), value, strict=False))
            return Fields(self._dict(pairs, depth))
        return tuple(self._sequence(value, depth))

    def _fields(self, value: Fields, depth: int) -> Fields:
        return Fields(self._dict(value, depth))

    def _object(self, value: Any, depth: int) -> Fields:
        """The fields that it has, and what pydantic keeps of others."""
        if is_dataclass(value):
            names = cast("dict[str, Any]", value.__dataclass_fields__)
            return Fields(self._dict({name: _read(value, name) for name in names}, depth))
        extra: Any = getattr(value, "__pydantic_extra__", None) or {}
        return Fields(self._dict({**value.__dict__, **extra}, depth))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
        pairs = {key: value[key] for key in islice(value, self.limits.items + 1)}
        copied = self._dict(pairs, depth)
        if len(pairs) > self.limits.items:
            copied["…"] = Description("<more keys, not kept>")
        return copied


def _read(value: object, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception as error:  # noqa: BLE001  a property of the user's may raise anything
        return Description(f"<not kept, reading it raised {type(error).__name__}>")


def describe(value: object) -> Description:
    """`<DataFrame, 100 x 3>`: the kind, and the size where it is told without running a query."""
    if isinstance(value, (bytes, bytearray)):
        return Description(f"<{_name(value)}, {len(value):,} bytes>")
    try:
        shape: Any = getattr(value, "shape", None) if hasattr(type(value), "shape") else None
        if isinstance(shape, tuple):
            sizes = [str(int(size)) for size in cast("tuple[Any, ...]", shape)]
            return Description(f"<{_name(value)}, {' x '.join(sizes)}>")
    except Exception:  # noqa: BLE001  then it has no shape that can be told
        pass
    return Description(f"<{_name(value)}>")


def _name(value: object) -> str:
    kind: Any = value if isinstance(value, type) else type(value)
    return str(type.__getattribute__(kind, "__name__"))[:80]


def mask_json(text: str, limits: SnapshotLimits) -> str:
    """A text that is JSON, without the values under the names of secrets; any other as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        given: object = json.loads(text)
        masked = _mask(given, limits)
    except (ValueError, RecursionError):
        return text
    return text if masked == given else json.dumps(masked, ensure_ascii=False)


def _mask(value: Any, limits: SnapshotLimits) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: MASK if limits.hides(key) else _mask(one, limits) for key, one in pairs}
    if isinstance(value, list):
        return [_mask(one, limits) for one in cast("list[Any]", value)]
    return value


def is_flat(value: Any, limits: SnapshotLimits) -> bool:
    """Whether a snapshot of it would have nothing to leave out and nothing to copy but itself."""
    return type(value) is dict and _copy_flat(cast("dict[Any, Any]", value), limits) is not None


def copy_plain(value: Any) -> Any:
    """A copy of what `take_snapshot` made."""
    kind = _kind(value)
    if kind is dict or kind is Fields:
        copied = value.copy() if kind is dict else Fields(value)
        for key, one in copied.items():
            if type(one) not in _ATOMS and type(one) is not str:
                copied[key] = copy_plain(one)
        return copied
    if kind is list:
        return [copy_plain(one) for one in value]
    if kind is tuple:
        return tuple(copy_plain(one) for one in value)
    return value


def find_loss(value: Any) -> str | None:
    """What of a snapshot is not as it was in the agent's state, said in words; None where all is.

    Whoever judges a value that was cut would judge something else than the agent made.
    """
    if type(value) is str:
        return None
    if isinstance(value, CutText):
        return f"the text was cut at {len(value):,} of {value.full_length:,} characters"
    if isinstance(value, Description):
        return f"it was not kept: {value}"
    if isinstance(value, dict):
        inner: Iterable[Any] = cast("dict[Any, Any]", value).values()
    elif isinstance(value, (list, tuple)):
        inner = cast("Iterable[Any]", value)
    else:
        return None
    return next((loss for one in inner if (loss := find_loss(one))), None)
