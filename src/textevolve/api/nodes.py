"""Judges that stay open, for evaluators of nodes, and keeping what a monitor has watched."""

from __future__ import annotations

from pathlib import Path

from textevolve.api.persistent_judge import PersistentJudge
from textevolve.engine import sync
from textevolve.node_eval.episodes import split_history
from textevolve.node_eval.history import History
from textevolve.settings import Settings, read_settings, store_location
from textevolve.store.repository import open_store
from textevolve.studies import driver
from textevolve.studies.nodes import STUDY, NodesSpec, node_cases
from textevolve.wiring import Limits


def judge(
    spec: str,
    *,
    model: str | None = None,
    store: str | Path | None = None,
    settings: Settings | None = None,
    limits: Limits = Limits(),
) -> PersistentJudge:
    """An evaluator by its spec, such as "probe+rules", that can be awaited on any thread and loop.

    It is opened with its first case, and stays open until `close`: use `with`, or leave it to the
    end of the program. What it is asked is kept in the store; the same again costs nothing.

    Raises:
        InputError: there is no such judge, or it only compares texts with each other.
    """
    settings = settings or read_settings({"model": model, "store": store})[0]
    return PersistentJudge(
        spec, settings, store_location(store or settings.store), model=model, limits=limits
    )


def keep_history(
    history: History,
    *,
    name: str = "",
    episode: str = "",
    store: str | Path | None = None,
    settings: Settings | None = None,
) -> str:
    """Keep the history of a monitor as a run of the store, with what its evaluators have said so
    far; gives its id, for `textevolve runs show`. Each run of the agent is an episode under its own
    id, or `episode`, in it. The same history again is the same run. Drain the monitor first.

    Raises:
        InputError: no node has run. StoreError: it cannot be kept.
    """
    settings = settings or read_settings({"store": store})[0]
    launch = driver.Launch(name=name, source="Python")
    with open_store(store_location(store or settings.store)) as opened:
        stored = sync.run(driver.specify(STUDY, NodesSpec(), settings))
        cases = node_cases(split_history(history, episode))
        run = driver.register_run(opened, STUDY, stored, cases, launch)
        for _ in sync.iterate(driver.perform(opened, run, settings, launch)):
            pass
    return run.id
