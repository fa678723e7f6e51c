"""The specification of a job: a study, its schedule, its retries and its limits."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import model_validator

from textevolve.agents.resources import ResourceName
from textevolve.errors import InputError
from textevolve.rows import names_rows
from textevolve.rows.images import PREFIX
from textevolve.runs.driver import Launch
from textevolve.runs.gates import Gates
from textevolve.runs.study import KIND, AnyStudy, StudySpec
from textevolve.settings import Settings
from textevolve.spec import Frozen, option, option_properties
from textevolve.store.jobs import StoredJob
from textevolve.wiring import Limits

LIMITS = "Limits of each run"


class JobSpec(Frozen):
    """A study that runs at the times of a cron expression.

    Times that were missed because no scheduler was running are made up for by a single run as soon
    as one starts.
    """

    name: ResourceName = option(description="The job's name.", argument=True)
    study: Mapping[str, Any] = option(
        description="The study in the form of a study file: its kind and its fields."
    )
    cron: str = option(
        description="When the job runs: minute, hour, day of the month, month, day of the week,"
        " such as '0 3 * * *' for each day at 3:00.",
        metavar="EXPRESSION",
        min_length=1,
    )
    zone: str = option(
        "UTC", "The time zone of the schedule, such as Europe/Vienna.", metavar="ZONE"
    )
    fresh: bool = option(
        False,
        "Make a new run each time, which repeats all calls. Without it, a study with unchanged"
        " rows and memories is the same run, and no call is repeated.",
    )
    concurrency: int | None = option(None, "The most model calls at the same time.", ge=1, le=4096)
    batch: bool = option(
        False, "Send calls as batch jobs of the provider. A batch job may take a day."
    )
    max_cost: float | None = option(None, "Stop at this cost, in dollars.", group=LIMITS, ge=0)
    max_tokens: int | None = option(None, "Stop at this many tokens.", group=LIMITS, ge=0)
    max_calls: int | None = option(None, "Stop at this many calls.", group=LIMITS, ge=0)
    time_limit: float | None = option(None, "Stop after this many seconds.", group=LIMITS, ge=0)
    gates: Gates = Gates()

    @model_validator(mode="after")
    def _usable(self) -> JobSpec:
        _ = self.time_zone
        return self

    @property
    def time_zone(self) -> ZoneInfo:
        """The time zone of the schedule.

        Raises:
            InputError: there is no such zone.
        """
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InputError(
                f"there is no time zone '{self.zone}'; write it as in Europe/Vienna or UTC"
            ) from None

    def launch(self, namespace: str) -> Launch:
        """Return the options with which the job's runs are started: their name, source and
        limits."""
        return Launch(
            name=self.name,
            source=f"job {namespace}/{self.name}",
            limits=Limits(self.max_cost, self.max_tokens, self.max_calls),
            time_limit=self.time_limit,
        )

    def settings(self, settings: Settings, namespace: str) -> Settings:
        """Return the settings of the job's runs, in which names without a namespace belong to the
        job's namespace."""
        overrides: dict[str, Any] = {"concurrency": self.concurrency} if self.concurrency else {}
        overrides |= {"batch": True} if self.batch else {}
        return settings.model_copy(update={"namespace": namespace, **overrides})


def read_job(job: StoredJob) -> JobSpec:
    """Return the specification of a stored job.

    Raises:
        InputError: a later version of TextEvolve wrote it.
    """
    return JobSpec(**job.spec)


def write_job_study(study: AnyStudy, spec: StudySpec) -> dict[str, Any]:
    """Return a study in the form in which jobs store it, without fields that have their defaults.
    The files that it reads get absolute paths, since a scheduler may run in another folder; texts,
    and names of data sets on a hub, are not changed.

    Raises:
        InputError: the specification reads standard input.
    """
    paths = {
        name: _from_root(getattr(spec, name))
        for name, field in study.spec.model_fields.items()
        if option_properties(field).get("reads") and getattr(spec, name)
    }
    fields = spec.model_copy(update=paths).model_dump(mode="json", exclude_defaults=True)

    return {KIND: study.kind, **fields}


def _from_root(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_from_root(element) for element in cast(tuple[Any, ...], value))
    if isinstance(value, str) and value == "-":
        raise InputError("a job cannot read standard input; name a file")
    if not isinstance(value, str):
        return value
    mark, path = ("@", value[1:]) if value.startswith("@") else ("", value)
    is_file = not path.startswith(PREFIX) and (names_rows(path) or os.path.exists(path))

    return f"{mark}{Path(path).absolute()}" if is_file else value


