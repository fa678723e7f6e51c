"""When jobs are due: cron expressions, nights in which clocks are changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("cronsim")

from textevolve.errors import InputError
from textevolve.jobs.job_spec import JobSpec, check_schedule, find_next, next_due
from textevolve.store.jobs import StoredJob

STUDY = {"kind": "evaluate", "cases": ["cases.jsonl"]}
VIENNA = "Europe/Vienna"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def job(**given):
    return JobSpec(name="nightly", study=STUDY, **given)


def moment(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def walls(cron, after, number, zone="UTC"):
    """The next times as the clock on the wall shows them."""
    matches, when = [], moment(after, zone)
    for _ in range(number):
        when = find_next(job(cron=cron, zone=zone), when)
        matches.append(datetime.fromtimestamp(when, ZoneInfo(zone)).isoformat()[:16])
    return matches


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/20 * * * *", ["2026-03-01T00:20", "2026-03-01T00:40", "2026-03-01T01:00"]),
        ("0 0 1 1,7 *", ["2026-07-01T00:00", "2027-01-01T00:00", "2027-07-01T00:00"]),
        ("0 9-17/4 * * *", ["2026-03-01T09:00", "2026-03-01T13:00", "2026-03-01T17:00"]),
        # The first of March 2026 is a Sunday, which cron counts as 0 and as 7.
        ("30 6 * * 0", ["2026-03-01T06:30", "2026-03-08T06:30", "2026-03-15T06:30"]),
        ("30 6 * * 7", ["2026-03-01T06:30", "2026-03-08T06:30", "2026-03-15T06:30"]),
        ("30 6 * * mon-fri", ["2026-03-02T06:30", "2026-03-03T06:30", "2026-03-04T06:30"]),
        ("30 6 * * SAT,3", ["2026-03-04T06:30", "2026-03-07T06:30", "2026-03-11T06:30"]),
        # With cron either day is enough.
        ("0 0 4 * 2", ["2026-03-03T00:00", "2026-03-04T00:00", "2026-03-10T00:00"]),
        ("0 0 */2 * 2", ["2026-03-03T00:00", "2026-03-17T00:00", "2026-03-31T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
    ],
)
def test_cron_expressions(cron, expected):
    assert walls(cron, "2026-03-01T00:00", 3) == expected


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("0 3 * *", "has 4 fields instead of 5"),
        ("61 3 * * *", "is no minute: write 0 to 59"),
        ("0 3 * * 8", "8"),
        ("0 3 * * noday", "noday"),
        ("often * * * *", "often"),
        ("0 0 31 2 *", "would never run"),
    ],
)
def test_what_is_no_schedule_is_refused(cron, said):
    with pytest.raises(InputError, match=said.replace("*", r"\*")):
        check_schedule(job(cron=cron), moment("2026-03-01T00:00"))


def test_a_job_is_checked_when_it_is_described():
    for zone in ("Mars/Base", "../etc"):
        with pytest.raises(InputError, match="no time zone"):
            job(cron="0 3 * * *", zone=zone)


def test_however_many_times_went_by_it_is_due_once():
    spec = {"name": "nightly", "study": STUDY, "cron": "0 3 * * *"}
    stored = StoredJob("jo_1", "acme", "nightly", 0.0, 0.0, False, 0.0, True, spec)
    value = moment("2026-03-20T10:00")
    assert next_due(stored, value) == moment("2026-03-21T03:00")


def test_a_time_that_does_not_exist_comes_an_hour_later_by_the_clock():
    found = walls("30 2 * * *", "2026-03-28T00:00", 3, VIENNA)
    assert found == ["2026-03-28T02:30", "2026-03-29T03:30", "2026-03-30T02:30"]


def test_a_time_that_comes_twice_counts_once():
    found = walls("30 2 * * *", "2026-10-24T00:00", 3, VIENNA)
    assert found == ["2026-10-24T02:30", "2026-10-25T02:30", "2026-10-26T02:30"]
    first_value = find_next(job(cron="30 2 * * *", zone=VIENNA), moment("2026-10-25T00:00", VIENNA))
    assert datetime.fromtimestamp(first_value, ZoneInfo(VIENNA)).utcoffset() == timedelta(hours=2)


NIGHTS = [
    *(("Europe/Vienna", "2026-03-28T20:00"), ("Europe/Vienna", "2026-10-24T20:00")),
    *(("America/New_York", "2026-03-07T20:00"), ("America/New_York", "2026-10-31T20:00")),
    *(("Australia/Lord_Howe", "2026-04-04T20:00"), ("Australia/Lord_Howe", "2026-10-03T20:00")),
    *(("Pacific/Apia", "2011-12-29T20:00"), ("UTC", "2026-03-28T20:00")),
]


def by_brute_force(minutes, hours, zone, after, until):
    """Each real minute at which the clock shows one of these times, the first where it comes
    twice; but those that the clock leaves out."""
    matches, when, seen = [], after - after % MINUTE + MINUTE, set()
    while when <= until:
        wall = datetime.fromtimestamp(when, ZoneInfo(zone))
        output = wall.replace(tzinfo=None, fold=0)
        if wall.minute in minutes and wall.hour in hours and output not in seen:
            matches.append(when)
        seen.add(output)
        when += MINUTE
    return matches


@given(
    night=st.sampled_from(NIGHTS),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=3),
    hours=st.sets(st.integers(0, 23), min_size=1, max_size=4),
)
@example(NIGHTS[1], {30}, {2})
@example(NIGHTS[6], {0}, {0})
def test_times_are_those_that_the_clock_shows(night, minutes, hours):
    zone, begin = night
    cron = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    spec, when = job(cron=cron, zone=zone), moment(begin, zone)
    until, matches = when + 2 * DAY, []
    while (when := find_next(spec, when)) <= until:
        matches.append(when)
    expected = by_brute_force(minutes, hours, zone, moment(begin, zone), until)
    assert sorted(set(matches)) == matches
    assert set(expected) <= set(matches)
    for extra in set(matches) - set(expected):
        before = datetime.fromtimestamp(extra - 25 * HOUR, ZoneInfo(zone)).utcoffset()
        now = datetime.fromtimestamp(extra, ZoneInfo(zone)).utcoffset()
        assert now != before  # the time it stands for does not exist on this day
