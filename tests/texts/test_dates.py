"""Dates as data and people write them, and words that stand for a date."""

import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from textevolve.texts import dates
from textevolve.texts.dates import dates_in, read_moment, resolve_phrases

DAY = datetime(2024, 3, 5, tzinfo=UTC)
TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    "text",
    [
        *("2024-03-05", "20240305", "2024-W10-2", "2024-3-5", "2024.03.05", "2024/3/5"),
        *("05.03.2024", "5. 3. 2024", "5. März 2024", "Dienstag, 5. März 2024"),
        *("March 5, 2024", "March 5th, 2024", "Mar 5 2024", "Tuesday, March 5, 2024"),
        *("5 March 2024", "5th of March 2024", "the 5th of March, 2024", "05-Mar-2024"),
        *("March-05-2024", "5 mars 2024", "5 de marzo de 2024", "5 марта 2024 г.", "2024年3月5日"),
        *("٥ مارس ٢٠٢٤", "Tue, 05 Mar 2024 00:00:00 GMT", "1709596800", "1709596800000"),
    ],
)
def test_forms_of_one_day(text):
    assert read_moment(text) == DAY


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("5.3.2024, 14:30 Uhr", "2024-03-05T14:30+00:00"),
        ("2024年3月5日 14:30", "2024-03-05T14:30+00:00"),
        ("Tuesday, March 5, 2024 at 2:30 PM", "2024-03-05T14:30+00:00"),
        ("2023/05/20 (Sat) 02:21", "2023-05-20T02:21+00:00"),
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56+00:00"),
        ("March 5, 2024 2:30 PM PST", "2024-03-05T14:30-08:00"),
        ("Tue Mar 5 14:30:00 CET 2024", "2024-03-05T14:30+01:00"),
        ("2024-07-05 14:30 Europe/Berlin", "2024-07-05T14:30+02:00"),
        ("2024-07-05T14:30+02:00[Europe/Berlin]", "2024-07-05T14:30+02:00"),
        ("20240305T143000", "2024-03-05T14:30+00:00"),
        ("20240305143000", "2024-03-05T14:30+00:00"),
        ("202403051430", "2024-03-05T14:30+00:00"),
    ],
)
def test_times_with_their_zones(text, moment):
    read = read_moment(text)
    assert read.isoformat(timespec="minutes") == moment


def test_day_is_the_writers():
    assert read_moment("2024-03-05T00:30:00+09:00").date().isoformat() == "2024-03-05"


@pytest.mark.parametrize(("text", "day"), [("3/15/2024", 15), ("15/03/2024", 15), ("3/15/24", 15)])
def test_number_above_twelve_is_day(text, day):
    assert read_moment(text) == DAY.replace(day=day)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("03/04/2024", "may be 2024-04-03 or 2024-03-04"),
        ("5-3-2024 10:00", "may be 2024-03-05 or 2024-05-03"),
        ("2024-03-05 14:30 IST", "several time zones"),
        ("Tue Mar 5 14:30:00 CST 2024", "several time zones"),
        *(
            (text, "is not a date such as")
            for text in ("31.02.2024", "45.13.2024", "5 March 2024 25:99")
        ),
        *(
            (text, "is not a date such as")
            for text in ("Tuesday", "March 2024", "yesterday", "12", "14:30")
        ),
        *(
            (text, "is not a date such as")
            for text in ("5 มีนาคม 2567", "order 123 of 5 March 2024")
        ),
        ("2024-03-05 14:30 Nowhere/City", "is not a date such as"),
        ("20241304143000", "is not a date such as"),
        ("202413041430", "is not a date such as"),
        ("5 March 2024 " * 20, "is not a date such as"),
    ],
)
def test_unclear_dates_are_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_moment(text)


def test_meaning_keeps_no_language():
    read_moment("5 mars 2024")
    assert read_moment("05.03.2024") == DAY
    assert read_moment("March 5th, 2024") == DAY


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("He has an exam in exactly one week.", "in exactly one week (2024-03-12)."),
        ("She moved last month.", "last month (2024-02)."),
        ("It closed three years ago.", "three years ago (2021)."),
        ("It began the day before yesterday.", "the day before yesterday (2024-03-03)."),
        ("My cat died last week.", "last week (the week of 2024-02-27)."),
        ("He comes next Friday.", "next Friday (said on 2024-03-05)."),
        ("Sie zog letzten Monat um.", "letzten Monat (2024-02) um."),
        ("In genau einer Woche ist Prüfung.", "In genau einer Woche (2024-03-12) ist Prüfung."),
        ("我昨天卖了车。", "昨天 (2024-03-04)卖了车。"),
        ("Вчера я продал машину.", "Вчера (2024-03-04) я"),
    ],
)
def test_phrases_get_their_dates(text, resolved):
    assert resolved in resolve_phrases(text, datetime(2024, 3, 5, 0, 30, tzinfo=TOKYO))


@pytest.mark.parametrize(
    "text",
    [
        "I met him yesterday, 2024-03-04.",
        "She moved last month (2024-02).",
        "He has lived here for two years.",
        "The children come every other week.",
        "I was born in May.",
    ],
)
def test_other_texts_stay_unchanged(text):
    assert resolve_phrases(text, DAY) == text


def test_dates_within_a_text():
    text = (
        "Am 5. März 2024 und 05.03.2024, on March 5th, 2024 at 3:30 pm, 2024年3月5日, in 12 Tagen"
        " 2024"
    )
    expected = ["5. März 2024", "05.03.2024", "March 5th, 2024 at 3:30 pm", "2024年3月5日"]
    assert dates_in(text) == expected


def test_missing_package_is_named(monkeypatch):
    """Exact forms are read without it, and phrases keep the day on which they were said."""
    monkeypatch.setitem(sys.modules, "dateparser.date", None)
    dates._parser.cache_clear()
    assert read_moment("2024-03-05") == DAY
    with pytest.raises(ValueError, match=r"textevolve\[memory\]"):
        read_moment("5. März 2024")
    assert resolve_phrases("It began yesterday.", DAY) == "It began yesterday (said on 2024-03-05)."
    dates._parser.cache_clear()
