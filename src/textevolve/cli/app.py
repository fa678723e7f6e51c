"""The commands, gathered. A command's own module is loaded when the command is called.

The commands of studies are made from their specifications (`study.py`); the others are written out
in the files that are named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import textevolve
from textevolve.cli.command import Command, use_everywhere
from textevolve.cli.options import PLAIN


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command is: `study:KIND` (none: a file names it), `resources:GROUP.VERB`,
    `MODULE:FUNCTION`, or `MODULE` with an `app` of its own. A group has its commands `below`, of
    which `default` is meant where none is named."""

    path: str
    help: str
    below: Mapping[str, Lazy] | None = None
    default: str = ""


def _resources(group: str, help: str, noun: str, more: Mapping[str, Lazy] = {}) -> Lazy:
    """The commands that a kind of resource has."""
    told = {
        "create": f"Make {noun}.",
        "list": "List them.",
        "show": "Show one whole.",
        "update": "Change what is given; the rest stays.",
        "revert": "Go back to an earlier version.",
        "delete": "Delete one, with all that belongs to it.",
        "export": "Write one to a file, with all that belongs to it.",
        "import": "Take in what such a file holds.",
    }
    below = {verb: Lazy(f"resources:{group}.{verb}", text) for verb, text in told.items()}
    return Lazy("", help, {**below, **more})


COMMANDS: Mapping[str, Lazy] = {
    "evaluate": Lazy("study:evaluate", "Judge candidate texts by a debate, or by any judge."),
    "compare": Lazy("study:compare", "Run prompts and models over your rows; say which is better."),
    "optimize": Lazy("study:optimize", "Write, judge and revise a text; keep the best."),
    "calibrate": Lazy("study:calibrate", "Search for a better prompt template."),
    "guide": Lazy("study:guide", "Answer a question with a debate as reasoning."),
    "innovate": Lazy("study:innovate", "Refine an input by judgements of its outputs."),
    "summarize": Lazy("study:summarize", "Shorten texts of any length to a budget of tokens."),
    "fit": Lazy("study:fit", "Fit a judge to people's labels, from several judges."),
    "chains": Lazy(
        "",
        "Show and run chains of steps.",
        below={
            "show": Lazy("chains:show", "Show a chain's steps, inputs, outputs and models."),
            "run": Lazy("study:chain", "Run a chain on values, or on each row of a file."),
        },
    ),
    "run": Lazy("study:", "Run a study of any kind that a YAML file describes."),
    "init": Lazy("study_files:init", "Write a commented example of such a file."),
    "schema": Lazy("study_files:schema", "Print the JSON schema of such files."),
    "runs": Lazy("runs", "List, show, resume, compare, export and delete runs."),
    "store": Lazy("store", "Copy, check and measure the database that keeps everything."),
    "bench": Lazy(
        "",
        "Measure judges before believing them.",
        {
            "agreement": Lazy("study:agreement", "Measure how far judges agree with people."),
            "ablate": Lazy("study:ablation", "Find out whether a debate pays on your own items."),
            "escalation": Lazy(
                "study:escalation", "Find when a cheap judge, or a debate's first round, will do."
            ),
            "card": Lazy("study:robustness", "Measure what sways a judge that should not."),
            "rate": Lazy("study:rates", "Correct a judge's rate by what people said."),
        },
    ),
    "memory-eval": Lazy(
        "",
        "Measure what a memory system keeps; `memory-eval DATA.jsonl` is `memory-eval run`.",
        below={
            "run": Lazy("study:memory-eval", "Measure what a memory system keeps."),
            "synth": Lazy("memory_eval:synth", "Make users with dialogues, by templates."),
        },
        default="run",
    ),
    "namespaces": _resources(
        "namespaces", "Walls between what belongs to different owners.", "a namespace"
    ),
    "agents": _resources(
        "agents",
        "Agents with a persona and memories.",
        "an agent",
        {
            "evolve": Lazy("study:evolve-persona", "Change a persona by what its agent remembers."),
        },
    ),
    "collections": _resources("collections", "Collections of memories.", "a collection"),
    "users": _resources("users", "Whom agents talk with.", "a user"),
    "memories": Lazy(
        "",
        "Keep, search and forget memories.",
        below={
            "add": Lazy("memories:add", "Keep a memory."),
            "search": Lazy("memories:search", "Find what bears on a question."),
            "list": Lazy("memories:list_memories", "List a collection, the newest last."),
            "show": Lazy("memories:show", "Show memories whole."),
            "history": Lazy("memories:history", "Show what a memory was before, and is now."),
            "forget": Lazy("memories:forget", "Close memories, or erase them."),
            "import": Lazy("memories:import_file", "Keep the memories of a file."),
            "export": Lazy("memories:export", "Write memories to a file of rows."),
            "re-embed": Lazy("memories:re_embed", "Move a collection to another embedder."),
            "create": Lazy("study:create-memories", "Make memories of dialogues."),
            "integrate": Lazy(
                "study:integrate-memories", "Draw insights from an agent's memories (reflection)."
            ),
            "read": Lazy("study:read-corpus", "Read documents into a collection."),
        },
    ),
    "labelling": Lazy(
        "",
        "Have people label texts, to measure judges by.",
        below={
            "create": Lazy("labelling:create", "Make a task of a file of rows, or of a run."),
            "list": Lazy("labelling:list_tasks", "List the tasks, with who labelled how much."),
            "show": Lazy("labelling:show", "Show how far people agree, and where not."),
            "export": Lazy("labelling:export", "Write labels as rows that judges are measured on."),
            "delete": Lazy("labelling:delete", "Delete a task with all its labels."),
        },
    ),
    "nodes": Lazy(
        "",
        "Judge the steps of recorded agents.",
        below={
            "evaluate": Lazy("study:nodes", "Judge every node of a trace, or of an earlier run."),
            "show": Lazy("nodes:show", "Show the nodes of a trace or of a run as a tree."),
            "export": Lazy("nodes:export", "Write rewards for training, or a page."),
        },
    ),
    "profile": Lazy(
        "profiles",
        "Write, list, show and check profiles.",
        below={
            "generate": Lazy("study:profile", "Have a model write a profile."),
            "list": Lazy("profiles:list_profiles", "List the shipped profiles."),
            "show": Lazy("profiles:show", "Show a profile whole."),
            "check": Lazy("profiles:check", "Say what is wrong with profiles."),
        },
    ),
    "rubrics": Lazy(
        "rubrics",
        "List and show the shipped rubrics.",
        below={
            "list": Lazy("rubrics:list_rubrics", "List the shipped rubrics, with their sources."),
            "show": Lazy("rubrics:show", "Print one as a file, to be changed."),
        },
    ),
    "templates": Lazy(
        "",
        "Show, convert and check instruction formats and chat templates.",
        below={
            "list": Lazy("templates:list_formats", "List the formats that are known."),
            "show": Lazy("templates:show", "Show the markers and rules of one."),
            "detect": Lazy("templates:detect", "Say which format a prompt is in."),
            "convert": Lazy("templates:convert", "Write a prompt or a conversation in a format."),
            "render": Lazy("templates:render", "Print a conversation as a model reads it."),
            "check": Lazy("templates:check", "Say what is wrong with a model's template."),
        },
    ),
    "chat": Lazy("chat:chat", "Chat with an agent that remembers."),
    "sessions": Lazy("sessions", "List, show, export and delete chats."),
    "view": Lazy("view:view", "Look at runs in the browser, on this machine."),
    "jobs": Lazy("jobs", "Keep studies, and run them by a clock."),
    "serve": Lazy("serve:serve", "Serve models, judges, agents, studies and pages over HTTP."),
    "keys": Lazy("keys", "Make, list and revoke keys of a server's clients."),
    "models": Lazy(
        "",
        "List, fetch, check and quantise local models.",
        below={
            "list": Lazy("models:list_models", "Show the local models that are known."),
            "pull": Lazy("models:pull", "Fetch weights and check their hash."),
            "check": Lazy("models:check", "Hash weights anew and compare with the catalogue."),
            "quantize": Lazy("quantize:quantize", "Make files of weights with fewer bits."),
            "compare-quants": Lazy("study:compare-quants", "Measure what quantisation costs."),
        },
    ),
    "doctor": Lazy("doctor:doctor", "Check settings, keys, store and endpoints."),
    "config": Lazy("config:config", "Show the settings and where they come from."),
}


