"""What the options of `textevolve nodes` say, read from their texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textevolve.debate.profile import suggest
from textevolve.errors import InputError
from textevolve.node_eval.instructions import Instruction
from textevolve.texts.numbers import read_number


def read_types(given: Sequence[str] | None) -> dict[str, Instruction]:
    types: dict[str, Instruction] = {}
    for text in given or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"--instruction: '{text}' is not of the form NAME=TYPE")
        if name in types:
            raise InputError(f"--instruction: '{name}' is there twice; give each name one type")
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


def read_pair(option: str, text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        return name, read_number(value if equals and name else "")
    except ValueError:
        raise InputError(f"{option}: '{text}' is not of the form NAME=NUMBER") from None


def read_weights(option: str, given: Sequence[str] | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, number in (read_pair(option, text) for text in given or ()):
        if name in found:
            raise InputError(f"{option}: '{name}' is there twice; give each name one number")
        found[name] = number
    return found


def read_length(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    found = re.fullmatch("([0-9]{1,18})?:([0-9]{1,18})?", text)
    if found and text != ":":
        low, high = (None if part is None else int(part) for part in found.groups())
        return low, high
    raise InputError(
        f"--length: '{text}' is not of the form MIN:MAX, such as 20:2000, :2000 or 20:"
    )
