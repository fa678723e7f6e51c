"""Preparations of commands: opening the store, downloading models, and adjusting the garbage
collector."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from textevolve.agents.resources import split_name
from textevolve.engine.local import CALM
from textevolve.llm.catalogue import require_packages
from textevolve.settings import Settings, read_settings
from textevolve.store import Store


def calm_collector() -> None:
    """Make the garbage collector run less often, and exclude all existing objects from it."""
    gc.freeze()
    gc.set_threshold(*CALM)


def fetch_weights(names: Iterable[str], settings: Settings) -> None:
    """Download the missing weights of local models, with a progress bar. `names`: any models, of
    which those that begin with `local/` are local."""
    from textevolve.cli.models import draw_transfer, fetch

    local = [name.removeprefix("local/") for name in names if name.startswith("local/")]
    for name in local:
        require_packages(f"local/{name}")
    if local:
        with draw_transfer() as report:
            for name in local:
                fetch(name, settings, report)


@contextmanager
def open_named(
    store: str | None, name: str = "-", namespace: str | None = None
) -> Generator[tuple[Settings, Store, str, str]]:
    """Open the store; yield the settings, the store, and `name` split into its namespace and bare
    name. The namespace of the settings is created at its first use."""
    settings = read_settings(store=store)
    space, bare_name = split_name(name, namespace or settings.namespace)
    with Store(settings.memory_location) as resources:
        if space == settings.namespace:
            resources.ensure_namespace(space)
        yield settings, resources, space, bare_name
