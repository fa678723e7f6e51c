"""The specification of a job: a study, its schedule, its retries and its limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import model_validator

from textevolve.agents.resources import ResourceName
from textevolve.errors import InputError, SettingsError
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
# When clocks change, a time that is skipped comes an hour later by the clock, and a time that
# occurs twice counts once.

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""The days of the week by their numbers in cron, where both 0 and 7 are Sunday."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIELDS: Mapping[str, tuple[int, int, Sequence[str]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day": (1, 31, ()),
    "month": (1, 12, MONTHS),
    "day_of_week": (0, 6, DAYS),
}
"""The fields of a cron expression, in order, with their lowest and highest numbers and their
names."""
ORDINALS = ("1st", "2nd", "3rd", "4th", "5th")
LAST_DAY = "last"
_ITEM = re.compile(
    r"(?P<first>\*|[a-z]{3}|\d+)(?:-(?P<last>[a-z]{3}|\d+))?(?:/(?P<step>[1-9]\d*))?"
)
_NUMBERED_DAY = re.compile(r"([a-z]{3}|\d)(?:#([1-5])|l)")
"""A day of the week by its number in the month, such as `1#2`, or the last one, `5L`."""
STEP = timedelta(microseconds=1)
NO_TIME = timedelta()
SECONDS_OF_DAY = 86_400.0


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
    local = datetime.fromtimestamp(after, spec.time_zone)
    # Times that the clock has skipped during the last day may still come, later by the clock.
    before = datetime.fromtimestamp(after - SECONDS_OF_DAY, spec.time_zone)
    skipped = (local.utcoffset() or NO_TIME) - (before.utcoffset() or NO_TIME)
    wall = local.replace(tzinfo=UTC, fold=0) - max(skipped, NO_TIME)
    moments: list[float] = []

    while (wall := trigger.get_next_fire_time(None, wall + STEP)) is not None:
        moment = wall.replace(tzinfo=spec.time_zone).timestamp()
        if moment > after:
            moments.append(moment)
            # A time that the clock skips comes after times that it shows within the next hour.
            shown = datetime.fromtimestamp(moments[0], spec.time_zone).replace(tzinfo=UTC, fold=0)
            if wall >= shown:
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
    fields = [re.sub(r"^\?$", "*", field.lower()) for field in fields]
    minutes, hours, days, months, week = fields
    numbered_days = [item for item in week.split(",") if _NUMBERED_DAY.fullmatch(item)]
    weekdays = ",".join(item for item in week.split(",") if item not in numbered_days)
    takes_all_days = days.startswith("*")
    takes_whole_week = week.startswith("*")
    if numbered_days and takes_all_days and days != "*":
        raise ValueError(f"{', '.join(numbered_days)} cannot be combined with the days {days}")

    # The library has other rules for ranges, steps and days of the week, so it gets lists.
    values = zip(FIELDS, (minutes, hours, days, months, weekdays or "*"), strict=True)
    schedule = {name: _expand_field(name, text) for name, text in values}
    if (takes_all_days and weekdays) or takes_whole_week:
        yield schedule
    elif weekdays:
        yield {**schedule, "day": "*"}
    if not (takes_all_days or takes_whole_week):
        yield {**schedule, "day_of_week": "*"}
    for item in numbered_days:
        yield {**schedule, "day": _name_numbered_day(item), "day_of_week": "*"}


def _expand_field(name: str, text: str) -> str:
    """Return a field of a cron expression as a list of numbers, of names for days of the week.

    Raises:
        ValueError: it cannot be read.
    """
    if text == "*":
        return text
    low, high, _ = FIELDS[name]
    size = high - low + 1
    numbers: set[int] = set()
    items = text.split(",")
    last_days = [LAST_DAY] if name == "day" and {"l", LAST_DAY} & {*items} else []

    for item in items:
        if last_days and item in ("l", LAST_DAY):
            continue
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _unreadable(name, item)
        step = int(match["step"] or 1)
        first = low if match["first"] == "*" else _read_number(name, match["first"], item)
        last = first
        if match["last"]:
            last = _read_number(name, match["last"], item)
        elif match["first"] == "*" or match["step"]:
            last = max(first, high)
        if last < first:
            last += size  # such as fri-mon, or 22-2 for hours
        numbers.update(low + (number - low) % size for number in range(first, last + 1, step))

    is_week = name == "day_of_week"
    listed = [DAYS[number] if is_week else str(number) for number in sorted(numbers)]
    return ",".join(listed + last_days)


def _read_number(name: str, text: str, item: str) -> int:
    low, high, names = FIELDS[name]
    if text in names:
        return names.index(text) + low
    # Sunday is 7, too.
    most = 7 if name == "day_of_week" else high
    if not text.isdecimal() or not low <= int(text) <= most:
        raise _unreadable(name, item)
    return int(text)


def _name_numbered_day(item: str) -> str:
    """Return a day such as `1#2` in the words of the scheduling library."""
    match = _NUMBERED_DAY.fullmatch(item)
    assert match is not None
    ordinal = ORDINALS[int(match[2]) - 1] if match[2] else LAST_DAY
    return f"{ordinal} {DAYS[_read_number('day_of_week', match[1], item) % 7]}"


def _unreadable(name: str, item: str) -> ValueError:
    low, high, names = FIELDS[name]
    words = f" or {names[0]} to {names[-1]}" if names else ""
    more = ", 1#2 for the second Monday, 5L for the last Friday" if names is DAYS else ""
    field = {"day": "day of the month", "day_of_week": "day of the week"}.get(name, name)
    return ValueError(
        f"'{item}' is no {field}: write {low} to {high}{words}, a list, a range, a step such as */2"
        f"{more}"
    )