class LazyGroup(TyperGroup):
    """Knows the names of its commands and loads each when it is called."""

    def __init__(
        self, *, below: Mapping[str, Lazy] = COMMANDS, default: str = "", **given: Any
    ) -> None:
        self.below, self.default = below, default
        self._loaded: dict[str, Any] = {}
        super().__init__(**given)

    @property
    def commands(self) -> dict[str, Any]:
        """All of them, loaded."""
        return {name: self._load(name) for name in self.below}

    @commands.setter
    def commands(self, _given: Mapping[str, Any]) -> None:
        """Only those `below` there are."""

    def _load(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load_command(name, self.below[name])
        return self._loaded[name]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.below)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._load(cmd_name) if cmd_name in self.below else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default and args and args[0] not in (*self.below, "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self.below.items()])


def load_command(name: str, lazy: Lazy) -> Any:
    """The command with its options, or the group, of which nothing else is loaded."""
    if lazy.below is not None:
        return LazyGroup(
            below=lazy.below,
            default=lazy.default,
            name=name,
            help=lazy.help,
            no_args_is_help=True,
            rich_markup_mode=None,
        )
    module, colon, function = lazy.path.partition(":")
    if not colon:
        group = import_module(f"textevolve.cli.{module}").app
        use_everywhere(group)
        return typer.main.get_command(group)
    single = typer.Typer(**PLAIN)
    if module in ("study", "resources"):
        from textevolve.cli.spec_options import GroupedCommand

        made = import_module(f"textevolve.cli.{module}").make_command(function)
        single.command(name, cls=GroupedCommand)(made)
    else:
        single.command(name, cls=Command)(
            getattr(import_module(f"textevolve.cli.{module}"), function)
        )
    return typer.main.get_command(single)


app = typer.Typer(
    name="textevolve",
    help="Measure text with a structured debate of AI agents.",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"textevolve {textevolve.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Options before any command."""
