"""`textevolve profile list|show|check`: the shipped profiles, and any other one. Having one written
is a study (`studies/profile.py`)."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.text import Text

from textevolve.cli import MISUSED, options
from textevolve.cli.drawing import open_console, safe
from textevolve.cli.results import print_json
from textevolve.debate.profile import Profile, load_profile, shipped_profiles
from textevolve.errors import InputError
from textevolve.report.terminal import draw_facts


def list_profiles(as_json: options.Json = False) -> None:
    """List the shipped profiles."""
    shipped = [load_profile(name) for name in shipped_profiles()]
    if as_json:
        print_json([profile.model_dump(mode="json") for profile in shipped])
        return
    width = max(len(profile.name) for profile in shipped)
    for profile in shipped:
        names = ", ".join(agent.name for agent in profile.agents)
        typer.echo(f"{profile.name:{width}}  {profile.description}\n{'':{width}}  {names}")


def show(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A shipped profile, or a YAML file.")
    ],
    as_json: options.Json = False,
) -> None:
    """Show a profile whole, with what it leaves to the defaults."""
    loaded = load_profile(profile)
    if as_json:
        print_json(loaded.model_dump(mode="json"))
        return
    _draw_profile(loaded)


def _draw_profile(profile: Profile) -> None:
    console = open_console()
    console.print(safe(f"{profile.name}: {profile.description}".removesuffix(": "), "bold"))
    console.print(Text("\nAgents", "bold"))
    console.print(
        draw_facts(
            (agent.name + (f" ({agent.model})" if agent.model else ""), safe(agent.persona))
            for agent in profile.agents
        )
    )
    console.print(Text("\nComponents", "bold"))
    weights = dict(zip((c.name for c in profile.components), profile.weight_list, strict=True))
    for part in profile.components:
        console.print(safe(f"{part.name}, weight {weights[part.name]:g}: {part.meaning}"))
        facts = [(f"  {score}", safe(meaning)) for score, meaning in part.rubric.items()]
        console.print(draw_facts([*facts, ("  yes?", safe(part.probe))]))
    console.print(Text("\nParameters", "bold"))
    left_out = {"name", "description", "agents", "components", "weights"}
    rest: dict[str, Any] = profile.model_dump(mode="json", exclude=left_out)
    console.print(draw_facts((k, safe("none" if v is None else str(v))) for k, v in rest.items()))


def check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE...", help="YAML files, or shipped profiles.")
    ],
) -> None:
    """Check profiles; of one that is wrong, say the file, the line and the reason.

    Exit codes: 0 all can be used; 2 one of them cannot.
    """
    wrong = 0
    for given in profiles:
        try:
            loaded = load_profile(given)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            wrong += 1
            continue
        typer.echo(
            f"{given}: can be used ({len(loaded.agents)} agents, {len(loaded.components)}"
            f" components, {loaded.rounds} rounds, {loaded.protocol})"
        )
    raise typer.Exit(MISUSED if wrong else 0)
