"""When a job is due: by a cron expression or an interval, in its time zone.

A night in which clocks are changed: what is due at a time that does not exist runs an hour later by
the clock; what is due at a time that comes twice runs the first time only, unless it runs in every
hour. Intervals are of real time, so that a day is always 24 hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from textevolve.errors import InputError, SettingsError
from textevolve.jobs.job_spec import JobSpec, read_job, write_duration
from textevolve.store.jobs import StoredJob

if TYPE_CHECKING:
    from textevolve.store.jobs import NextDue

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""As cron counts them: 0 and 7 are Sunday."""
STEP = timedelta(microseconds=1)
CLOCK_CHANGE = timedelta(hours=25)
"""More than any clock is ever put forward or back: Samoa left out a day."""
MARGIN = 3 * 3600.0
"""Seconds: more than a clock is put back, so that an earlier time may still come."""

_DAYS_PART = re.compile(r"^(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[1-9]\d*))?$")


def next_due(job: StoredJob, after: float) -> float | None:
    """When a job is due next, after a time, both in seconds since 1970; None: never again.

    Raises:
        SettingsError: the package that knows schedules is not installed.
    """
    return find_next(read_job(job), job.created, after)


_: NextDue = next_due


def find_next(spec: JobSpec, created: float, after: float) -> float | None:
    """`created`: from when on intervals are counted where the job has no start.

    Raises:
        InputError: the schedule cannot be used.
    """
    start, end = spec.moment(spec.start), spec.moment(spec.end)
    if start is not None:
        after = max(after, start.timestamp() - STEP.total_seconds())
    if spec.every is not None:
        found = _find_interval(spec.every, start.timestamp() if start else created, after)
    else:
        found = _find_by_cron(spec.cron or "", spec.time_zone, after)
    too_late = found is None or (end is not None and found > end.timestamp())
    return None if too_late else found


def _find_interval(seconds: float, first: float, after: float) -> float:
    _, intervals, _ = _load_triggers()
    begin = datetime.fromtimestamp(first, UTC)
    trigger = intervals(seconds=seconds, start_date=begin, timezone=UTC)
    now = datetime.fromtimestamp(after, UTC) + STEP
    return trigger.get_next_fire_time(None, now).timestamp()


def _find_by_cron(text: str, zone: ZoneInfo, after: float) -> float | None:
    """The library is asked in times of the wall's clock, as if that were never changed: its own
    way through the hours that come twice or not at all does not always end."""
    cron, _, either = _load_triggers()
    try:
        triggers = [cron(**fields, timezone=UTC) for fields in _read_cron(text)]
    except ValueError as error:
        raise InputError(f"--cron '{text}': {error}") from None
    trigger = triggers[0] if len(triggers) == 1 else either(triggers)
    hourly = text.split()[1].startswith("*")
    wall = datetime.fromtimestamp(after, zone).replace(tzinfo=UTC) - CLOCK_CHANGE
    best: float | None = None
    while (wall := trigger.get_next_fire_time(None, wall + STEP)) is not None:
        for when in _moments(wall.replace(tzinfo=zone), hourly=hourly):
            if when > after and (best is None or when < best):
                best = when
        if best is not None and wall.replace(tzinfo=zone).timestamp() > best + MARGIN:
            break
    return best


def _moments(wall: datetime, *, hourly: bool) -> Iterator[float]:
    """When a clock on the wall shows this: once; or, in a night in which it is put back, twice."""
    yield wall.timestamp()
    if hourly and (again := wall.replace(fold=1)).timestamp() > wall.timestamp():
        yield again.timestamp()


def _load_triggers() -> tuple[Any, Any, Any]:
    try:
        from apscheduler.triggers.combining import OrTrigger
        from apscheduler.triggers.cron import CronTrigger
        from apscheduler.triggers.interval import IntervalTrigger
    except ImportError:
        raise SettingsError("jobs need more packages: pip install 'textevolve[server]'") from None
    return CronTrigger, IntervalTrigger, OrTrigger


def check_schedule(spec: JobSpec, now: float) -> None:
    """
    Raises:
        InputError: the schedule cannot be used, or its time never comes.
    """
    if find_next(spec, now, now) is None:
        raise InputError(f"the job would never run: {describe_schedule(spec)}")


def describe_schedule(spec: JobSpec) -> str:
    """In words, for people."""
    if spec.every is not None:
        told = f"every {write_duration(spec.every)}"
    else:
        told = f"cron {spec.cron} ({spec.zone})"
    told += f", from {spec.start.isoformat()}" if spec.start else ""
    return told + (f", until {spec.end.isoformat()}" if spec.end else "")


def _read_cron(text: str) -> Iterator[dict[str, str]]:
    """The fields of a cron expression. As with cron, where both a day of the month and a day of the
    week are named each of the two is enough."""
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(
            f"has {len(fields)} fields in place of 5: minute, hour, day of the month, month, day of"
            " the week"
        )
    names: tuple[str, ...] = ("minute", "hour", "day", "month", "day_of_week")
    found: dict[str, str] = dict(zip(names, fields, strict=True))
    found["day_of_week"] = _read_days(found["day_of_week"])
    either = all(not one.startswith("*") for one in (fields[2], fields[4]))
    if either:
        yield {**found, "day_of_week": "*"}
        yield {**found, "day": "*"}
    else:
        yield found


def _read_days(text: str) -> str:
    """The days of the week by name, since the library counts them from Monday."""
    days = set[int]()
    for part in text.split(","):
        found = _DAYS_PART.match(part.lower())
        if found is None:
            raise ValueError(f"'{text}' is no day of the week; write 0 to 7, or sun to sat")
        first = 0 if found["first"] is None else _day(found["first"])
        last = 6 if found["first"] is None else _day(found["last"] or found["first"])
        if found["step"] and found["first"] and not found["last"]:
            last = 6
        last += 7 if last < first else 0
        days |= {day % 7 for day in range(first, last + 1, int(found["step"] or 1))}
    return "*" if len(days) == 7 else ",".join(DAYS[day] for day in sorted(days))


def _day(name: str) -> int:
    if name.isdigit() and int(name) <= 7:
        return int(name)
    if name[:3] not in DAYS:
        raise ValueError(f"'{name}' is no day of the week; write 0 to 7, or sun to sat")
    return DAYS.index(name[:3])