# The times of jobs, by a cron expression in the job's time zone.
#
# When clocks change, a time that is skipped comes later by what is skipped, and a time that occurs
# twice counts once.

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""The days of the week by their numbers in cron, where both 0 and 7 are Sunday."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIELDS: Mapping[str, tuple[int, int, Sequence[str]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day of the month": (1, 31, ()),
    "month": (1, 12, MONTHS),
    "day of the week": (0, 6, DAYS),
}
"""The fields of a cron expression, in order, with their lowest and highest numbers and their
names."""
WEEK = "day of the week"
LAST = 6
"""The number that stands for the last day of its kind in a month: `5L` is `5#6`."""
HORIZON = 15_000
"""The days that are searched for a time. The dates of forty years have every day of the week."""
_ITEM = re.compile(
    r"(?P<first>\*|[a-z]{3}|\d+)(?:-(?P<last>[a-z]{3}|\d+))?(?:/(?P<step>[1-9]\d*))?"
)
_NUMBERED_DAY = re.compile(r"([a-z]{3}|\d)(?:#([1-5])|l)")
"""A day of the week by its number in the month, such as `1#2`, or the last one, `5L`."""


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The times that a cron expression means.

    Attributes:
        numbered_days: Days of the week with their number in the month.
        takes_last_day: Whether the last day of a month is one of the days.
        needs_both: Whether the day of the month and that of the week must both fit.
    """

    minutes: Sequence[int]
    hours: Sequence[int]
    days: Collection[int]
    months: Collection[int]
    weekdays: Collection[int]
    numbered_days: Collection[tuple[int, int]]
    takes_last_day: bool
    needs_both: bool

    def fits(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        weekday = day.isoweekday() % 7
        number = (day.day + 6) // 7
        is_last = (day + timedelta(days=7)).month != day.month
        in_week = (
            weekday in self.weekdays
            or (weekday, number) in self.numbered_days
            or (is_last and (weekday, LAST) in self.numbered_days)
        )
        ends_month = (day + timedelta(days=1)).month != day.month
        in_month = day.day in self.days or (self.takes_last_day and ends_month)

        return (in_week and in_month) if self.needs_both else (in_week or in_month)


def next_due(job: StoredJob, after: float) -> float | None:
    """Return the next time of a job after a time, both in seconds since 1970; None if it never runs
    again."""
    return find_next(read_job(job), after)


def find_next(spec: JobSpec, after: float) -> float | None:
    """Return the next time of a schedule after a time, both in seconds since 1970; None if there is
    none.

    Raises:
        InputError: the schedule cannot be used.
    """
    times = _read_cron(spec.cron)
    # A time of yesterday that the clock skipped may still come.
    first_day = datetime.fromtimestamp(after, spec.time_zone).date() - timedelta(days=1)
    moments: list[float] = []
    for number in range(HORIZON):
        day = first_day + timedelta(days=number)
        # A day more than needed, since a skipped time comes after times that the clock shows.
        is_last_day = bool(moments)
        if times.fits(day):
            clock = (
                time(hour, minute, tzinfo=spec.time_zone)
                for hour in times.hours
                for minute in times.minutes
            )
            starts = (datetime.combine(day, start).timestamp() for start in clock)
            moments += [start for start in starts if start > after]
        if is_last_day:
            break

    return min(moments, default=None)


def check_schedule(spec: JobSpec, now: float) -> None:
    """Check that a job has a time to run after `now` (seconds since 1970).

    Raises:
        InputError: the schedule cannot be used, or no time ever matches it.
    """
    if find_next(spec, now) is None:
        raise InputError(f"the job would never run, since no date fits {describe_schedule(spec)}")


def describe_schedule(spec: JobSpec) -> str:
    return f"cron {spec.cron} ({spec.zone})"


def _read_cron(text: str) -> CronTimes:
    """Return the times that a cron expression means. If both the day of the month and the day of
    the week are restricted, cron requires only one of them.

    Raises:
        InputError: it cannot be read.
    """
    fields = [re.sub(r"^\?$", "*", field.lower()) for field in text.split()]
    if len(fields) != len(FIELDS):
        raise InputError(
            f"--cron '{text}': has {len(fields)} fields instead of 5: minute, hour, day of the"
            " month, month, day of the week"
        )

    minutes, hours, days, months, week = (field.split(",") for field in fields)
    numbered_days: list[tuple[int, int]] = []
    for item in week:
        if match := _NUMBERED_DAY.fullmatch(item):
            numbered_days.append((_read_number(WEEK, match[1], item) % 7, int(match[2] or LAST)))
    weekdays = [item for item in week if not _NUMBERED_DAY.fullmatch(item)]
    last_days = [item for item in days if item == "l"]
    month_days = [item for item in days if item != "l"]
    try:
        lists = map(_read_items, FIELDS, (minutes, hours, month_days, months, weekdays))
        return CronTimes(
            *lists,
            numbered_days=numbered_days,
            takes_last_day=bool(last_days),
            needs_both=fields[2].startswith("*") or fields[4].startswith("*"),
        )
    except ValueError as error:
        raise InputError(f"--cron '{text}': {error}") from None


def _read_items(name: str, items: Sequence[str]) -> Sequence[int]:
    """Return the numbers that the items of a field mean.

    Raises:
        ValueError: one cannot be read.
    """
    low, high, _ = FIELDS[name]
    numbers: set[int] = set()

    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _unreadable(name, item)
        first = low if match["first"] == "*" else _read_number(name, match["first"], item)
        last = first
        if match["last"]:
            last = _read_number(name, match["last"], item)
        elif match["first"] == "*" or match["step"]:
            last = max(first, high)
        size = high - low + 1
        if last < first:
            last += size  # such as fri-mon, or 22-2 for hours
        values = range(first, last + 1, int(match["step"] or 1))
        numbers.update(low + (value - low) % size for value in values)

    return sorted(numbers)


def _read_number(name: str, text: str, item: str) -> int:
    low, high, names = FIELDS[name]
    if text in names:
        return names.index(text) + low
    # Sunday is 7, too.
    most = 7 if name == WEEK else high
    if not text.isdecimal() or not low <= int(text) <= most:
        raise _unreadable(name, item)
    return int(text)


def _unreadable(name: str, item: str) -> ValueError:
    low, high, names = FIELDS[name]
    words = f" or {names[0]} to {names[-1]}" if names else ""
    more = ", 1#2 for the second Monday, 5L for the last Friday" if name == WEEK else ""
    return ValueError(
        f"'{item}' is no {name}: write {low} to {high}{words}, a list, a range, a step such as */2"
        f"{more}"
    )
