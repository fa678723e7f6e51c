"""The commands `serve`, which answers other programs over HTTP, and `view`, for a local browser."""

from __future__ import annotations

import asyncio
import os
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textevolve.cli import options as shared
from textevolve.cli import process, say
from textevolve.cli.results import fetch_weights
from textevolve.cli.spec_options import parameters_of, read_given
from textevolve.cli.study import shape_command
from textevolve.errors import SettingsError
from textevolve.server.options import (
    McpOptions,
    ServerOptions,
    ViewOptions,
    find_client_key,
    is_here,
)
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import Store, open_store
from textevolve.wiring import choose_model

if TYPE_CHECKING:
    from textevolve.server.decisions.serving import Serving


def _serve(**values: Any) -> None:
    _listen(ServerOptions(**read_given(ServerOptions, values)))


def _listen(options: ServerOptions, open_mcp: Any = None) -> None:
    """Serve until a signal arrives. `open_mcp`: as for `create_app`."""
    key = find_client_key(options)
    app = _load_app("a server needs")
    settings = read_settings(store=options.store)
    with Store(settings.memory_location) as resources:
        app.require_keys(options, resources, key)
    fetch_weights(_find_models(options, settings), settings)
    listener = app.bind(options.host, options.port)
    url = app.url_of(listener)

    def announce(serving: Serving) -> None:
        _announce(serving, url)

    app.listen(app.create_app(options, settings, key, announce, open_mcp), listener)


def _load_app(subject: str):  # the type of a module has no name
    """Import the server.

    Raises:
        SettingsError: its packages are not installed; `subject` begins the message.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise SettingsError(f"{subject} more packages: pip install 'textevolve[server]'")
    import textevolve.server.app as app

    return app


def _find_models(options: ServerOptions, settings: Settings) -> list[str]:
    """Return the models that the options name, or else the default model; empty if none is
    available."""
    judge_model_names = [name for judge in options.judge for name in judge.models(None) if name]
    models = [*options.model, *judge_model_names]
    if models:
        return models
    with suppress(SettingsError):  # a missing model is reported when it is opened
        return [asyncio.run(choose_model(settings, None))[0]]

    return []


def _announce(serving: Serving, url: str) -> None:
    say(f"listening on {url}, serving {', '.join(serving.deciders) or 'no model'}")
    for alias, served in serving.aliases.items():
        say(f"  {alias} is {served}")
    say(f"  pages: {url}/runs")
    say(_describe_protection(serving.options))


def _describe_protection(options: ServerOptions) -> str:
    if options.keys or options.key_env or not is_here(options.host):
        return "  everyone needs a key (textevolve config keys); browsers log in at /login"
    return "  only this machine has access, without a key; --keys requires a key here, too"


_serve.__name__ = "serve"
_serve.__doc__ = ServerOptions.__doc__
serve = shape_command(_serve, parameters_of(ServerOptions), ())


def _mcp(**values: Any) -> None:
    options = McpOptions(**read_given(McpOptions, values))
    if find_spec("mcp") is None:
        raise SettingsError("MCP needs more packages: pip install 'textevolve[mcp]'")
    from textevolve.server.mcp import open_mcp, run_stdio

    if options.http:
        _listen(options, open_mcp)
        return
    settings = read_settings(store=options.store)
    fetch_weights(_find_models(options, settings), settings)
    try:
        asyncio.run(run_stdio(options, settings))
    except KeyboardInterrupt:
        say("stopped")
        # A thread still waits for standard input, and the end of the interpreter for that thread.
        os._exit(process.TERMINATED if process.state.terminated else process.INTERRUPTED)


_mcp.__name__ = "mcp"
_mcp.__doc__ = McpOptions.__doc__
mcp = shape_command(_mcp, parameters_of(McpOptions), ())


def view(
    run: Annotated[
        str | None,
        typer.Argument(help="The run's id, the start or end of it, its name, or 'last'."),
    ] = None,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser",
            help="Open the page in the browser; --no-browser only prints its address.",
        ),
    ] = True,
    port: Annotated[int, typer.Option(help="The port; 0 is any free one.", min=0, max=65535)] = 0,
    store: shared.StoreFile = None,
) -> None:
    """Look at runs in the browser: their matrix, cases with transcripts and prompts, reports.

    No model and no set-up is needed. Ends with Ctrl-C.
    """
    app = _load_app("pages need")
    settings = read_settings(store=store)
    path = "/runs"
    if run is not None:
        with open_store(settings.store) as opened:
            path = f"/runs/{opened.get_run(run).id}"
    listener = app.bind("127.0.0.1", port)
    address = app.url_of(listener) + path

    def open_page(_serving: Serving) -> None:
        say(f"{address} shows {settings.store}; Ctrl-C ends it")
        if browser:
            webbrowser.open(address)

    app.listen(app.create_app(ViewOptions(port=port), settings, ready=open_page), listener)
