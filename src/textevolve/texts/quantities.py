"""Numbers within texts, as people write them: with signs, currencies, grouped digits, fractions,
powers, percent, and the digits of every script.

`numbers.py` reads values that consist of one number. This module finds the last number in a text
and states what it is worth.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import regex

from textevolve.errors import InputError
from textevolve.texts.prose import fold_widths


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text. `value`: 20 for 20 %. `is_percent`: whether a percent sign follows.
    `digits`: its digits as they were written, with commas and dots."""

    value: float
    is_percent: bool = False
    digits: str = ""

    @property
    def readings(self) -> tuple[float, ...]:
        """Return the values that the number may have: 20 % is written as 20 or as 0.2, too."""
        return (self.value, self.value / 100) if self.is_percent else (self.value,)


# Texts are first rewritten with ASCII digits and one spelling for each thing.

_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("\u2212\ufe63\u2011\u2010", "-"),
        **dict.fromkeys("\u00a0\u202f\u2007\u2009", "\u00a0"),
        "٫": ".",
        "٬": ",",
        "٪": "%",
        "⁄": "/",
        "∕": "/",
        "×": "*",
        "·": "*",
        "⋅": "*",
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_POWER = regex.compile(r"(?<=[0-9])[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_VULGAR = regex.compile(r"(\d?)([¼½¾⅐-⅞])")
_LATEX = (
    (regex.compile(r"(\d?)\s*\\[dt]?frac\{(-?\d+)\}\{(\d+)\}"), r"\1 \2/\3"),
    (regex.compile(r"\\(?:times|cdot)\b"), "*"),
    (regex.compile(r"\^\{([-+]?\d+)\}"), r"^\1"),
    (regex.compile(r"(?<=\d)(?:\{,\}|\\[,;: ])(?=\d{3})"), "\u00a0"),
    (regex.compile(r"\\(?=[$%])"), ""),
)
# Spaces that do not break, apostrophes and underscores only group digits. A plain space may also
# stand between two numbers; it groups digits if the text has no others.
_ONLY_NUMBER = regex.compile(r"\D*?(\d{1,3}(?: \d{3})+)\D*")
_GROUPED = regex.compile(r"(?<!\d)\d{1,3}(?:[\u00a0'’_]\d{3})+(?!\d)")
_SEPARATOR = regex.compile(r"[\u00a0'’_]")


def _rewrite(text: str) -> str:
    """Return a text in which numbers have ASCII digits, and one spelling for signs, powers and
    fractions."""
    text = _VULGAR.sub(
        lambda match: f"{match[1]} {unicodedata.normalize('NFKC', match[2])}", fold_widths(text)
    )
    text = _DIGIT.sub(lambda match: str(unicodedata.decimal(match[0], match[0])), text)
    text = _POWER.sub(lambda match: f"^{match[0].translate(_SUPERSCRIPTS)}", text)
    text = text.translate(_SPELLINGS)
    for pattern, spelling in _LATEX:
        text = pattern.sub(spelling, text)

    if only := _ONLY_NUMBER.fullmatch(text):
        text = text.replace(only[1], only[1].replace(" ", ""))

    return _GROUPED.sub(lambda match: _SEPARATOR.sub("", match[0]), text)


# Several digits with colons, hyphens, slashes or dots between them are a time, a date or a version.
# They are no number: the last part of 14:30 is not 30.
_BY_DOTS = r"\d{1,3}(?:\.\d{3}){2,}(?![.\d])"
_TIME = r"\d{1,2}:\d{2}(?::\d{2})?"
_DATE = rf"\d{{4}}-\d{{1,2}}-\d{{1,2}}(?:T{_TIME}\S*)?|\d{{1,4}}/\d{{1,2}}/\d{{1,4}}"
_VERSION = rf"(?!{_BY_DOTS})\d+(?:\.\d+){{2,}}"
_COMPOUND = rf"(?<![\w.:/-])(?:{_TIME}|{_DATE}|{_VERSION})(?!\w|[:/-]\d)"

# A comma groups digits, by threes or as in India, if it can; otherwise it marks decimals, unless
# there are several, as in a list. Dots group digits if there are several or a comma follows.
_BY_COMMAS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3})(?!\d)"
_DIGITS = (
    rf"(?:{_BY_COMMAS}(?:\.\d+)?"
    rf"|{_BY_DOTS}(?:,\d+)?"
    r"|\d{1,3}(?:\.\d{3})+,\d+(?![,\d])"
    r"|(?<!\d,)\d+,\d+(?![,\d])"
    r"|(?:\d+|(?=\.\d))(?:\.\d+)?)"
)
_GROUPS = regex.compile(_BY_COMMAS)

_SCALES = {
    **dict.fromkeys(("k", "K", "thousand", "tausend", "千", "천"), 1e3),
    **dict.fromkeys(("万", "萬", "만"), 1e4),
    **dict.fromkeys(("lakh", "lakhs"), 1e5),
    **dict.fromkeys(("M", "mn", "Mio", "million", "millions", "Million", "Millionen"), 1e6),
    **dict.fromkeys(("crore", "crores"), 1e7),
    **dict.fromkeys(("亿", "億", "억"), 1e8),
    **dict.fromkeys(("bn", "billion", "billions", "Mrd", "Milliarde", "Milliarden"), 1e9),
    **dict.fromkeys(("trillion", "trillions"), 1e12),
}
"""The number by which a word or a letter multiplies the number before it. Letters must stand
directly behind it; `5m` are metres."""
_LETTERS = ("k", "K", "M", "mn", "bn")
_LONG_FIRST = sorted(_SCALES.keys() - set(_LETTERS), key=len, reverse=True)
_SCALE = rf"(?P<scale>(?:{'|'.join(_LETTERS)})(?!\w)|\s?(?:{'|'.join(_LONG_FIRST)})(?![A-Za-z]))"

