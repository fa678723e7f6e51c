"""`textevolve doctor`: checks the configuration, calls the models, and probes each endpoint's
features."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from textevolve.addresses import hide_secrets
from textevolve.engine import sync
from textevolve.errors import StoreError, TextEvolveError
from textevolve.llm.discovery import probe_endpoint
from textevolve.llm.meter import Tab
from textevolve.llm.model import JournalEntry, Message, Request, Response
from textevolve.llm.opening import open_client
from textevolve.llm.providers import find_key, known_providers, resolve
from textevolve.mappings import drop_empty
from textevolve.runs.stored import open_standing_run
from textevolve.settings import Settings, read_settings_sources, today
from textevolve.store.repository import open_store
from textevolve.wiring import Setting, choose_model


def doctor(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="The models to check; default: the model that runs would use."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check settings, keys and store, and probe the features of endpoints.

    Each endpoint gets at most ten short calls. Their usage is stored as a run; later calls are not
    answered from them.
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
        row: dict[str, Any] = {"model": model and hide_secrets(model), "answers": False}
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
                with Tab() as tab:
                    capabilities = await probe_endpoint(client)
                await _store_calls(spec, settings, tab)
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


async def _store_calls(spec: str, settings: Settings, tab: Tab) -> None:
    """Store what the probes of a model cost, under random keys, so that no call is ever answered
    from them. A store that cannot be used is reported by its own check."""
    paid = [(usage, "") for usage in tab.answers]
    paid += [(failure.usage, failure.reason) for failure in tab.failures]
    setting = Setting(spec, (spec,), today())
    described = {"model": spec, "today": setting.today}
    opened = open_standing_run("doctor", described, setting, settings, source="command line")
    request = Request(messages=(Message("user", ("a probe of the endpoint",)),))

    with suppress(StoreError):
        async with opened as bench:
            for usage, reason in paid:
                response = None if reason else Response("", "probed", usage)
                key = secrets.token_hex(32)
                await bench.journal.append(
                    JournalEntry(
                        key, spec, request, response, reason or None, time.time(), 0.0, 1, usage
                    )
                )
