"""The store: all data that outlive the process, such as runs and the journal of model calls.

    from textevolve.store import open_store

    async with open_store(settings.store) as store:
        run = store.find_run(fingerprint) or store.create_run(spec, fingerprint, name, source)
        with store.lease(run.id):
            if run.n_cases is None:
                store.add_cases(run.id, cases)
            model = Journalled(model, store.journal(run.id))
            ...
            store.finish_run(run.id, "finished")

A run consists of its cases and calls. Its results are recomputed from the journal when they are
shown, exported or resumed. The database library is imported when a name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textevolve.store.journal import StoredCall, StoreJournal
    from textevolve.store.repository import Store, open_store
    from textevolve.store.runs import Freed, RunRecord, RunStatus, RunTotals

__all__ = [
    "Freed",
    "RunRecord",
    "RunStatus",
    "RunTotals",
    "Store",
    "StoreJournal",
    "StoredCall",
    "open_store",
]

_HOMES = {
    "Freed": "runs",
    "RunRecord": "runs",
    "RunTotals": "runs",
    "RunStatus": "runs",
    "Store": "repository",
    "StoreJournal": "journal",
    "StoredCall": "journal",
    "open_store": "repository",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
