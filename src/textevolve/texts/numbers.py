"""Numbers in texts. Python's own `float` and `int` are too lenient: they accept `1_0`, `nan`, `inf`
and the digits of every script.

Which numbers are in range is for whoever asks.
"""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_WRITTEN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_decimal(text: str) -> float | None:
    """The number of a text that is one plain decimal number, such as 8 or 8.5, and nothing else."""
    return float(text) if _DECIMAL.fullmatch(text.strip()) else None


def take_decimal(value: object) -> object:
    """A number out of a model's answer: before validators of pydantic, which take what else comes.

    Raises:
        ValueError: a truth value, or a text that is not one plain decimal number.
    """
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")
    number = read_decimal(value) if isinstance(value, str) else value
    if number is None:
        raise ValueError("must be a plain number, such as 8 or 8.5")
    return number


def reject_odd_number(value: object) -> object:
    """The value, if it may be a number: before validators of pydantic. Of texts those pass that
    people write numbers as, such as 8, .5 and 1e-3.

    Raises:
        ValueError: a text that is none of these, or a truth value.
    """
    if isinstance(value, bool) or (
        isinstance(value, str) and not _WRITTEN.fullmatch(value.strip())
    ):
        raise ValueError("must be a valid number, such as 2 or 0.5")
    return value


def read_number(text: str) -> float:
    """The number that a person wrote.

    Raises:
        ValueError: it is none, or not finite.
    """
    reject_odd_number(text)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("must be a finite number")
    return number
