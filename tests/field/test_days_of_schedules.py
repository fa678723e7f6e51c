"""Schedules name days of the week by numbers, ranges, steps, and their place in the month, in zones
whose clocks change: each must run on the days that cron means.

The right times are enumerated day by day with Python's own calendar.
"""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("cronsim")

from textevolve.errors import InputError
from textevolve.jobs.job_spec import JobSpec, check_schedule, find_next

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
STUDY = {"kind": "evaluate", "cases": ["cases.jsonl"]}
WEEKS = {
    "*": "sun mon tue wed thu fri sat",
    "?": "sun mon tue wed thu fri sat",
    "*/2": "sun tue thu sat",
    "0-7": "sun mon tue wed thu fri sat",
    "0-4": "sun mon tue wed thu",
    "0-6": "sun mon tue wed thu fri sat",
    "5-7": "sun fri sat",
    "7": "sun",
    "1-5/2": "mon wed fri",
    "1/2": "mon wed fri",
    "sun-thu": "sun mon tue wed thu",
    "FRI-MON": "sun mon fri sat",
    "sat-sun": "sun sat",
    "mon,3,5-6": "mon wed fri sat",
}
ZONES = {
    "Europe/Vienna": ("2026-03-27", "2026-10-23", "2026-06-01"),
    "America/New_York": ("2026-03-06", "2026-10-30", "2026-02-26"),
    "Australia/Lord_Howe": ("2026-10-02", "2026-04-03", "2026-12-30"),
}


def make_job(cron, zone="UTC"):
    return JobSpec(name="nightly", study=STUDY, cron=cron, zone=zone)


def list_days(cron, number, after=datetime(2026, 3, 1, tzinfo=UTC)):
    days = []
    moment = after.timestamp()
    for _ in range(number):
        moment = find_next(make_job(cron), moment)
        days.append(datetime.fromtimestamp(moment, UTC))
    return days


@pytest.mark.parametrize("field", WEEKS)
def test_weekdays_are_crons(field):
    days = WEEKS[field].split()
    runs = list_days(f"0 9 * * {field}", len(days))
    assert sorted(DAYS[run.isoweekday() % 7] for run in runs) == sorted(days)


@pytest.mark.parametrize(
    ("field", "dates"),
    [
        ("1#2", ["2026-03-09", "2026-04-13", "2026-05-11"]),
        ("tue#1", ["2026-03-03", "2026-04-07", "2026-05-05"]),
        ("5L", ["2026-03-27", "2026-04-24", "2026-05-29"]),
        ("FriL", ["2026-03-27", "2026-04-24", "2026-05-29"]),
        ("7L", ["2026-03-29", "2026-04-26", "2026-05-31"]),
        ("fri#5", ["2026-05-29", "2026-07-31", "2026-10-30"]),
        ("1#1,5#1", ["2026-03-02", "2026-03-06", "2026-04-03"]),
    ],
)
def test_numbered_weekdays_of_months(field, dates):
    runs = list_days(f"0 9 * * {field}", 3)
    assert [run.date().isoformat() for run in runs] == dates


def test_numbered_weekday_or_day():
    runs = list_days("0 9 20 * 1#2", 3)
    assert [run.date().isoformat() for run in runs] == ["2026-03-09", "2026-03-20", "2026-04-13"]


@pytest.mark.parametrize(
    "field", ["8", "1#6", "8#2", "noday", "1-9", "1/0", "", "mon-", "*-5", "\u0663"]
)
def test_other_weekdays_are_refused(field):
    with pytest.raises(InputError, match="day of the week"):
        check_schedule(make_job(f"0 9 * * {field}"), 0.0)


def test_skipped_hour_runs_several_times():
    vienna = ZoneInfo("Europe/Vienna")
    moment = datetime(2026, 3, 29, 1, 0, tzinfo=vienna).timestamp()
    clock = []
    for _ in range(3):
        moment = find_next(make_job("0,20,40 2 * * *", "Europe/Vienna"), moment)
        clock.append(datetime.fromtimestamp(moment, vienna).isoformat()[:16])
    assert clock == ["2026-03-29T03:00", "2026-03-29T03:20", "2026-03-29T03:40"]


@pytest.mark.parametrize(
    ("cron", "clock"),
    [
        ("5/20 * * * *", ["00:05", "00:25", "00:45"]),
        ("0 22-2/2 * * *", ["02:00", "22:00", "00:00"]),
        ("0 3-3/2 * * *", ["03:00", "03:00", "03:00"]),
        ("0 0 l feb ?", ["00:00", "00:00", "00:00"]),
    ],
)
def test_other_fields_are_crons(cron, clock):
    assert [f"{run:%H:%M}" for run in list_days(cron, 3)] == clock


def test_last_day_of_february():
    runs = list_days("0 0 L FEB ?", 2)
    assert [run.date().isoformat() for run in runs] == ["2027-02-28", "2028-02-29"]


def test_last_working_day_of_months():
    runs = list_days("0 9 LW * *", 3)
    assert [run.date().isoformat() for run in runs] == ["2026-03-31", "2026-04-30", "2026-05-29"]


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 ?", "0 0 */20 * 1L"])
def test_dates_without_year_never_run(cron):
    with pytest.raises(InputError, match="would never run"):
        check_schedule(make_job(cron), 0.0)


def draw_field(generator, low, high):
    """Return a field of a cron expression, and the numbers that it means."""
    first = generator.randint(low, high)
    last = generator.randint(first, high)
    step = generator.choice([2, 3, 7])
    return generator.choice(
        [
            ("*", range(low, high + 1)),
            (f"*/{step}", range(low, high + 1, step)),
            (str(first), [first]),
            (f"{first},{last}", [first, last]),
            (f"{first}-{last}", range(first, last + 1)),
            (f"{first}-{last}/{step}", range(first, last + 1, step)),
        ]
    )


def enumerate_next(fields, zone, after):
    """Return the first time after another at which the fields match; skipped times come later by
    the clock, and repeated ones once."""
    (_, minutes), (_, hours), (days_text, days), (_, months), (week_text, week) = fields
    week = {number % 7 for number in week}
    needs_both = days_text.startswith("*") or week_text.startswith("*")
    first_day = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
    moments = []
    last_number = 15_000

    for number in range(15_000):
        day = first_day + timedelta(days=number)
        matches = (day.day in days, day.isoweekday() % 7 in week)
        if number > last_number + 1:
            break
        if day.month not in months or not (all(matches) if needs_both else any(matches)):
            continue
        for hour in hours:
            for minute in minutes:
                wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                if wall.timestamp() > after:
                    moments.append(wall.timestamp())
                    last_number = min(last_number, number)

    return min(moments, default=None)


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_schedules_match_enumeration(count):
    generator = random.Random(count)
    for _ in range(count):
        zone = generator.choice(list(ZONES))
        fields = [draw_field(generator, 0, 59), draw_field(generator, 0, 23)]
        fields += [draw_field(generator, 1, 31), draw_field(generator, 1, 12)]
        fields.append(draw_field(generator, 0, 7))
        day = datetime.fromisoformat(generator.choice(ZONES[zone])).replace(tzinfo=UTC)
        after = day.timestamp() + generator.uniform(0, 4 * 86400)
        cron = " ".join(text for text, _ in fields)
        expected = enumerate_next(fields, ZoneInfo(zone), after)
        assert find_next(make_job(cron, zone), after) == expected, (cron, zone, after)
