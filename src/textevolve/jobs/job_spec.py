"""The specification of a job: a study, its schedule, its retries and its limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import model_validator

from textevolve.agents.resources import ResourceName
from textevolve.errors import InputError
from textevolve.rows import names_rows
from textevolve.rows.hub import PREFIX
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
