"""Read a field of a node's state for an evaluator by its key, unchanged or as a text. A field that
is missing or was truncated cannot be judged, and raises an error."""

from __future__ import annotations

from typing import Any, cast

from textevolve.errors import InputError
from textevolve.json_texts import write_text
from textevolve.node_eval.evaluators import is_state
from textevolve.node_eval.snapshots import find_loss

NO_OUTPUT = "no output was recorded"
NO_INPUT = "no input was recorded"
TEXT = "text"
"""The field that is read if no key is set."""


class FieldError(InputError):
    """An error for a node's field that is missing or was truncated, and so cannot be judged."""


def read_value(state: Any, key: str | None, place: str) -> Any:
    """Return the value of a field; without a key the field `text` of the state, or the whole state
    if it has none. A key such as `messages.-1.content` is a path: each dot leads one level down,
    and numbers index lists. `place`: "input" or "output", for messages.

    Raises:
        FieldError: there is no such field, or it was truncated.
    """
    if key is None and is_state(state) and isinstance(state.get(TEXT), str):
        key = TEXT
    try:
        value = state if key is None else _find(state, key)
    except LookupError:
        raise FieldError(f"the {place} has no field '{key}'") from None
    if loss := find_loss(value):
        what = f"the {place}'s field '{key}'" if key is not None else f"the {place}"
        raise FieldError(f"{what} was not recorded in full: {loss}")
    return value


def _find(state: Any, key: str) -> Any:
    """Return the field with this key, otherwise the one to which the key leads as a path with
    dots.

    Raises:
        LookupError: there is no such field.
    """
    if is_state(state) and key in state:
        return state[key]
    head, dot, rest = key.partition(".")
    if is_state(state) and dot:
        inner = state[head]
    elif issubclass(type(state), (list, tuple)) and head.removeprefix("-").isdecimal():
        inner = state[int(head)]
    else:
        raise KeyError(key)
    return _find(inner, rest) if dot else inner


def read_text(state: Any, key: str | None, place: str) -> str:
    """Return a field as a text.

    Raises:
        FieldError: there is no such field, or it was truncated.
    """
    return as_text(read_value(state, key, place))


def as_text(value: Any) -> str:
    """Return a text unchanged, a generator's texts joined, and any other value as JSON."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list) and value:
        parts = cast("list[Any]", value)
        if all(isinstance(part, str) for part in parts):
            return "".join(parts)
    return write_text(cast("object", value))
