"""`textevolve config`: the current settings and their sources, keys, and the store."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.addresses import hide_secrets
from textevolve.cli import PARTLY, options, say
from textevolve.cli.results import open_named, print_json, print_lines, print_list
from textevolve.cli.spec_options import read_given, takes
from textevolve.errors import InputError
from textevolve.report.wording import moment, visible
from textevolve.settings import (
    ENVIRONMENT,
    PROJECT_FILE,
    StoreLocation,
    allow_file,
    read_settings,
    read_settings_sources,
    settings_files,
    store_location,
)
from textevolve.store import keys as stored_keys
from textevolve.store import upkeep
from textevolve.store.keys import KeySpec, StoredKey
from textevolve.store.upkeep import copy_store


def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the current settings, the source of each, and the files that are read.

    Keys are not settings and are not shown; `textevolve doctor` names their sources.
    """
    settings, sources = read_settings_sources(False)
    values: dict[str, Any] = settings.model_dump(mode="json")
    if as_json:
        files = list(map(str, settings_files()))
        shown = {"settings": values, "sources": sources, "files": files}
        typer.echo(hide_secrets(json.dumps(shown, indent=2)))
        return

    for name, value in values.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        typer.echo(f"{name:16} {hide_secrets(text)}  ({sources.get(name, 'default')})")
    typer.echo("\nRead, later wins:")
    for path in settings_files():
        typer.echo(f"  {path}{'' if path.exists() else '  (does not exist)'}")
    typer.echo(f"  the environment: {', '.join(ENVIRONMENT)}")


SettingsFile = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE]", help="The settings file; default: that of the working folder."
    ),
]


def allow(file: SettingsFile = PROJECT_FILE) -> None:
    """Allow the settings file of a folder, as it is now, to say where texts, keys and variables
    go; a changed file has to be allowed again."""
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    allow_file(file)
    typer.echo(f"{file.resolve()} is allowed as it is now")


KeyName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the key: its owner or purpose.")
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="TIME",
        help="How long the key is valid, such as 12h or 30d; default: until it is revoked.",
    ),
]
UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@takes(KeySpec)
def add_key(
    name: KeyName,
    expires: Expires = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
    **values: Any,
) -> None:
    """Make a key. It is printed once, and cannot be shown again."""
    name = name.strip()
    end = read_expiry(expires)
    if not name or not name.isprintable():
        raise InputError("the name of a key must not be empty or have control characters")
    spec = KeySpec(**read_given(KeySpec, values))
    with open_named(store) as (_, resources, _space, _own):
        key, text = resources.write(stored_keys.add_key, name, spec, end)
    if as_json:
        print_json({**_key_data(key), "key": text})
    else:
        say(f"made the key '{name}' ({_format_rights(key)}); it cannot be shown again:")
        typer.echo(text)


def list_keys(as_json: options.Json = False, store: options.StoreFile = None) -> None:
    """List all keys, also expired and revoked ones."""
    with open_named(store) as (_, resources, _space, _own):
        keys = resources.read(stored_keys.list_keys)
    empty = "no keys; make one with: textevolve config keys add NAME"
    print_list(keys, _key_data, print_lines(_describe_key), empty, as_json=as_json)


def _describe_key(key: StoredKey) -> str:
    used = f"last used {moment(key.used)}" if key.used else "never used"
    return (
        f"{visible(key.name):20}  {_format_state(key)}, {used}\n  {key.id}  {_format_rights(key)}"
    )


def revoke_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name or the id of the key.")],
    store: options.StoreFile = None,
) -> None:
    """End a key at once, with the browser sessions that were opened with it."""
    with open_named(store) as (_, resources, _space, _own):
        key = resources.write(stored_keys.revoke_key, name)
    typer.echo(f"the key '{visible(key.name)}' ({key.id}) is revoked")


