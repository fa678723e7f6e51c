"""`textevolve config keys add|list|revoke`: who may ask a server that other machines can reach."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from textevolve.cli import options, say
from textevolve.cli.execution import open_named
from textevolve.cli.results import print_json, print_lines, print_list
from textevolve.cli.spec_options import read_given, takes
from textevolve.errors import InputError
from textevolve.report.wording import visible
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeySpec, StoredKey

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what it is for.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="How long it is valid, as 12h or 30d."),
]
UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@takes(KeySpec)
def add(
    name: KeyName,
    expires: Expires = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
    **given: Any,
) -> None:
    """Make a key. It is printed once, and cannot be shown again."""
    name, end = name.strip(), read_expiry(expires)
    if not name or not name.isprintable():
        raise InputError("the name of a key must not be empty, nor hold control characters")
    spec = KeySpec(**read_given(KeySpec, given))
    with open_named(store) as (_, resources, _space, _own):
        made, text = resources.write(stored_keys.add_key, name, spec, end)
    if as_json:
        print_json({**_describe(made), "key": text})
    else:
        say(f"made the key '{name}' ({_say_rights(made)}); it cannot be shown again:")
        typer.echo(text)


def list_keys(as_json: options.Json = False, store: options.StoreFile = None) -> None:
    """List all keys, also those that have ended."""
    with open_named(store) as (_, resources, _space, _own):
        keys = resources.read(stored_keys.list_keys)
    empty = "no keys; make one with: textevolve config keys add NAME"
    print_list(keys, _describe, print_lines(_describe_key), empty, as_json=as_json)


def _describe_key(key: StoredKey) -> str:
    used = f"last used {_say_time(key.used)}" if key.used else "never used"
    return f"{visible(key.name):20}  {_say_state(key)}, {used}\n  {key.id}  {_say_rights(key)}"


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name, or its id.")],
    store: options.StoreFile = None,
) -> None:
    """End a key at once, with the sessions of browsers that were begun with it."""
    with open_named(store) as (_, resources, _space, _own):
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
