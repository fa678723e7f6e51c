"""Dates and times in texts: the forms in which data and people write them, and words such as
yesterday, which stand for a date.

Exact forms are read here. The others (month names of many languages, names of time zones) are read
by dateparser, of the extra `memory`. A form with two meanings, such as 03/04/2024, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from email.utils import parsedate_to_datetime
from functools import cache
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from textevolve.loading import late_re, late_regex, regex
from textevolve.texts.prose import join_lines

EXAMPLES = "a date such as 2025-01-31 or 2025-01-31T18:30"
LONGEST_DATE = 60
"""The maximum number of characters of a date with its time and zone."""

LAST_YEAR = 2300
"""The last year of a date in words: a later one is of another calendar, as 2567 in Thailand."""

_LANGUAGES = (
    "en de fr es it pt nl pl cs sk hu ro bg ru uk tr el ar fa he hi bn ta th vi id zh ja ko sv da"
    " nb fi"
)
"""The languages whose months and days are read: with all two hundred of dateparser, refusing a text
takes two seconds."""
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
    "%B-%d-%Y",  # BEAM: March-15-2024
)
_MAIL = late_re(r"(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} [\d:]+ (?:[+-]\d{4}|GMT|UT)")
_COMPACT = late_re(r"^((?:19|20)\d{6})(\d{4}(?:\d{2})?)(?!\d)")
"""A date with its time in 12 or 14 digits; as a Unix time it would be of 1976, or after 2600."""
_UNIX = late_re(r"\d{9,14}(\.\d{1,9})?")
_MILLISECONDS = 1e11
"""The number from which a plain number is a time in milliseconds; in seconds it would be the year
5138."""
_NUMERIC = late_re(r"\b(\d{1,2})([./-]) ?(\d{1,2})\2 ?(\d{4}|\d{2})\b")
_ZONE = late_re(r"(?: |\[)([A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_-]+)+)\]?$")


def read_moment(text: str) -> datetime:
    """Read a date, a date with a time, or a Unix time of 9 to 14 digits (milliseconds from
    `_MILLISECONDS` on, otherwise seconds). The result has the zone that the text names, so that
    its date is the writer's own; a text without a zone is in UTC.

    Raises:
        ValueError: the text is none of these, or has two meanings; says what to write instead.
    """
    words = _COMPACT.sub(r"\1T\2", join_lines(text))
    if _UNIX.fullmatch(words):
        number = float(words)
        seconds = number / 1000 if number >= _MILLISECONDS else number
        return datetime.fromtimestamp(seconds, UTC)
    readers = (datetime.fromisoformat, *map(_reader, _FORMATS), _read_mail, _read_written)

    for reader in readers:
        try:
            moment = reader(words)
            moment.timestamp()  # the first years of the calendar have none in each zone
        except _UnclearDate:
            raise
        except (ValueError, OverflowError, IndexError, TypeError, KeyError):
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    raise ValueError(f"'{text[:40]}' is not {EXAMPLES}")


class _UnclearDate(ValueError):
    """A date with two meanings, or that only a missing package reads."""


def _reader(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


def _read_mail(text: str) -> datetime:
    """Read the date of a mail or an HTTP header, such as Tue, 05 Mar 2024 14:30:00 GMT."""
    if not _MAIL.fullmatch(text):
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _read_written(text: str) -> datetime:
    """Read a date as people write it, such as 5. März 2024, 3/15/2024 or 2024-03-05 14:30 CET.

    Raises:
        ValueError: the text is no date, or dateparser is missing.
    """
    if ambiguous_zone := re.search(r"\b(?:CST|IST)\b", text):
        raise _UnclearDate(
            f"'{ambiguous_zone[0]}' is the name of several time zones; write the offset, such as"
            " +05:30"
        )

    zone: tzinfo | None = None
    words = text
    if named_zone := _ZONE.search(text):
        zone = ZoneInfo(named_zone[1])
        words = text[: named_zone.start()]
    words = _NUMERIC.sub(_write_numeric, words, count=1)
    # Without digits and a year a text is a day such as Tuesday, which is no date.
    if len(words) > LONGEST_DATE or not re.search(r"\d{4}|[-/]\d\d\b", words):
        raise ValueError(text)
    moment: datetime | None = _parser().get_date_data(words).date_obj
    if moment is None or moment.year > LAST_YEAR:
        raise ValueError(text)

    return moment.replace(tzinfo=zone) if zone else moment


def _write_numeric(match: re.Match[str]) -> str:
    """Write a date of numbers alone in the order year, month, day. With points the day is first,
    as in German; otherwise a number above 12 is the day."""
    first = int(match[1])
    second = int(match[3])
    year = match[4] if len(match[4]) == 4 else f"20{match[4]}"
    day_first = f"{year}-{second:02}-{first:02}"
    month_first = f"{year}-{first:02}-{second:02}"
    if match[2] == "." or first > 12 or first == second:
        return day_first
    if second > 12:
        return month_first
    raise _UnclearDate(
        f"'{match[0]}' may be {day_first} or {month_first}; write the one that is meant"
    )


@cache
def _parser() -> Any:
    """Return dateparser's reader of absolute dates with day, month and year. It forgets the
    language of earlier texts, so that a text always has the same meaning.

    Raises:
        ValueError: dateparser is missing.
    """
    return _open_parser({"STRICT_PARSING": True, "PARSERS": ["absolute-time"]})


def _open_parser(settings: dict[str, Any]) -> Any:
    try:
        reader = import_module("dateparser.date").DateDataParser
    except ImportError:
        raise _UnclearDate(
            f"dates in other forms than {EXAMPLES} need: pip install 'textevolve[memory]'"
        ) from None
    return reader(languages=_LANGUAGES.split(), settings=settings, try_previous_locales=False)


def write_date(time: float) -> str:
    """Format a Unix time in seconds as a date in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")


