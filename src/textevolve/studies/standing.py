"""Standing runs: runs without cases to finish. They store the calls of a server, a chat or a judge
in a Python program, so that these calls are journaled, priced and limited like all others.

Each opening is a new run, since only one process may work on a run. Answers that earlier runs have
stored in the journal are used.
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
"""The caller: a judge in a Python program (`metric`), a server, work on memories, a chat, or chains
in a Python program."""
# All values of `StandingKind`.
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
    """Open the workbench (models and judges) of a new run in the store of the settings, where all
    its calls are stored. `spec`: the description of the run; `source`: the caller. The run is
    marked finished at the end, even after an error.

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
