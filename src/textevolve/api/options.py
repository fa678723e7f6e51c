"""Settings, store and limits of a client, and what is closed with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from textevolve.engine.sync import KeptOpen
from textevolve.events import Listener, silence
from textevolve.settings import Settings, override_settings, read_settings

if TYPE_CHECKING:
    from textevolve.wiring import Limits

T = TypeVar("T")


class ClientOptions:
    """The options of a client, which hold for all that it does.

    `model`: for verbs that name none. `settings`: without them files and environment are read when
    a verb begins. `limits`: of money, tokens and calls, for each run. `time_limit`: in seconds, for
    each run. `concurrency`: calls in flight. `batch`: ask in batch jobs; each may take a
    day. `on`: the Ray cluster that cases are spread over, "ray" or ray://HOST:PORT; "none": this
    process. `server`: the address of a server that runs the studies; "none": this machine does,
    whatever the settings say. `listener`: hears each call, retry and step.
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
        self.model, self.limits, self.time_limit = model, limits, time_limit
        self.server, self.listener = server, listener
        self._settings = settings
        self._overrides = {name: value for name, value in values.items() if value is not None}
        self._open: WeakSet[KeptOpen[Any]] = WeakSet()

    def read_settings(self, model: str | None = None) -> Settings:
        """Read the settings, overridden by the client's own options.

        Raises:
            SettingsError: a file or a value cannot be used.
        """
        named = model or self.model
        overrides = {**self._overrides, **({"model": named} if named else {})}
        if self._settings is None:
            return read_settings(**overrides)
        return override_settings(self._settings, overrides) if overrides else self._settings

    def keep(self, opened: KeptOpen[T]) -> KeptOpen[T]:
        """Have something closed with the client."""
        self._open.add(opened)
        return opened

    def close(self) -> None:
        """Close what is open; what is asked meanwhile is ended."""
        for opened in list(self._open):
            opened.close()
