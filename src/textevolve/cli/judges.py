"""The commands `judges list`, `judges profiles` and `judges rubrics`. New profiles are written by a
study (`studies/profile.py`)."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml

from textevolve.cli import options
from textevolve.cli.results import open_console, print_json
from textevolve.debate.profile import load_profile, shipped_profiles
from textevolve.judges.judge import listed_judges, load_installed_judges
from textevolve.judges.rubric import load_rubric, shipped_rubrics
from textevolve.report.terminal import draw_facts


def list_judges(as_json: options.Json = False) -> None:
    """List every judge in a line.

    A judge takes options (probe+rules, pairwise+reference, debate:general+rounds=1) and a model of
    its own (probe@openai/gpt-6-luna).
    """
    load_installed_judges()
    if as_json:
        print_json([{"name": name, "description": text} for name, text in listed_judges().items()])
        return
    for name, text in listed_judges().items():
        typer.echo(f"{name:28}{text}")


def list_profiles(as_json: options.Json = False) -> None:
    """List the shipped profiles."""
    shipped = list(map(load_profile, shipped_profiles()))
    if as_json:
        print_json([profile.model_dump(mode="json") for profile in shipped])
        return
    facts = (
        (
            profile.name,
            f"{profile.description}\n{', '.join(agent.name for agent in profile.agents)}",
        )
        for profile in shipped
    )
    open_console().print(draw_facts(facts))


def show_profile(
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", help="The name of a shipped profile, or a YAML file."),
    ],
    as_json: options.Json = False,
) -> None:
    """Print a profile as YAML, with all defaults; report errors in a file."""
    loaded = load_profile(profile).model_dump(mode="json")
    if as_json:
        print_json(loaded)
    else:
        typer.echo(yaml.safe_dump(loaded, sort_keys=False, allow_unicode=True, width=100), nl=False)


def list_rubrics() -> None:
    """List the shipped rubrics with their criteria, needs and sources."""
    for name in shipped_rubrics():
        typer.echo("\n  ".join((name, *load_rubric(name).about)))


def show_rubric(
    rubric: Annotated[str, typer.Argument(metavar="RUBRIC", help="The name of a shipped rubric.")],
) -> None:
    """Print a shipped rubric as a file that can be changed and given as --rubric @FILE."""
    typer.echo(load_rubric(rubric).source, nl=False)
