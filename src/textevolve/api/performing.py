"""Runs a study for a verb: settings, store and driver, or the server that is to run it.

What verbs are made of is in `running.py`, which loads this with the first run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from textevolve.engine.collector import rare_collections
from textevolve.events import silence
from textevolve.settings import Settings, override_settings, read_settings, store_location
from textevolve.store.repository import open_store
from textevolve.studies import driver
from textevolve.studies.driver import Launch
from textevolve.studies.kinds import find_study
from textevolve.studies.study import StudySpec
from textevolve.wiring import take_limits

if TYPE_CHECKING:
    from textevolve.api.running import RunKeywords
    from textevolve.remote.runs import RemoteServer


async def perform(
    spec: StudySpec,
    cases: Iterable[Any] | None,
    found: dict[str, object],
    keywords: RunKeywords,
    *,
    ends: bool,
) -> AsyncGenerator[Any]:
    """The records of a study as they come. `cases`: those of the program; None: those that the
    specification names. `found`: objects of its own, by their names. `ends`: whether it is to the
    end that they are wanted."""
    study = find_study(spec.kind)
    if cases is not None and study.take is not None:
        cases = study.take(spec, cases)
    store = keywords.get("store")
    names = ("concurrency", "batch", "on")
    own = {name: given for name, given in keywords.items() if name in names and given is not None}
    settings = keywords.get("settings")
    if settings is None:
        settings, _ = read_settings({"model": spec.plain_model, "store": store, **own})
    elif own:
        settings = override_settings(settings, own)
    launch = Launch(
        name=keywords.get("name", ""),
        source="Python",
        limits=take_limits(keywords.get("limits")),
        time_limit=keywords.get("time_limit"),
        listener=keywords.get("listener", silence),
        objects=found,
        ordered=keywords.get("ordered", True),
        ends=ends,
    )
    if (there := _find_server(settings, keywords.get("server"))) is not None:
        told = await there.begin(study, spec, launch, cases)
        async with aclosing(there.follow(told, launch, again=ends)) as records:
            async for record in records:
                yield record
        return
    path = store_location(store or settings.store)
    settings = settings.model_copy(update={"store": path})  # memories are kept in the same file
    stored = await driver.specify(study, spec, settings, found)
    with rare_collections():
        async with open_store(path) as opened:
            given = driver.read_cases(study, spec, path, settings) if cases is None else cases
            run = driver.register_run(opened, study, stored, given, launch)
            async with aclosing(driver.perform(opened, run, settings, launch)) as records:
                async for record in records:
                    yield record


def _find_server(settings: Settings, named: str | None) -> RemoteServer | None:
    """The server that is to run it; None: it runs here, and nothing that asks servers is loaded."""
    if not (named or settings.server):
        return None
    from textevolve.remote.runs import remote_server

    return remote_server(settings, named)
