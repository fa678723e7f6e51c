"""Preparations of commands: the store is opened, models are fetched, the collector is calmed."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from textevolve.agents.resources import split_name
from textevolve.engine.collector import CALM
from textevolve.llm.catalogue import require_packages
from textevolve.settings import Settings, read_settings
from textevolve.store import Store

if TYPE_CHECKING:
    from textevolve.store.runs import RunRecord


def calm_collector() -> None:
    """Let Python look for garbage less often, from now on and not among what is there already."""
    gc.freeze()
    gc.set_threshold(*CALM)


def fetch_models(names: Iterable[str], run: RunRecord, settings: Settings) -> None:
    """Fetch what the models of a run lack, unless it has asked all that it will."""
    if run.status != "finished":
        fetch_weights(names, settings)


def fetch_weights(names: Iterable[str], settings: Settings) -> None:
    """Fetch what models lack, by their specs, with a progress bar, before anything else is drawn;
    those that are not local need nothing."""
    from textevolve.cli.models import draw_transfer
    from textevolve.llm.weights import fetch

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
    """Open the store, with the namespace and the bare name of what a command names. The namespace
    of the settings is created with its first use."""
    settings = read_settings(store=store)
    space, own = split_name(name, namespace or settings.namespace)
    with closing(Store(settings.memory_location)) as resources:
        if space == settings.namespace:
            resources.ensure_namespace(space)
        yield settings, resources, space, own