def read_expiry(text: str | None) -> float | None:
    """Return the time at which a key expires, in seconds since 1970. `text`: a duration such as
    30d; None for a key that never expires.

    Raises:
        InputError: the text is no duration.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text.strip())

    if match is None:
        raise InputError(
            "--expires: write a number with m, h, d or w (minutes, hours, days, weeks), such as"
            f" 30d, not '{text}'"
        )

    return time.time() + int(match[1]) * UNITS[match[2]]


def _key_data(key: StoredKey) -> dict[str, Any]:
    return {**asdict(key), "spec": key.spec.model_dump(), "live": key.live}


def _format_rights(key: StoredKey) -> str:
    limits = key.spec.limits.model_dump(exclude_none=True)
    limit_texts = [f"{value:,} {name.replace('_', ' ')}" for name, value in limits.items()]
    where = ", ".join(key.spec.namespaces) or "all namespaces"
    return "; ".join([" ".join(key.spec.scopes), where, *limit_texts])


def _format_state(key: StoredKey) -> str:
    if key.revoked is not None:
        return f"revoked {moment(key.revoked)}"
    if key.expires is None:
        return "valid until it is revoked"
    return f"{'valid until' if key.live else 'expired'} {moment(key.expires)}"


def copy_database(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="The store to copy: a file, or a postgresql:// address."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TO",
            help="The new store: a file that does not exist, or the address of an empty database.",
        ),
    ],
) -> None:
    """Copy all of a store into another one."""
    source_store = _locate(source)
    target_store = _locate(target)
    if isinstance(source_store, Path) and not source_store.expanduser().is_file():
        raise InputError(f"store {source_store}: there is no such file")
    copied = copy_store(source_store, target_store)
    rows = ", ".join(f"{number:,} {kind}" for kind, number in copied.items() if number)
    typer.echo(f"{target_store}: is a complete copy of {source_store}\n{rows or 'nothing'}")


def vacuum_store(store: options.StoreFile = None) -> None:
    """Release unused space, such as that of deleted runs."""
    settings = read_settings(store=store)
    before, after = upkeep.vacuum_store(settings.store)
    typer.echo(f"{settings.store}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


def check_store(
    salvage: Annotated[
        Path | None, typer.Option(help="A new file to which all intact rows are copied.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    store: options.StoreFile = None,
) -> None:
    """Check which rows of the store are intact, and salvage them into a new one.

    Exit codes: 0 all rows are intact; 1 the store cannot be read, or the new store
    cannot be written; 3 the store is damaged.
    """
    settings = read_settings(store=store)
    findings = upkeep.check(settings.store, salvage)
    if as_json:
        print_json({"store": str(settings.store), **asdict(findings), "damaged": findings.damaged})
    else:
        _print_findings(findings, settings.store)

    if salvage is not None:
        say(
            f"the intact rows are in {salvage}; use it with --store, or replace the damaged file"
            " with it"
        )

    raise typer.Exit(PARTLY if findings.damaged else 0)


def _print_findings(findings: upkeep.Findings, path: StoreLocation) -> None:
    intact = ", ".join(f"{number:,} {kind}" for kind, number in findings.intact.items())
    typer.echo(
        f"{path}: {'is damaged' if findings.damaged else 'all rows are intact'}\nintact: {intact}"
    )

    if findings.incomplete:
        runs = ", ".join(findings.incomplete)
        typer.echo(
            f"runs that lost rows: {runs}; the command of a run, given again, repeats the lost"
            " calls"
        )

    if findings.unreadable:
        places = ", ".join(
            f"{number:,} in {table}" for table, number in findings.unreadable.items()
        )
        typer.echo(f"unreadable: {places}; each place may have held several rows")

    if findings.repaired:
        typer.echo(
            "the index of the memories' words was damaged, and is built anew from the memories"
            f" ({findings.repaired})"
        )

    if findings.complaint:
        typer.echo(f"SQLite says: {findings.complaint}")
        typer.echo("More rows may be missing than this list shows.")


def _locate(address: str) -> StoreLocation:
    try:
        return store_location(address)
    except ValueError as error:
        raise InputError(str(error)) from None
