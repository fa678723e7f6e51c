"""Studies that run on a server, and are shown on the command line like local ones.

`working.execute` shows and writes the results; this module passes it the work on the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from textevolve.cli.working import execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.remote.runs import MirrorStore, RemoteServer
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.driver import Launch
from textevolve.studies.study import AnyStudy, StudySpec

if TYPE_CHECKING:
    from textevolve.cli.study import RunOptions


def run_there(
    server: RemoteServer, study: AnyStudy, spec: StudySpec, launch: Launch, run_options: RunOptions
) -> int:
    """Run a study on a server, follow it to its end, and show and write its results; return the
    exit code."""
    if run_options.dry_run:
        raise InputError("--dry-run estimates the calls of this machine alone; add --server none")
    detail = sync.run(server.begin(study, spec, launch))
    with MirrorStore(server.address) as store:

        def work(
            mirror: Store, _run: RunRecord, _settings: Settings, launch: Launch
        ) -> AsyncGenerator[Any]:
            assert isinstance(mirror, MirrorStore)
            return server.follow(detail, launch, mirror)

        return execute(store, store.take_run(detail), server.settings, launch, run_options, work)
