"""From a client's request to a run that is kept and wanted, or to what it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.reach import confine
from textevolve.server.access import Caller, check_namespace
from textevolve.server.errors import ApiError
from textevolve.server.state import ServerState
from textevolve.server.studies.confinement import files_folder, reach_of
from textevolve.server.studies.uploads import keep_files
from textevolve.server.studies.wire import ResumePart, RunPart
from textevolve.settings import Settings
from textevolve.store import RunRecord
from textevolve.store.served import ServedRun
from textevolve.studies import driver
from textevolve.studies.driver import Launch, StoredSpec
from textevolve.studies.earlier import find_earlier
from textevolve.studies.rehearsal import forecast
from textevolve.studies.reporting import estimate_data
from textevolve.studies.study import AnyStudy, StudySpec
from textevolve.studies.study_file import read_study

RUN = "run"
"""The part of a request that says how a study is run."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A study that a client asks for, read. `served`: as it will be kept, still without a run."""

    study: AnyStudy
    spec: StudySpec
    part: RunPart
    served: ServedRun
    settings: Settings


async def read_asked(server: ServerState, caller: Caller, given: Mapping[str, Any]) -> Asked:
    """
    Raises:
        InputError: something in it cannot be used. ApiError: a namespace is not the caller's.
    """
    part = read_part(given)
    namespace = choose_namespace(server, caller, part.namespace)
    folder = files_folder(server.store.path)
    sent = await asyncio.to_thread(keep_files, folder, part.files)
    seen = None if caller.namespaces is None else sorted(caller.namespaces)
    launch = part.model_dump(mode="json", exclude={"files", "namespace"})
    launch |= {"files": sent, "namespaces": seen}
    served = ServedRun("", namespace, caller.key, time.time(), "running", launch)
    settings = server.runner.settings_of(served)
    with confine(reach_of(served, server.options, server.runner.settings, server.store)):
        fields = {name: value for name, value in given.items() if name != RUN}
        study, spec = await asyncio.to_thread(read_study, fields)
    return Asked(study, spec, part, served, settings)


def read_part(given: Mapping[str, Any]) -> RunPart:
    """How the study is run, as the client says.

    Raises:
        InputError: something in it cannot be used.
    """
    part = given.get(RUN, {})
    if not isinstance(part, dict):
        raise InputError(f"{RUN}: must be an object")
    try:
        return RunPart(**cast("dict[str, Any]", part))
    except InputError as error:
        raise InputError(f"{RUN}: {error}") from None


def choose_namespace(server: ServerState, caller: Caller, named: str | None) -> str:
    """The one that is named, or that of the settings, or the caller's only one.

    Raises:
        ApiError: the caller does not see it, or has to say which.
    """
    if named is not None:
        check_namespace(caller, named)
        return named
    if caller.sees(server.settings.namespace):
        return server.settings.namespace
    seen = sorted(caller.namespaces or ())
    if len(seen) != 1:
        said = f"name a namespace in run.namespace, one of: {', '.join(seen) or 'none'}"
        raise ApiError(400, "invalid_request", said)
    return seen[0]


async def begin(server: ServerState, asked: Asked) -> tuple[RunRecord, int]:
    """Keep a study as a run that is wanted, and have it worked on; the status of the answer: 201:
    it is new; 202: it is worked on; 200: it is finished.

    Raises:
        InputError: a judge or a file cannot be used. SettingsError: a model cannot be had.
    """
    began = time.time()
    with confine(reach_of(asked.served, server.options, server.runner.settings, server.store)):
        objects: dict[str, object] = {}
        stored = await driver.specify(asked.study, asked.spec, asked.settings, objects)
        stored = _of_namespace(stored, asked, server)
        run = await asyncio.to_thread(_register, server, asked, stored)
    if run.status == "finished":
        await asyncio.to_thread(_adopt, server, asked, run)
        return run, 200
    if not server.runner.works_on(run.id):
        await asyncio.to_thread(_keep, server, asked, run)
        server.runner.submit(run.id)
    return run, 201 if run.created >= began else 202


def _of_namespace(stored: StoredSpec, asked: Asked, server: ServerState) -> StoredSpec:
    """The same study in another namespace is another run; in that of the settings it is the one
    that the command line makes."""
    if asked.served.namespace == server.settings.namespace:
        return stored
    described = {**stored.described, "namespace": asked.served.namespace}
    return stored.model_copy(update={"described": described})


def _register(server: ServerState, asked: Asked, stored: StoredSpec) -> RunRecord:
    cases = driver.read_cases(asked.study, asked.spec, server.store.path, asked.settings)
    launch = Launch(name=asked.part.name, source="HTTP")
    return driver.register_run(server.store, asked.study, stored, cases, launch)


def _keep(server: ServerState, asked: Asked, run: RunRecord) -> None:
    made = asked.served
    server.store.serve_run(
        ServedRun(run.id, made.namespace, made.key_id, made.created, "running", made.launch)
    )


def _adopt(server: ServerState, asked: Asked, run: RunRecord) -> None:
    """A run that the command line has finished is the client's from now on, too."""
    if server.store.get_served(run.id) is None:
        _keep(server, asked, run)


async def estimate(server: ServerState, asked: Asked) -> dict[str, Any]:
    """What a study may take, as JSON-ready data; nothing is asked."""
    with confine(reach_of(asked.served, server.options, server.runner.settings, server.store)):
        stored = await driver.specify(
            asked.study, asked.spec, asked.settings, {}, asks_models=False
        )
        cases = await asyncio.to_thread(partial(_read_cases, server, asked))
        earlier = await asyncio.to_thread(find_earlier, asked.study, stored, asked.settings)
        found = await forecast(asked.study, stored, cases, asked.settings, earlier)
    return estimate_data(found, stored)


def _read_cases(server: ServerState, asked: Asked) -> list[Case]:
    return list(driver.read_cases(asked.study, asked.spec, server.store.path, asked.settings))


async def resume(server: ServerState, run: RunRecord, served: ServedRun, part: ResumePart) -> None:
    """Go on with a run, by other limits where they are given."""
    changed = part.model_dump(mode="json", exclude_none=True)
    again = ServedRun(
        *(run.id, served.namespace, served.key_id, served.created, "running"),
        {**served.launch, **changed},
    )
    await asyncio.to_thread(server.store.serve_run, again)
    server.runner.submit(run.id)
