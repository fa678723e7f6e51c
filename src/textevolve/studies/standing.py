"""Runs without an end of their own: what a server, a chat or a judge between calls asks is kept in
one, so that it is journaled, priced and limited like everything else.

Each opening is a run of its own, since only one process may work on a run; answers of earlier ones
are found in the journal all the same.
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
"""What asks: a judge between calls, a server, somebody who works on memories, a chat, or chains
between calls."""
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
    """A workbench whose calls are kept in the store of the settings as a run that `spec` describes
    and `source` began. However it ends, the run has done all that it could.

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
