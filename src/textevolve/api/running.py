"""Run a study for a client: on this machine, or on the server that the client or the settings name.

Clients import this module with their first run, since it imports the engine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from textevolve.api.options import ClientOptions
from textevolve.loading import rare_collections
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.study import StudySpec, find_study
from textevolve.store.repository import open_store
from textevolve.store.runs import RunRecord
from textevolve.wiring import take_limits


@asynccontextmanager
async def open_run(
    client: ClientOptions,
    spec: StudySpec,
    cases: Iterable[Any] | None,
    objects: dict[str, object],
    *,
    name: str,
    ordered: bool,
    ends: bool,
) -> AsyncGenerator[tuple[RunRecord, AsyncGenerator[Any]]]:
    """Open the run of a study, with its records as they are made. `cases`: cases from the program;
    None: the cases that the specification names. `ordered`: in the order of the cases. `ends`: the
    caller reads all records at once."""
    study = find_study(spec.kind)
    if cases is not None and study.take is not None:
        cases = study.take(spec, cases, objects)
    settings = client.read_settings(spec.plain_model)
    launch = Launch(
        name=name,
        source="Python",
        limits=take_limits(client.limits),
        time_limit=client.time_limit,
        listener=client.listener,
        objects=objects,
        ordered=ordered,
        ends=ends,
    )

    if client.server or settings.server:  # only then is code for servers imported
        from textevolve.remote.runs import record_of, remote_server

        if (server := remote_server(settings, client.server)) is not None:
            remote = await server.begin(spec, launch, cases)
            run = record_of(remote, server.address)
            async with aclosing(server.follow(remote, launch, again=ends)) as records:
                yield run, records
            return

    plan = await driver.plan_run(spec, settings, launch, cases)

    with rare_collections():
        async with open_store(settings.store) as store:
            run = plan.register(store)
            async with aclosing(driver.perform(store, run, settings, plan.launch)) as records:
                yield run.record, records
