"""From a client's request to a run that is kept and wanted, or to what it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case, check_images
from textevolve.remote.wire import CasePart, ResumePart, RunPart
from textevolve.server.access import THIS_MACHINE, Caller, check_namespace
from textevolve.server.errors import ApiError
from textevolve.server.options import is_here
from textevolve.server.state import ServerState
from textevolve.settings import Settings
from textevolve.store import RunRecord
from textevolve.store.served import ServedRun
from textevolve.studies import driver
from textevolve.studies.driver import Launch
from textevolve.studies.study import AnyStudy, StudySpec
from textevolve.studies.study_file import read_study

RUN = "run"
"""The part of a request that says how a study is run."""


@dataclass(frozen=True, slots=True)
class AskedStudy:
    """A study that a client asks for, read. `served`: as it will be kept, still without a run."""

    study: AnyStudy
    spec: StudySpec
    part: RunPart
    served: ServedRun
    settings: Settings


async def read_asked(server: ServerState, caller: Caller, given: Mapping[str, Any]) -> AskedStudy:
    """
    Raises:
        InputError: something in it cannot be used. ApiError: a namespace is not the caller's.
    """
    part = read_part(given.get(RUN, {}))
    namespace = choose_namespace(server, caller, part.namespace)
    sent = await asyncio.to_thread(server.runner.uploads.keep, part.files)
    launch = part.model_dump(mode="json", exclude={"files", "namespace", "cases"})
    launch |= {"files": sent, **_standing(server, caller)}
    served = ServedRun("", namespace, caller.key, time.time(), "running", launch)
    settings = server.runner.settings_of(served)
    with server.runner.confine(served):
        fields = {name: value for name, value in given.items() if name != RUN}
        study, spec = await asyncio.to_thread(read_study, fields)
    return AskedStudy(study, spec, part, served, settings)


def _standing(server: ServerState, caller: Caller) -> dict[str, Any]:
    """What a caller may name, as a run keeps it."""
    open_here = server.options.key_env is None and is_here(server.options.host)
    seen = None if caller.namespaces is None else sorted(caller.namespaces)
    return {"namespaces": seen, "trusted": open_here and caller == THIS_MACHINE}


def read_part(part: object) -> RunPart:
    """How the study is run, as the client says.

    Raises:
        InputError: something in it cannot be used.
    """
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


async def begin(server: ServerState, asked: AskedStudy) -> tuple[RunRecord, int]:
    """Keep a study as a run that is wanted, and have it worked on; the status of the answer: 201:
    it is new; 202: it is worked on; 200: it is finished.

    Raises:
        InputError: a judge or a file cannot be used. SettingsError: a model cannot be had.
    """
    began = time.time()
    with server.runner.confine(asked.served):
        stored = await driver.specify(asked.study, asked.spec, asked.settings, {})
        if asked.served.namespace != server.settings.namespace:  # there it is another run
            described = {**stored.described, "namespace": asked.served.namespace}
            stored = stored.model_copy(update={"described": described})
        cases, launch = _read_cases(server, asked), Launch(name=asked.part.name, source="HTTP")
        register = partial(driver.register_run, server.store, asked.study, stored, cases, launch)
        run = await asyncio.to_thread(register)
    served, store = replace(asked.served, run_id=run.id), server.store
    if run.status == "finished":  # one that the command line has finished is the client's now, too
        if await asyncio.to_thread(store.get_served, run.id) is None:
            await asyncio.to_thread(store.serve_run, served)
        return run, 200
    if not await server.runner.is_busy(run.id):
        await asyncio.to_thread(store.serve_run, served)
        server.runner.submit(run.id)
    return run, 201 if run.created >= began else 202


def _read_cases(server: ServerState, asked: AskedStudy) -> Iterable[Case]:
    """Those that were sent, or those that the specification names."""
    if asked.part.cases is not None:
        return map(_read_case, asked.part.cases)
    return driver.read_cases(asked.study, asked.spec, asked.settings)


def _read_case(sent: CasePart) -> Case:
    """
    Raises:
        InputError: what it has for images are none.
    """
    case = Case(**dict(sent))
    if case.images or case.candidate_images:
        check_images(case)
    return case


async def resume(server: ServerState, caller: Caller, served: ServedRun, part: ResumePart) -> None:
    """Go on with a run as the caller's, by other limits where they are given."""
    changed = part.model_dump(mode="json", exclude_none=True) | _standing(server, caller)
    launch = {**served.launch, **changed}
    again = replace(served, key_id=caller.key, wanted="running", launch=launch, reason="")
    await asyncio.to_thread(server.store.serve_run, again)
    server.runner.submit(served.run_id)