_CANDIDATE = late_regex(
    r"(?i)\b(?:\d{1,2}(?:\.|st|nd|rd|th)? (?:of |de )?\p{L}{3,}\.?,? (?:de )?\d{4}"
    r"|\p{L}{3,}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{4}-\d{2}-\d{2}|\d{1,2}\.\d{1,2}\.\d{4}|\d{4}年\d{1,2}月\d{1,2}日)(?<=[\d日])"
    r"(?:,? (?:at )?\d{1,2}:\d{2}(?: ?[ap]m)?\b)?",
)


def dates_in(text: str) -> list[str]:
    """Return the dates with day and year in a text, as they are written there, with the time of day
    if one follows."""
    return [match for match in _CANDIDATE.findall(text) if _is_date(match)]


def _is_date(text: str) -> bool:
    try:
        read_moment(text.replace(" at ", " "))
    except ValueError:
        return False
    return True


# Words that stand for a date, such as yesterday and in two weeks: a rule finds them in English and
# German, and some of other languages, and dateparser resolves them.

_NUMBER = (
    r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|eine[mnr]?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf)"
)
_UNIT = r"(?:days?|weeks?|months?|years?)"
_EINHEIT = r"(?:Tag(?:en)?|Wochen?|Monat(?:en)?|Jahr(?:en)?)"
_ROUGHLY = r"(?:exactly|about|around|just|roughly|only|genau|etwa|ungefähr|rund)"
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_PHRASE = late_regex(
    r"(?:(?i:\b(?:the day before yesterday|the day after tomorrow|yesterday|today|tomorrow"
    r"|(?:last|next) (?:week|month|year|weekend|spring|summer|autumn|winter)"
    rf"|(?:last|next|this (?:coming )?) ?{_WEEKDAY}"
    rf"|{_NUMBER} {_UNIT} (?:ago|from (?:now|today))|in (?:{_ROUGHLY} )?{_NUMBER} {_UNIT}(?='s)?"
    r"|vorgestern|gestern|übermorgen"
    r"|(?:letzte|vorige|vergangene|nächste|kommende)[nrs]? (?:Woche|Monat|Jahr)"
    rf"|(?:vor|in) (?:{_ROUGHLY} )?{_NUMBER} {_EINHEIT}"
    r"|ayer|anteayer|вчера|позавчера|завтра)\b)|昨天|前天|明天|后天|上个月|下个月|昨日|明日)"
    r"(?!,? (?:\(|on )?.{0,4}\d{4})"
)
_WEEK = late_re(r"(?i)\b(?:last|next) week|(?:letzte|vorige|vergangene|nächste|kommende)\w* Woche")
_PERIODS = {"month": "%Y-%m", "year": "%Y"}


def resolve_phrases(text: str, said: datetime) -> str:
    """Add the dates that words such as yesterday and in two weeks stand for, in brackets behind
    them: a day, a month (2024-03) or a year. A phrase without one clear date, such as next Friday,
    gets the day on which it was said. Phrases that a date follows stay as they are."""
    return _PHRASE.sub(lambda phrase: f"{phrase[0]} ({_resolve(phrase[0], said)})", text)


def _resolve(phrase: str, said: datetime) -> str:
    plain = regex.sub(rf"(?i)\b{_ROUGHLY} ", "", phrase)
    base = said.replace(tzinfo=None)
    try:
        parser = _open_parser({"PARSERS": ["relative-time"], "RELATIVE_BASE": base})
        resolved = parser.get_date_data(plain)
    except ValueError:
        resolved = None
    if resolved is None or resolved.date_obj is None:
        return f"said on {said.date().isoformat()}"

    moment: datetime = resolved.date_obj
    if _WEEK.search(plain):
        return f"the week of {moment.date().isoformat()}"
    return moment.strftime(_PERIODS.get(resolved.period, "%Y-%m-%d"))
