"""Numbers in texts. Python's own `float` and `int` are too lenient for them: they accept `1_0`,
`nan`, `inf` and the digits of every script.

Callers check the range of a number.
"""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_WRITTEN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def take_decimal(value: object) -> object:
    """Convert a text in a model's answer to a number, before pydantic validates it; other values
    are returned unchanged.

    Raises:
        ValueError: a truth value, or a text that is not one plain decimal number.
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if value is None or (isinstance(value, str) and not _DECIMAL.fullmatch(value.strip())):
        raise ValueError("must be a plain number, such as 8 or 8.5")

    return float(value) if isinstance(value, str) else value


def reject_odd_number(value: object) -> object:
    """Return the value unchanged if pydantic may convert it to a number. Texts are allowed in
    common forms only, such as 8, .5 and 1e-3.

    Raises:
        ValueError: a text in another form, or a truth value.
    """
    if isinstance(value, bool) or (
        isinstance(value, str) and not _WRITTEN.fullmatch(value.strip())
    ):
        raise ValueError("must be a valid number, such as 2 or 0.5")

    return value


def read_number(text: str) -> float:
    """Parse a number that a person wrote, such as 8, .5 or 1e-3.

    Raises:
        ValueError: the text is no such number, or is not finite.
    """
    reject_odd_number(text)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("must be a finite number")

    return number
