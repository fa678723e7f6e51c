"""Runs that have no cases to finish: they store the calls of a server, a chat or a judge in a
Python program, so that these calls are journaled, priced and limited like all others.

Each opening is a run of its own, since only one process may work on a run; the journal also has the
answers of earlier runs.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from textevolve import store as stores
from textevolve.evaluation import Case
from textevolve.events import Listener, silence
from textevolve.settings import Settings
from textevolve.wiring import Limits, Setting, Workbench, open_workbench

StandingKind: TypeAlias = Literal["metric", "server", "memory", "chat", "chains"]
"""The caller: a judge in a Python program, a server, work on memories, a chat, or chains in a
Python program."""
STANDING: tuple[str, ...] = ("metric", "server", "memory", "chat", "chains")


@asynccontextmanager
async def open_standing_run(
    kind: StandingKind,
    spec: Mapping[str, Any],
    setting: Setting,
    settings: Settings,
    *,
    source: str,
    cases: Sequence[Case] = (),
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[Workbench]:
    """Open a workbench whose calls are stored, at the store of the settings, as a run that `spec`
    describes and `source` started. The run is marked finished, even after an error.

    Raises:
        StoreError: the store cannot be used.
    """
    with stores.open_store(settings.store) as store:
        run = store.create_run(
            {"kind": kind, **spec}, f"{kind}-{secrets.token_hex(16)}", "", source
        )
        store.add_cases(run.id, cases)
        with store.lease(run.id):
            try:
                async with open_workbench(
                    setting, settings, store.journal(run.id), limits, listener
                ) as bench:
                    yield bench
            finally:
                store.finish_run(run.id, "finished")
