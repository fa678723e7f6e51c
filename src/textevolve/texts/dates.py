"""Dates and times in the many formats of users' data."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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
