"""`textevolve profile`: have profiles written, list the shipped ones, show and check any."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textevolve.cli import MISUSED, options
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.debate.profile import Profile
    from textevolve.runs.profiles import GeneratedProfile
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

app = typer.Typer(**options.PLAIN)

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command()
def generate(
    subject: Annotated[
        str,
        typer.Argument(help="What is being judged, and to what end; @FILE reads it from a file."),
    ],
    debaters: Annotated[int, typer.Option("--agents", help="How many debate, 2 to 12.")] = 3,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The one that writes the profile.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The YAML file; else standard output.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed may give another profile.")] = 0,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    as_json: Json = False,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Have a model write a profile for what is to be judged: agents, components and weights.

    The same command again is answered from the store. Exit codes: 0 written; 1 no usable profile
    came, a limit was reached, or a model failed; 2 bad input; 130 interrupted.
    """
    from textevolve.cli import measuring
    from textevolve.cli.options import read_argument
    from textevolve.engine import sync
    from textevolve.export.files import open_target
    from textevolve.runs.profiles import begin_profile
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    limits = Limits(max_cost, max_tokens, max_calls)
    settings, _ = read_settings({"model": model, "store": store})
    text = read_argument(subject)
    if output is not None and Path(output).suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"{output}: a profile is written as .yaml")
    with open_store(settings.store) as opened:
        begun = begin_profile(
            opened, settings, text, debaters, model, seed, name or "", source="command line"
        )
        run = sync.run(begun)
        try:
            found = _write(opened, run, settings, limits, quiet=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(measuring.stopped()) from None
    if output is not None:
        with open_target(output) as target:
            target.write(found.text.encode())
    _hand_over(found, output, as_json=as_json)


def _write(
    store: Store, run: RunRecord, settings: Settings, limits: Limits, *, quiet: bool
) -> GeneratedProfile:
    """The profile, while a status line says what is happening."""
    from textevolve.cli.execution import fetch_models
    from textevolve.cli.loop_status import LoopStatus
    from textevolve.engine import sync
    from textevolve.events import StepFinished
    from textevolve.runs.profiles import write_kept_profile

    def describe(event: object) -> str | None:
        if isinstance(event, StepFinished) and event.step == "draft":
            return f"the first draft was not usable and is asked for again: {event.value}"
        return "the profile is being written"

    fetch_models([run.spec["model"]], run, settings)
    with LoopStatus(describe, quiet=quiet) as status:
        return sync.run(write_kept_profile(store, run, settings, limits, status))


def _hand_over(found: GeneratedProfile, output: str | None, *, as_json: bool) -> None:
    """The profile on standard output, or where it went; how alike the agents are."""
    from textevolve.cli.figures import print_json
    from textevolve.export.wording import spent

    written = found.written
    if as_json:
        data = {
            "run": found.run,
            "model": found.model,
            "profile": found.profile.model_dump(mode="json"),
            "reasons": {part.name: part.reason for part in written.draft.components},
            "roles": {agent.name: agent.role for agent in written.draft.agents},
            "likeness": written.likeness,
            "mended": written.mended,
            "text": found.text,
        }
        print_json(data)
        return
    if output is None:
        typer.echo(found.text, nl=False)
    where = f"written to {output}" if output else f"profile {found.profile.name}"
    print(
        f"{where}: {len(found.profile.agents)} agents, {len(found.profile.components)} components;"
        f" the two most alike personas share {written.likeness:.0%} of their words;"
        f" run {found.run}, {spent(found.usage)}",
        file=sys.stderr,
    )


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the shipped profiles."""
    from textevolve.cli.figures import print_json
    from textevolve.debate.profile import load_profile, shipped_profiles

    shipped = [load_profile(name) for name in shipped_profiles()]
    if as_json:
        print_json([profile.model_dump(mode="json") for profile in shipped])
        return
    width = max(len(profile.name) for profile in shipped)
    for profile in shipped:
        names = ", ".join(agent.name for agent in profile.agents)
        typer.echo(f"{profile.name:{width}}  {profile.description}\n{'':{width}}  {names}")


@app.command()
def show(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A shipped profile, or a YAML file.")
    ],
    as_json: Json = False,
) -> None:
    """Show a profile whole, with what it leaves to the defaults."""
    from textevolve.cli.figures import print_json
    from textevolve.debate.profile import load_profile

    loaded = load_profile(profile)
    if as_json:
        print_json(loaded.model_dump(mode="json"))
        return
    _draw_profile(loaded)


def _draw_profile(profile: Profile) -> None:
    from rich.text import Text

    from textevolve.cli.drawing import draw_facts, open_console, safe

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


@app.command()
def check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE...", help="YAML files, or shipped profiles.")
    ],
) -> None:
    """Check profiles; of one that is wrong, say the file, the line and the reason.

    Exit codes: 0 all can be used; 2 one of them cannot.
    """
    from textevolve.debate.profile import load_profile

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
