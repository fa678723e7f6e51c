"""What the options of `textevolve nodes` say, read from their texts."""

from __future__ import annotations

from collections.abc import Sequence

from textevolve.debate.profile import suggest
from textevolve.errors import InputError
from textevolve.node_eval.instructions import Instruction


def read_types(given: Sequence[str] | None) -> dict[str, Instruction]:
    types: dict[str, Instruction] = {}
    for text in given or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"--instruction: '{text}' is not of the form NAME=TYPE")
        types[name] = read_type("--instruction", kind)
    return types


def read_type(option: str, text: str) -> Instruction:
    try:
        return Instruction[text.strip().upper()]
    except KeyError:
        names = [one.name for one in Instruction]
        raise InputError(
            f"{option}: no instruction type '{text}'{suggest(text.strip().upper(), names)}"
        ) from None


def read_number(option: str, text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        if equals and name:
            return name, float(value)
    except ValueError:
        pass
    raise InputError(f"{option}: '{text}' is not of the form NAME=NUMBER")


def read_length(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        if colon and (low or high):
            return int(low) if low else None, int(high) if high else None
    except ValueError:
        pass
    raise InputError(
        f"--length: '{text}' is not of the form MIN:MAX, such as 20:2000, :2000 or 20:"
    )