_CURRENCY = r"(?:[A-Z]{0,2}\p{Sc}|[A-Z]{3}(?=[\s\d-])|Rs\.?)"
_QUANTITY = regex.compile(
    # A hyphen behind a word, a number or a bracket joins or subtracts; otherwise it is a sign.
    rf"(?P<compound>{_COMPOUND})"
    rf"|(?:(?<![\w.)\]])(?P<sign>[-+–]))?(?:{_CURRENCY}\s?(?P<inner>[-+–]|\((?=[^()]*\)))?)?"
    # Digits within a word do not count, but 4x6 are two numbers.
    rf"(?:(?<=\dx)|(?<![A-Za-z0-9_.]))(?P<digits>{_DIGITS})"
    r"(?:[eE](?P<exponent>[-+]?\d+))?(?:\^(?P<power>[-+]?\d+))?"
    r"(?:\s?[*x]\s?10\^(?P<ten>[-+]?\d+))?"
    r"(?:\s(?P<over>\d+)/(?P<under>\d+)|/(?P<below>\d+))?"
    rf"{_SCALE}?(?P<percent>\s?(?:%|percent\b|per cent\b))?"
)
_ALONE_IN_BRACKETS = regex.compile(
    rf"\s*\(\s*{_CURRENCY}?\s?{_DIGITS}\s?(?:%|{_CURRENCY})?\s*\)[\s.]*"
)


DecimalMark: TypeAlias = Literal["", "comma", "point"]
"""The decimal mark of numbers: a comma, a point, or, if empty, what each number looks like."""
_COMMA = regex.compile(r"(?<=\d),(?=\d)")
_DECIMAL_COMMA = regex.compile(r"(?:\d+|\d{1,3}(?:\.\d{3})+),(?!\d{3}$)\d+")
_EITHER = regex.compile(r"\d{1,3},\d{3}")
_SWAPPED = str.maketrans(",.", ".,")


def read_last_quantity(text: str, mark: DecimalMark = "") -> Quantity | None:
    """Return the last number in a text, such as 42, -3.5, .5, 1,234.5, 1.234,5, ₹1,00,000, -$40,
    6e-3, 1.5 × 10³, 3 1/2 or 20 %; None if there is none. A text that consists of a number in
    brackets is negative, as accountants write it."""
    plain = _rewrite(text)
    if mark == "comma":
        plain = plain.translate(_SWAPPED)
    elif mark == "point":
        # A comma that groups no digits stands between two numbers.
        plain = regex.sub(_BY_COMMAS, lambda match: match[0].replace(",", ""), plain)
        plain = _COMMA.sub("; ", plain)
    last: Quantity | None = None
    for match in _QUANTITY.finditer(plain):
        value = None if match["compound"] else _read_value(match)
        if value is not None and math.isfinite(value):
            last = Quantity(value, match["percent"] is not None, match["digits"])

    if last is not None and _ALONE_IN_BRACKETS.fullmatch(plain):
        last = replace(last, value=-last.value)

    return last


class DecimalMarks:
    """Find out the decimal mark of the numbers in some texts. A number such as 1,234 may be
    1234 or 1.234; beside one such as 2,75, which can only have a decimal comma, nobody knows."""

    def __init__(self) -> None:
        self._with_comma = ""
        self._doubtful = ""

    def note(self, text: str, where: str) -> None:
        """Note the last number of a text, which is the one that counts.

        Raises:
            InputError: it cannot be told which mark the numbers noted so far have.
        """
        quantity = read_last_quantity(text)
        digits = quantity.digits if quantity else ""
        if _DECIMAL_COMMA.fullmatch(digits):
            self._with_comma = self._with_comma or f"{digits} ({where})"
        elif _EITHER.fullmatch(digits):
            self._doubtful = self._doubtful or f"{digits} ({where})"

        if self._with_comma and self._doubtful:
            raise InputError(
                f"{self._with_comma} has a decimal comma, and {self._doubtful} may have one, too,"
                " or group thousands; write numeric:decimal-comma or numeric:decimal-point"
            )


def _read_value(match: regex.Match[str]) -> float | None:
    """Return the value of a number without its percent sign; None if it has none."""
    try:
        # The exponent is read with the digits, since a product of both may be rounded.
        value = float(f"{_plain_digits(match['digits'])}e{match['exponent'] or 0}")
        value **= int(match["power"] or 1)
        value *= 10.0 ** int(match["ten"] or 0)
        if match["under"]:
            value += int(match["over"]) / int(match["under"])
        value /= int(match["below"] or 1)
    except (OverflowError, ValueError, ZeroDivisionError):
        return None  # too large, or divided by 0

    value *= _SCALES[match["scale"].strip()] if match["scale"] else 1.0
    is_negative = match["sign"] in ("-", "–") or match["inner"] in ("-", "–", "(")

    return -value if is_negative else value


def _plain_digits(digits: str) -> str:
    """Return digits without marks between groups, and with a dot as the decimal mark."""
    comma = digits.rfind(",")
    dot = digits.rfind(".")
    has_decimal_comma = comma > dot if dot >= 0 else not _GROUPS.fullmatch(digits)
    if comma >= 0 and has_decimal_comma:
        return digits.replace(".", "").replace(",", ".")
    if digits.count(".") > 1:
        return digits.replace(".", "")

    return digits.replace(",", "")
