"""`textevolve view`: this machine's store in the browser, until its last tab is closed."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from typing import Annotated

import typer

from textevolve.cli import options, say
from textevolve.errors import SettingsError
from textevolve.server.options import ViewOptions
from textevolve.settings import read_settings
from textevolve.store import open_store


def view(
    run: Annotated[
        str | None, typer.Argument(help="The run's id, the start of it, its name, or 'last'.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser, or say the address.")
    ] = True,
    port: Annotated[int, typer.Option(help="The port; 0 is any free one.", min=0, max=65535)] = 0,
    store: options.StoreFile = None,
) -> None:
    """Look at runs in the browser: their matrix, cases with transcripts and prompts, reports.

    No model and no set-up is needed. Ends with Ctrl-C, or when the last tab is closed.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise SettingsError("pages need more packages: pip install 'textevolve[server]'")
    from textevolve.server.app import create_app
    from textevolve.server.listening import bind, make_server, serve_until, url_of
    from textevolve.server.pages.tabs import watch_tabs

    settings, _ = read_settings({"store": store})
    path = "/runs"
    if run is not None:
        with open_store(settings.store) as opened:
            path = f"/runs/{opened.get_run(run).id}"
    listener = bind("127.0.0.1", port)
    url = url_of(listener)

    def announce(_serving: object) -> None:
        say(f"{url}{path} shows {settings.store}; Ctrl-C ends it")
        if browser:
            webbrowser.open(f"{url}{path}")

    app = create_app(ViewOptions(port=port), settings, None, announce)
    server = make_server(app)
    watch_tabs(app, lambda: setattr(server, "should_exit", True))
    serve_until(server, app, listener)
