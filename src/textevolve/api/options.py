"""The options of a client, and the list of objects that are closed together with the client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from textevolve.engine.sync import KeptOpen
from textevolve.events import Listener, silence
from textevolve.mappings import drop_none
from textevolve.settings import Settings, override_settings, read_settings

if TYPE_CHECKING:
    from textevolve.wiring import Limits

T = TypeVar("T")


class ClientOptions:
    """The options of a client, which apply to all its calls.

    Args:
        model: The spec of the model for verbs that name none.
        store: The file or postgresql:// address of the store; None: that of the settings.
        settings: The settings to use; None: each verb reads files and environment variables.
        limits: The most money, tokens and calls of each run.
        time_limit: The most seconds of each run.
        concurrency: The number of model calls in flight.
        batch: Send calls as batch jobs, which may take a day each.
        on: The Ray cluster that runs the cases, "ray" or ray://HOST:PORT; "none": this process.
        server: The address of a server that runs the studies; "none": this machine, whatever the
            settings say.
        listener: A function that is called with each event (calls, retries, steps).
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        store: str | Path | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        concurrency: int | None = None,
        batch: bool | None = None,
        on: str | None = None,
        listener: Listener = silence,
        server: str | None = None,
        time_limit: float | None = None,
    ) -> None:
        values = {"store": store, "concurrency": concurrency, "batch": batch, "on": on}
        self.model = model
        self.limits = limits
        self.time_limit = time_limit
        self.server = server
        self.listener = listener
        self._settings = settings
        self._overrides = drop_none(values)
        self._open: WeakSet[KeptOpen[Any]] = WeakSet()

    def read_settings(self, model: str | None = None) -> Settings:
        """Read the settings, overridden by the client's own options.

        Raises:
            SettingsError: a file or a value cannot be used.
        """
        model_name = model or self.model
        overrides = dict(self._overrides)
        if model_name:
            overrides["model"] = model_name

        if self._settings is None:
            return read_settings(**overrides)

        return override_settings(self._settings, overrides) if overrides else self._settings

    def keep(self, opened: KeptOpen[T]) -> KeptOpen[T]:
        """Register an object that is closed together with the client, and return it."""
        self._open.add(opened)
        return opened

    def close(self) -> None:
        """Close all objects that are open; their calls in flight are cancelled."""
        for opened in list(self._open):
            opened.close()
