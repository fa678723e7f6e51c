"""Studies that run at a server, on the command line: begun there, and shown here as if they ran
here.

Everything but the work itself is done by `working.execute`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from textevolve.cli import say
from textevolve.cli.working import execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.remote.mirror import MirrorStore
from textevolve.remote.runs import RemoteServer
from textevolve.remote.wire import RunDetail
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.driver import Launch
from textevolve.studies.kinds import find_study
from textevolve.studies.study import AnyStudy, StudySpec

if TYPE_CHECKING:
    from textevolve.cli.study import RunOptions


def run_there(
    server: RemoteServer, study: AnyStudy, spec: StudySpec, launch: Launch, wanted: RunOptions
) -> int:
    """Run a study at a server; the exit code."""
    if wanted.dry_run:
        raise InputError("--dry-run: estimates what this machine would ask; give --server none")
    return watch_run(server, sync.run(server.begin(study, spec, launch)), launch, wanted)


def watch_run(server: RemoteServer, told: RunDetail, launch: Launch, wanted: RunOptions) -> int:
    """Follow a run to its end, show and write what was found; the exit code."""
    study = find_study(told.kind)
    with MirrorStore(server.address) as store:
        run = store.take_run(told)
        which = wanted.gates.no_worse_than
        if which is not None and which not in study.variants(study.spec(**told.spec), told.model):
            sync.run(server.fetch_baseline(told.kind, which, told.id, store))

        def work(
            mirror: Store, _run: RunRecord, _settings: Settings, launch: Launch
        ) -> AsyncGenerator[Any]:
            assert isinstance(mirror, MirrorStore)
            return server.follow(told, launch, mirror)

        return execute(store, run, server.settings, launch, wanted, work)


def fetch_run(server: RemoteServer, which: str) -> MirrorStore:
    """A run of a server with all its records, in a store of its own."""
    store = MirrorStore(server.address)
    try:
        run = sync.run(server.fetch(which, store))
    except BaseException:
        store.close()
        raise
    if run.status != "finished":
        say(f"run {run.id}: is not finished; its figures are of what there is so far")
    return store
