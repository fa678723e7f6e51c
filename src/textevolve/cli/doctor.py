"""`textevolve doctor`: checks the configuration, calls the models, and probes each endpoint's
features."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from textevolve.engine import sync
from textevolve.errors import TextEvolveError
from textevolve.llm.discovery import probe_endpoint
from textevolve.llm.opening import open_client
from textevolve.llm.providers import find_key, known_providers, resolve
from textevolve.mappings import drop_empty
from textevolve.settings import Settings, read_settings_sources
from textevolve.store.repository import open_store
from textevolve.wiring import choose_model


def doctor(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="The models to check; default: the model that runs would use."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check settings, keys and store, and probe the features of endpoints.

    Each endpoint gets at most ten short calls, which are not stored.
    """
    settings, sources = read_settings_sources()
    report: dict[str, Any] = {
        "settings": {name: str(getattr(settings, name)) for name in sources},
        "keys": _find_keys(settings),
        "store": _attempt(partial(_check_store, settings)),
        "models": sync.run(_try_models(settings, models or [])),
    }
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        typer.echo(yaml.safe_dump(report, sort_keys=False, allow_unicode=True).rstrip())

    if not all(model["answers"] is True for model in report["models"]):
        raise typer.Exit(1)


def _attempt(check: Callable[[], str]) -> str:
    """Return the result of a check, or the message of its error."""
    try:
        return check()
    except TextEvolveError as error:
        return f"error: {error}"


def _find_keys(settings: Settings) -> dict[str, str]:
    """Return the source of each provider's key; never the key itself."""

    def find(name: str, variable: str) -> str:
        key = find_key(name, variable, ask_keyring=False)
        return key.source if key else ""

    providers = known_providers(settings).items()
    sources = {
        name: _attempt(partial(find, name, provider.key_env))
        for name, provider in providers
        if provider.key_env
    }

    return drop_empty(sources)


def _check_store(settings: Settings) -> str:
    with open_store(settings.store) as store:
        runs = len(store.list_runs(10_000))
    size = ""
    if isinstance(settings.store, Path):
        size = f", {os.stat(settings.store).st_size / 1e6:.1f} MB"
    return f"{settings.store}: {runs} runs{size}"


async def _try_models(settings: Settings, models: list[str]) -> list[dict[str, Any]]:

    tried: list[dict[str, Any]] = []
    for model in models or [None]:
        row: dict[str, Any] = {"model": model, "answers": False}
        try:
            spec, reason = await choose_model(settings, model)
            row |= {"model": spec, "why": reason}
            members = resolve(spec, settings).members
            if members:
                names = [member.spec for member in members]
                tried += [
                    row | {"why": f"member of {spec}"} for row in await _try_models(settings, names)
                ]
                continue

            async with AsyncExitStack() as stack:
                client, _, _ = await open_client(spec, settings, stack)
                capabilities = await probe_endpoint(client)
            row |= {
                "answers": capabilities.answers.value,
                "note": capabilities.answers.note,
                "serves": list(capabilities.models[:20]),
                "capabilities": {
                    name: {"value": finding.value, "note": finding.note}
                    for name, finding in capabilities.findings.items()
                },
                "refused": list(capabilities.refused),
            }
        except TextEvolveError as error:
            row["note"] = str(error)

        tried.append(row)

    return tried
