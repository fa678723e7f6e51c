"""Shows this machine's store in a browser, until Ctrl-C."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable

from textevolve.server.app import create_app
from textevolve.server.listening import bind, listen, url_of
from textevolve.server.options import ViewOptions
from textevolve.settings import Settings


def show_pages(
    settings: Settings, path: str, port: int, announce: Callable[[str], None], *, browser: bool
) -> None:
    """Serves the pages on loopback and opens the one at `path`; `announce` is told its address.

    Raises:
        SettingsError: the port is taken.
    """
    listener = bind("127.0.0.1", port)
    address = f"{url_of(listener)}{path}"

    def open_browser(_serving: object) -> None:
        announce(address)
        if browser:
            webbrowser.open(address)

    app = create_app(ViewOptions(port=port), settings, None, open_browser)
    listen(app, listener)
