"""`textevolve config keys add|list|revoke`: who may ask a server that other machines can reach."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from textevolve.cli import options, say
from textevolve.cli.results import print_json
from textevolve.cli.spec_options import give_parameters, keyword, parameters_of, read_given
from textevolve.errors import InputError
from textevolve.report.wording import visible
from textevolve.settings import Settings, read_settings
from textevolve.store import Store
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeySpec, StoredKey

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what it is for.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="How long it is valid, as 12h or 30d."),
]
UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def add(**given: Any) -> None:
    """Make a key. It is printed once, and cannot be shown again."""
    name, expires = given["name"].strip(), read_expiry(given["expires"])
    if not name or not name.isprintable():
        raise InputError("the name of a key must not be empty, nor hold control characters")
    spec = KeySpec(**read_given(KeySpec, given))
    with _open(given["store"]) as (settings, resources):
        for one in spec.namespaces:
            if one == settings.namespace:
                resources.ensure_namespace(one)
        made, text = resources.write(stored_keys.add_key, name, spec, expires)
    if given["as_json"]:
        print_json({**_describe(made), "key": text})
        return
    say(f"made the key '{name}' ({_say_rights(made)}); it cannot be shown again:")
    typer.echo(text)


_own = [keyword("name", KeyName, ...), keyword("expires", Expires), *parameters_of(KeySpec)]
_shared = [keyword("as_json", options.Json, False), keyword("store", options.StoreFile)]
give_parameters(add, [*_own, *_shared])


def list_keys(as_json: options.Json = False, store: options.StoreFile = None) -> None:
    """List all keys, also those that have ended."""
    with _open(store) as (_, resources):
        found = resources.read(stored_keys.list_keys)
    if not found and not as_json:
        typer.echo("no keys; make one with: textevolve config keys add NAME")
    for one in found:
        if as_json:
            print_json(_describe(one))
        else:
            used = f"last used {_say_time(one.used)}" if one.used else "never used"
            typer.echo(f"{visible(one.name):20}  {_say_state(one)}, {used}")
            typer.echo(f"  {one.id}  {_say_rights(one)}")


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name, or its id.")],
    store: options.StoreFile = None,
) -> None:
    """End a key at once, with the sessions of browsers that were begun with it."""
    with _open(store) as (_, resources):
        found = resources.write(stored_keys.revoke_key, name)
    typer.echo(f"the key '{visible(found.name)}' ({found.id}) is revoked")


def read_expiry(given: str | None) -> float | None:
    """When a key ends, in seconds since 1970.

    Raises:
        InputError: this is no time.
    """
    if given is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", given.strip())
    if match is None:
        raise InputError(f"--expires: give a number of m, h, d or w, such as 30d, not '{given}'")
    return time.time() + int(match[1]) * UNITS[match[2]]


def _describe(key: StoredKey) -> dict[str, Any]:
    return {**asdict(key), "spec": key.spec.model_dump(), "live": key.live}


def _say_rights(key: StoredKey) -> str:
    limits = key.spec.limits.model_dump(exclude_none=True)
    told = [f"{value:,} {name.replace('_', ' ')}" for name, value in limits.items()]
    where = ", ".join(key.spec.namespaces) or "all namespaces"
    return "; ".join([" ".join(key.spec.scopes), where, *told])


def _say_state(key: StoredKey) -> str:
    if key.revoked is not None:
        return f"revoked {_say_time(key.revoked)}"
    if key.expires is None:
        return "valid until it is revoked"
    return f"{'valid until' if key.live else 'expired'} {_say_time(key.expires)}"


def _say_time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


@contextmanager
def _open(store: Any) -> Generator[tuple[Settings, Store]]:
    settings, _ = read_settings({"store": store})
    with closing(Store(settings.memory_location)) as resources:
        yield settings, resources
