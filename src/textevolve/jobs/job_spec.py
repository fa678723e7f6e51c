"""The specification of a job: a study, its schedule, its retries and its limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import model_validator

from textevolve.agents.resources import ResourceName
from textevolve.errors import InputError, SettingsError
from textevolve.json_texts import is_sequence
from textevolve.rows import names_rows
from textevolve.rows.images import PREFIX
from textevolve.runs.driver import Launch
from textevolve.runs.gates import Gates
from textevolve.runs.study import KIND, AnyStudy, StudySpec
from textevolve.settings import Settings
from textevolve.spec import Frozen, NonEmpty, option, option_properties
from textevolve.store.jobs import StoredJob
from textevolve.wiring import Limits

if TYPE_CHECKING:
    from cronsim.cronsim import Field

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
    cron: NonEmpty = option(
        description="When the job runs: minute, hour, day of the month, month, day of the week,"
        " such as '0 3 * * *' for each day at 3:00.",
        metavar="EXPRESSION",
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
        overrides: dict[str, Any] = {"namespace": namespace}
        if self.concurrency:
            overrides["concurrency"] = self.concurrency
        if self.batch:
            overrides["batch"] = True

        return settings.model_copy(update=overrides)


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
    if is_sequence(value):
        return tuple(map(_from_root, value))
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
# twice counts once. The library's own rules, those of Debian, would run all skipped times as one,
# and leave out or repeat those of expressions that begin with a star. So it gets times without a
# zone.

FIELDS: Mapping[str, tuple[str, range, str]] = {
    "MINUTE": ("minute", range(60), ""),
    "HOUR": ("hour", range(24), ""),
    "DAY": ("day of the month", range(1, 32), ""),
    "MONTH": ("month", range(1, 13), " or jan to dec"),
    "DOW": ("day of the week", range(7), " or sun to sat"),
}
"""The fields of a cron expression, in order and by the library's names: our name, the numbers, and
the names that may be written as well."""
DAY = timedelta(days=1)
_SPAN = re.compile(r"(?P<first>\w+)(?:-(?P<last>\w+))?(?:/(?P<step>[1-9][0-9]*))?")


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
    zone = spec.time_zone
    moments: list[float] = []
    # Times that the clock skipped during the last day may still come.
    unchanged = _read_clock(after - DAY.total_seconds(), zone) + DAY
    begin = min(_read_clock(after, zone), unchanged)

    for wall in _list_walls(spec.cron, begin):
        moment = wall.replace(tzinfo=zone).timestamp()
        if moment <= after:
            continue
        moments.append(moment)
        # A skipped time comes after times that the clock shows until then.
        if wall >= _read_clock(moments[0], zone):
            break

    return min(moments, default=None)


def _read_clock(moment: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None)


def check_schedule(spec: JobSpec, now: float) -> None:
    """Check that a job has a time to run after `now` (seconds since 1970).

    Raises:
        InputError: the schedule cannot be used, or no time ever matches it.
    """
    if find_next(spec, now) is None:
        raise InputError(f"the job would never run, since no date fits {describe_schedule(spec)}")


def describe_schedule(spec: JobSpec) -> str:
    return f"cron {spec.cron} ({spec.zone})"


def _list_walls(text: str, begin: datetime) -> Iterator[datetime]:
    """Yield the times after another that a cron expression means, as if clocks never changed.

    Raises:
        InputError: it cannot be read. SettingsError: the package for cron expressions is not
            installed.
    """
    try:
        from cronsim import CronSim, CronSimError
        from cronsim.cronsim import Field
    except ImportError:
        raise SettingsError("jobs need more packages: pip install 'textevolve[server]'") from None

    fields = text.split()
    if len(fields) != len(FIELDS):
        raise InputError(
            f"--cron '{text}': has {len(fields)} fields instead of 5: minute, hour, day of the"
            " month, month, day of the week"
        )

    lists: list[str] = []
    for name, field in zip(FIELDS, fields, strict=True):
        items: list[str] = []
        for item in re.sub(r"^\?$", "*", field).split(","):
            # The library names the field alone, so each item is tried by itself.
            try:
                items.append(_write_plainly(Field[name], item.upper()))
                Field[name].parse(items[-1])
            except (CronSimError, ValueError):
                raise InputError(f"--cron '{text}': {_explain(name, item)}") from None
        lists.append(",".join(items))

    # All fields can be read now. What is still refused are dates that no year has: 31 February.
    with suppress(CronSimError):
        yield from CronSim(" ".join(lists), begin)


def _write_plainly(field: Field, item: str) -> str:
    """Return an item of a field as the library reads it. Ranges and steps become lists: it has no
    ranges across the end (fri-mon, 22-2), reads 3-3/2 as 3/2, and counts 1/2 up to Sunday. Of the
    last days of a month it knows those by numbers alone (5L)."""
    if last_day := re.fullmatch(r"([A-Z]{3})L", item):
        return f"{field.int(last_day[1])}L"
    match = _SPAN.fullmatch(item)
    if match is None or not (match["last"] or match["step"]):
        return item

    _, values, _ = FIELDS[field.name]
    first = field.int(match["first"])
    last = field.int(match["last"]) if match["last"] else max(first, values[-1])
    if last < first:
        last += len(values)
    numbers = range(first, last + 1, int(match["step"] or 1))

    return ",".join(str(values[(number - values[0]) % len(values)]) for number in numbers)


def _explain(name: str, item: str) -> str:
    field, values, names = FIELDS[name]
    more = ", 1#2 for the second Monday, 5L for the last Friday" if name == "DOW" else ""
    return (
        f"'{item}' is no {field}: write {values[0]} to {values[-1]}{names}, a list, a range, a step"
        f" such as */2{more}"
    )
