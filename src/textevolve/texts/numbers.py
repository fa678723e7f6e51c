"""Numbers in texts. Python's own `float` and `int` are too lenient for them: they accept `1_0`,
`nan`, `inf` and the digits of every script.

Callers check the range of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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


# Dates and times in the many formats of users' data.

_FORMATS = (
    "%b %d, %Y, %H:%M:%S",  # HaluMem: Dec 15, 2025, 06:11:23
    "%b %d, %Y, %H:%M",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d %B %Y",
    "%d %B, %Y",
    "%d %b %Y",
    "%Y/%m/%d (%a) %H:%M",  # LongMemEval: 2023/05/20 (Sat) 02:21
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%I:%M %p on %d %B, %Y",  # LoCoMo: 1:56 pm on 8 May, 2023
    "%Y-%m-%d %H:%M:%S %z",
)
_MILLISECONDS = 1e11
"""The number from which a plain number is a time in milliseconds; in seconds it would be the year
5138."""


def parse_time(text: str) -> float | None:
    """Parse a date, a date with a time, or a Unix time of 9 to 14 digits: milliseconds from
    `_MILLISECONDS` on, otherwise seconds. Return seconds since 1970; None if the text is none of
    these. A time without a zone is UTC."""
    words = " ".join(text.split())
    if re.fullmatch(r"\d{9,14}(\.\d{1,9})?", words):
        number = float(words)
        return number / 1000 if number >= _MILLISECONDS else number
    for reader in (datetime.fromisoformat, *map(_reader, _FORMATS), parsedate_to_datetime):
        try:
            parsed = reader(words)
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, IndexError, TypeError):
            continue

    return None


def _reader(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


def write_date(time: float, form: str = "%Y-%m-%d") -> str:
    """Format a Unix time in seconds as a date in UTC, or by another `strftime` format."""
    return datetime.fromtimestamp(time, UTC).strftime(form)


_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\\.?"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}\.? {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    r"|\d{4}-\d{2}-\d{2})\b(?:,? (?:at )?\d{1,2}:\d{2}(?: ?[ap]m)?\b)?",
    re.IGNORECASE,
)


def dates_in(text: str) -> list[str]:
    """Return the dates with day and year in a text, as they are written there, with the time of day
    if one follows. Month names are English."""
    return _DATE.findall(text)
