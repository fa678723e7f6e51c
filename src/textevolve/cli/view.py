"""`textevolve view`: this machine's store in the browser, until Ctrl-C."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from textevolve.cli import options, say
from textevolve.errors import SettingsError
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

    No model and no set-up is needed. Ends with Ctrl-C.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise SettingsError("pages need more packages: pip install 'textevolve[server]'")
    from textevolve.server.viewing import show_pages

    settings, _ = read_settings({"store": store})
    path = "/runs"
    if run is not None:
        with open_store(settings.store) as opened:
            path = f"/runs/{opened.get_run(run).id}"
    told = f"shows {settings.store}; Ctrl-C ends it"
    show_pages(settings, path, port, lambda url: say(f"{url} {told}"), browser=browser)
