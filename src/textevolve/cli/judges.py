"""The commands `judges list`, `judges profiles` and `judges rubrics`: the judges, profiles and
rubrics that there are. Profiles are written by a study (`studies/profile.py`)."""

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
from textevolve.judges.shipped_rubrics import load_rubric, shipped_rubrics
from textevolve.report.terminal import draw_facts

JUDGES = {
    "debate:PROFILE": "the agents of a profile debate; the default",
    "jury:PROFILE": "the same agents, each blind and alone",
    "single": "one neutral agent states its scores",
    "escalation:PROFILE": "a jury; a debate only if it is in doubt",
    "probe": "yes / no questions about each text: P(yes)",
    "checklist": "criteria written for the input, each probed",
    "reference": "a probe beside a reference answer",
    "pairwise": "which of two texts is better, in both orders",
    "decide": "a typed question for each criterion of a rubric",
    "faithfulness": "statements of the text that the context supports",
    "answer-relevance": "statements of the text that help to answer",
    "context-recall": "statements of the reference in the context",
    "context-precision": "passages of the context that the answer needs",
    "instruction-likelihood": "how well a text tells its instruction",
    "embedding@MODEL": "similarity of the embeddings of text and reference",
    "metric:NAME": "a metric without a model, such as metric:rouge-l",
    "look:length": "the length, to compare judges with",
    "rules:FILE.yaml": "length, patterns, JSON schema, ...; no model",
    "hybrid:FILE.yaml:JUDGE": "rules first, then a judge",
    "cascade:BELOW:FIRST,SECOND": "the second if the first is not that certain",
    "FILE.judge": "judges fitted to labels by `judges fit`",
}
"""Every judge as `--judge` takes it."""


def list_judges(as_json: options.Json = False) -> None:
    """List every judge in a line.

    A judge takes options (probe+rules, pairwise+reference, debate:general+rounds=1) and a model of
    its own (probe@openai/gpt-6-luna).
    """
    if as_json:
        print_json([{"name": name, "description": text} for name, text in JUDGES.items()])
        return
    for name, text in JUDGES.items():
        typer.echo(f"{name:28}{text}")


def list_profiles(as_json: options.Json = False) -> None:
    """List the shipped profiles."""
    shipped = [load_profile(name) for name in shipped_profiles()]
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
            (
                agent.name + (f" ({agent.model})" if agent.model else ""),
                safe(agent.persona or f"the stored agent {agent.stored}"),
            )
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


def check_profiles(
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


def list_rubrics() -> None:
    """List the shipped rubrics: what each judges by, what it needs, where it comes from."""
    for name in shipped_rubrics():
        typer.echo("\n  ".join((name, *load_rubric(name).about)))


def show_rubric(
    rubric: Annotated[str, typer.Argument(metavar="RUBRIC", help="A shipped rubric.")],
) -> None:
    """Print a shipped rubric as a file that can be changed and given as --rubric @FILE."""
    typer.echo(load_rubric(rubric).source, nl=False)
