"""The times of jobs, by a cron expression in the job's time zone.

When clocks change, a time that is skipped comes an hour later by the clock, and a time that occurs
twice counts once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from textevolve.errors import InputError, SettingsError
from textevolve.jobs.job_spec import JobSpec, read_job
from textevolve.store.jobs import StoredJob

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""The days of the week by their numbers in cron, where both 0 and 7 are Sunday."""
# The fields of a cron expression, in order.
FIELDS = ("minute", "hour", "day", "month", "day_of_week")
STEP = timedelta(microseconds=1)


def next_due(job: StoredJob, after: float) -> float | None:
    """Return the next time of a job after a time, both in seconds since 1970; None if it never runs
    again.

    Raises:
        SettingsError: the package for cron expressions is not installed.
    """
    return find_next(read_job(job), after)


def find_next(spec: JobSpec, after: float) -> float | None:
    """Return the next time of a schedule after a time, both in seconds since 1970; None if there is
    none.

    Raises:
        InputError: the schedule cannot be used. SettingsError: the package for cron expressions is
            not installed.
    """
    try:
        from apscheduler.triggers.cron import CronTrigger
    except ImportError:
        raise SettingsError("jobs need more packages: pip install 'textevolve[server]'") from None
    try:
        triggers = [CronTrigger(**fields, timezone=UTC) for fields in _read_cron(spec.cron)]
    except ValueError as error:
        raise InputError(f"--cron '{spec.cron}': {error}") from None
    times = [_find_by_trigger(trigger, spec, after) for trigger in triggers]
    return min((time for time in times if time is not None), default=None)


def _find_by_trigger(trigger: Any, spec: JobSpec, after: float) -> float | None:
    """Return the next time of a cron trigger after a time. The trigger computes local times as if
    clocks never changed, since its own search may not end near a change."""
    wall = datetime.fromtimestamp(after, spec.time_zone).replace(tzinfo=UTC)
    while (wall := trigger.get_next_fire_time(None, wall + STEP)) is not None:
        if (moment := wall.replace(tzinfo=spec.time_zone).timestamp()) > after:
            return moment
    return None


def check_schedule(spec: JobSpec, now: float) -> None:
    """Check that a job has a time to run after `now` (seconds since 1970).

    Raises:
        InputError: the schedule cannot be used, or no time ever matches it.
    """
    if find_next(spec, now) is None:
        raise InputError(f"the job would never run, since no date fits {describe_schedule(spec)}")


def describe_schedule(spec: JobSpec) -> str:
    return f"cron {spec.cron} ({spec.zone})"


def _read_cron(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of a cron expression as schedules for the scheduling library. If both the
    day of the month and the day of the week are restricted, cron requires only one of them; this
    gives two schedules."""
    fields = text.split()
    if len(fields) != len(FIELDS):
        raise ValueError(
            f"has {len(fields)} fields instead of 5: minute, hour, day of the month, month, day of"
            " the week"
        )
    # The library counts the days of the week from Monday, so they are given by name.
    fields[4] = re.sub(r"(?<![\w/])[0-7](?!\w)", lambda day: DAYS[int(day[0]) % 7], fields[4])
    schedule: dict[str, str] = dict(zip(FIELDS, fields, strict=True))
    if any(field.startswith("*") for field in (fields[2], fields[4])):
        yield schedule
    else:
        yield {**schedule, "day_of_week": "*"}
        yield {**schedule, "day": "*"}
