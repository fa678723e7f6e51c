"""Values that may be JSON in a text, as in files, traces and applications: parse and write them;
and Python's values as JSON, from which they come back as they were.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeGuard, cast

CONTAINERS = ("[", "{")
"""The first characters of an array and of an object in JSON."""
_SEQUENCES = (list, tuple)
_VALUES = (int, float, dict, *_SEQUENCES, type(None))
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


def parse_text(value: Any, marks: Collection[str] = (*CONTAINERS, '"')) -> Any:
    """Parse a text as JSON if it begins with one of `marks` and is valid; return any other value
    unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in marks:
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def parse_printed(value: Any) -> Any:
    """Parse a text as an array or object of JSON, or as a list or dictionary as Python prints it,
    which is what data frames write into a cell; return any other value unchanged."""
    parsed = parse_text(value, CONTAINERS)
    if parsed is value and isinstance(value, str) and value.lstrip()[:1] in CONTAINERS:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(value.strip())
    return parsed


def find_path(value: Any, path: str) -> Any:
    """Return the value at a path of names and positions, such as `data.0.text`; None if there is no
    such value. The name `*` stands for the only field of an object. A text that is an array or
    object is looked into."""
    for step in path.split("."):
        value = parse_printed(value)
        if step == "*" and is_object(value):
            fields = list(value.values())
            value = fields[0] if len(fields) == 1 else None
            continue

        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (LookupError, TypeError, ValueError):
            return None

    return value


def write_text(value: object) -> str:
    """Return a text unchanged, and any other value as JSON. A single value that JSON does not know,
    such as a date, is written as Python prints it."""
    if isinstance(value, str):
        return value
    if type(value) is not int and isinstance(value, _VALUES):
        return _encode(value)
    return str(value)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is an object of JSON."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping, of JSON or of Python."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is an array of JSON."""
    return isinstance(value, list)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is an array of JSON, or a tuple of Python."""
    return isinstance(value, _SEQUENCES)


def as_object(value: object) -> dict[str, Any]:
    """Return an object of JSON as it is, and {} for any other value."""
    return value if is_object(value) else {}


def as_array(value: object) -> list[Any]:
    """Return an array of JSON, or a tuple of Python, as a list, and [] for any other value."""
    return list(value) if is_sequence(value) else []


TYPE = "$type"
"""The key that marks an object of JSON as a value of Python that JSON does not know."""
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "float": float,
    "bytes": bytes.fromhex,
    "tuple": lambda items: tuple(map(unpack_value, items)),
    "set": lambda items: set(map(unpack_value, items)),
    "frozenset": lambda items: frozenset(map(unpack_value, items)),
    "mapping": lambda pairs: {unpack_value(key): unpack_value(value) for key, value in pairs},
}


def pack_value(value: object) -> Any:
    """Return a value as JSON data from which `unpack_value` restores it. Dates, decimals, tuples,
    sets and bytes keep their types; arrays become lists, and values of other types texts."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # JSON has no infinity, and NaN marks a missing value in tables.
        if math.isnan(value):
            return None
        return float(value) if math.isfinite(value) else _mark("float", str(float(value)))
    if is_array(value):
        return list(map(pack_value, value))
    if isinstance(value, Mapping):
        return _pack_mapping(cast("Mapping[object, object]", value))
    if isinstance(value, tuple | set | frozenset):
        items = list(map(pack_value, cast("Collection[object]", value)))
        # The order of a set depends on the process, and equal rows must be equal.
        kind = _kind_of(value, (tuple, frozenset, set))
        return _mark(kind, items if kind == "tuple" else sorted(items, key=str))

    as_list = getattr(value, "tolist", None)  # of numbers and arrays of numpy
    if callable(as_list):
        return pack_value(as_list())
    if value != value:  # the missing date of a data frame
        return None
    if isinstance(value, date | time):
        return _mark(_kind_of(value, (datetime, date, time)), value.isoformat())
    if isinstance(value, Decimal):
        return _mark("decimal", str(value))
    if isinstance(value, bytes):
        return _mark("bytes", value.hex())

    return str(value)


def _kind_of(value: Any, kinds: tuple[type, ...]) -> str:
    return next(kind.__name__ for kind in kinds if isinstance(value, kind))


def _pack_mapping(value: Mapping[object, object]) -> dict[str, Any]:
    if TYPE not in value and all(isinstance(key, str) for key in value):
        return {str(key): pack_value(item) for key, item in value.items()}
    return _mark("mapping", [[pack_value(key), pack_value(item)] for key, item in value.items()])


def _mark(kind: str, content: Any) -> dict[str, Any]:
    return {TYPE: kind, "value": content}


def unpack_value(data: Any) -> Any:
    """Return the value that `pack_value` wrote as JSON data."""
    if is_array(data):
        return list(map(unpack_value, data))
    if not is_object(data):
        return data
    if TYPE in data:
        return _READERS[data[TYPE]](data["value"])
    return {name: unpack_value(value) for name, value in data.items()}
