"""When a job is due: by a cron expression or an interval, in its time zone.

In a night in which clocks change, a time that does not exist comes an hour later by the clock; a
time that comes twice counts once, unless the job runs in every hour. Intervals are of real time, so
a day is always 24 hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from textevolve.errors import InputError, SettingsError
from textevolve.jobs.job_spec import JobSpec, read_job
from textevolve.report import wording
from textevolve.store.jobs import StoredJob

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""As cron counts them: 0 and 7 are Sunday."""
FIELDS = ("minute", "hour", "day", "month", "day_of_week")
STEP = timedelta(microseconds=1)
CLOCK_CHANGE = timedelta(hours=25)
"""More than any clock is ever put forward or back: Samoa left out a day."""
MARGIN = 3 * 3600.0
"""Seconds: more than a clock is put back, so that an earlier time may still come."""

_DAYS_PART = re.compile(r"^(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[1-9]\d*))?$")


def next_due(job: StoredJob, after: float) -> float | None:
    """Return when a job is due next, after a time, both in seconds since 1970; None: never again.

    Raises:
        SettingsError: the package that knows schedules is not installed.
    """
    return find_next(read_job(job), job.created, after)


def find_next(spec: JobSpec, created: float, after: float) -> float | None:
    """`created`: the origin of intervals if the job has no start.

    Raises:
        InputError: the schedule cannot be used.
    """
    start, end = spec.moment(spec.start), spec.moment(spec.end)
    if start is not None:
        after = max(after, start.timestamp() - STEP.total_seconds())
    if spec.every is not None:
        first = start.timestamp() if start else created
        number = (after - first) // spec.every + 1
        due: float | None = first + max(number, 0) * spec.every
    else:
        due = _find_by_cron(spec.cron or "", spec.time_zone, after)
    return None if due is None or (end is not None and due > end.timestamp()) else due


def _find_by_cron(text: str, zone: ZoneInfo, after: float) -> float | None:
    try:
        from apscheduler.triggers.cron import CronTrigger
    except ImportError:
        raise SettingsError("jobs need more packages: pip install 'textevolve[server]'") from None
    try:
        triggers = [CronTrigger(**fields, timezone=UTC) for fields in _read_cron(text)]
    except ValueError as error:
        raise InputError(f"--cron '{text}': {error}") from None
    hourly = text.split()[1].startswith("*")
    times = [_find_by_trigger(one, zone, after, hourly=hourly) for one in triggers]
    return min((time for time in times if time is not None), default=None)


def _find_by_trigger(trigger: Any, zone: ZoneInfo, after: float, *, hourly: bool) -> float | None:
    """Ask the library for times of the wall's clock, as if that never changed: its own search does
    not always end in hours that come twice or not at all. If `hourly`, both hours count."""
    wall = datetime.fromtimestamp(after, zone).replace(tzinfo=UTC) - CLOCK_CHANGE
    best: float | None = None
    while (wall := trigger.get_next_fire_time(None, wall + STEP)) is not None:
        local = wall.replace(tzinfo=zone)
        first = local.timestamp()
        second = max(first, local.replace(fold=1).timestamp()) if hourly else first
        for moment in (first, second):
            if moment > after and (best is None or moment < best):
                best = moment
        if best is not None and first > best + MARGIN:
            break
    return best


def check_schedule(spec: JobSpec, now: float) -> None:
    """
    Raises:
        InputError: the schedule cannot be used, or its time never comes.
    """
    if find_next(spec, now, now) is None:
        raise InputError(f"the job would never run: {describe_schedule(spec)}")


def describe_schedule(spec: JobSpec) -> str:
    """Return the schedule in words."""
    every = f"every {wording.duration(spec.every)}" if spec.every is not None else ""
    start = f", from {spec.start.isoformat()}" if spec.start else ""
    end = f", until {spec.end.isoformat()}" if spec.end else ""
    return (every or f"cron {spec.cron} ({spec.zone})") + start + end


def _read_cron(text: str) -> Iterator[dict[str, str]]:
    """Read the fields of a cron expression. As with cron, either day is enough if both a day of the
    month and a day of the week are named."""
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(
            f"has {len(fields)} fields in place of 5: minute, hour, day of the month, month, day of"
            " the week"
        )
    named = {**dict(zip(FIELDS, fields, strict=True)), "day_of_week": _read_days(fields[4])}
    if any(field.startswith("*") for field in (fields[2], fields[4])):
        yield named
    else:
        yield {**named, "day_of_week": "*"}
        yield {**named, "day": "*"}


def _read_days(text: str) -> str:
    """Return the days of the week by name, since the library counts them from Monday."""
    days = set[int]()
    for part in text.split(","):
        match = _DAYS_PART.match(part.lower())
        if match is None:
            raise ValueError(f"'{text}' is no day of the week; write 0 to 7, or sun to sat")
        first, last, step = match["first"], match["last"], match["step"]
        begin = 0 if first is None else _day(first)
        end = 6 if first is None or (step and not last) else _day(last or first)
        end += 7 if end < begin else 0
        days |= {day % 7 for day in range(begin, end + 1, int(step or 1))}
    return "*" if len(days) == 7 else ",".join(DAYS[day] for day in sorted(days))


def _day(name: str) -> int:
    if name.isdigit() and int(name) <= 7:
        return int(name)
    if name[:3] not in DAYS:
        raise ValueError(f"'{name}' is no day of the week; write 0 to 7, or sun to sat")
    return DAYS.index(name[:3])
