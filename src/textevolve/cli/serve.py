"""`textevolve serve`: judges and models answer other programs over HTTP."""

from __future__ import annotations

import json
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from textevolve.cli import say
from textevolve.cli.execution import calm_collector, fetch_weights
from textevolve.cli.spec_options import parameters_of, read_given
from textevolve.cli.study import shape_command
from textevolve.errors import SettingsError
from textevolve.judge_specs import judge_models
from textevolve.server.options import ServerOptions, find_client_key, is_here, require_keys
from textevolve.settings import read_settings
from textevolve.store import ResourceStore

if TYPE_CHECKING:
    from textevolve.server.decisions.serving import Serving

EXAMPLE = {
    "model": "jev-latest",
    "state": {"input": "What is 2 + 2?", "output": "4"},
    "questions": {"right": {"type": "noul", "instructions": "Is the output right?"}},
}


def _serve(**given: Any) -> None:
    options = ServerOptions(**read_given(ServerOptions, given))
    key = find_client_key(options)
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise SettingsError("a server needs more packages: pip install 'textevolve[server]'")
    from textevolve.server.app import create_app
    from textevolve.server.listening import bind, listen, url_of

    settings, _ = read_settings({"store": options.store})
    with closing(ResourceStore(settings.memory_location)) as resources:
        require_keys(options, resources, key)
    asked = [name for judge in options.judge for name in judge_models(judge, None) if name]
    fetch_weights([*options.model, *asked], settings)
    listener = bind(options.host, options.port)
    url = url_of(listener)
    calm_collector()
    listen(create_app(options, settings, key, lambda serving: _announce(serving, url)), listener)


def _announce(serving: Serving, url: str) -> None:
    say(f"listening on {url}, serving {', '.join(serving.deciders)}")
    for alias, served in serving.aliases.items():
        say(f"  {alias} is {served}")
    say(_say_protection(serving.options))
    key = serving.options.key_env
    header = f' -H "Authorization: Bearer ${key}"' if key else ""
    say(
        f"try: curl {url}/v1/systemone -H 'Content-Type: application/json'{header}"
        f" -d '{json.dumps(EXAMPLE)}'"
    )


def _say_protection(options: ServerOptions) -> str:
    if options.keys or options.key_env or not is_here(options.host):
        return "  everyone needs a key (textevolve keys); browsers log in at /login"
    return "  this machine alone is answered, without a key; --keys asks for one here too"


_serve.__name__, _serve.__doc__ = "serve", ServerOptions.__doc__
serve = shape_command(_serve, parameters_of(ServerOptions), ())
