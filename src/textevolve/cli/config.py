"""`textevolve config`: which settings are in force, and where each comes from."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from textevolve.settings import ENVIRONMENT, read_settings, settings_files


def show(
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show the settings in force, where each comes from, and the files that are read.

    Keys are not settings and are not shown; `textevolve doctor` says which were found.
    """
    settings, sources = read_settings()
    values: dict[str, Any] = settings.model_dump(mode="json")
    if as_json:
        files = [str(path) for path in settings_files()]
        typer.echo(json.dumps({"settings": values, "sources": sources, "files": files}, indent=2))
        return
    for name, value in values.items():
        shown = json.dumps(value) if isinstance(value, dict) else str(value)
        typer.echo(f"{name:16} {shown}  ({sources.get(name, 'default')})")
    typer.echo("\nRead, later wins:")
    for path in settings_files():
        typer.echo(f"  {path}{'' if path.exists() else '  (not there)'}")
    typer.echo(f"  the environment: {', '.join(ENVIRONMENT)}")
