"""The command line application, built from the table of commands. The module of a command is
imported when the command is called.

The commands of studies are generated from their specifications (`study.py`), those of resources
from their kinds (`resources.py`); all others are functions in the files that the table names.
"""

from __future__ import annotations

import difflib
import inspect
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from textwrap import shorten
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import textevolve
from textevolve.cli.commands import COMMANDS, PANELS, CommandEntry
from textevolve.cli.options import PLAIN, RUN
from textevolve.cli.process import INTERRUPTED, say
from textevolve.errors import InputError
from textevolve.loading import load_module
from textevolve.terms import OLD_COMMANDS, advise, find_term


class LazyGroup(TyperGroup):
    """A group of commands that knows their names from the table, and loads each command when it is
    called."""

    def __init__(
        self, *, below: Mapping[str, CommandEntry] = COMMANDS, default: str = "", **settings: Any
    ) -> None:
        self.below = below
        self.default = default
        self._loaded: dict[str, Any] = {}
        super().__init__(**settings)

    @property
    def commands(self) -> dict[str, Any]:
        """All commands by name. Modules that are not yet imported are imported."""
        return {name: self.get_command(None, name) for name in self.below}

    @commands.setter
    def commands(self, _commands: Mapping[str, Any]) -> None:
        """Ignore the commands that typer assigns, since the table has all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.below)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self._loaded and cmd_name in self.below:
            self._loaded[cmd_name] = load_command(cmd_name, self.below[cmd_name])
        return self._loaded.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = args[0] in (*self.below, "--help") if args else self.no_args_is_help
        if self.default and not is_named:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.below and not name.startswith("-"):
            path = " ".join([*ctx.command_path.split()[1:], name])
            hint = suggest_command(name, self.below)
            if path in OLD_COMMANDS:
                hint = f" {OLD_COMMANDS[path]}"
                if not hint.endswith("."):
                    hint = f" Write 'textevolve{hint}'."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for panel, below in (
            PANELS.items() if self.below is COMMANDS else [("Commands", self.below)]
        ):
            with formatter.section(panel):
                formatter.write_dl([(name, entry.help) for name, entry in below.items()])


def suggest_command(name: str, group: Mapping[str, CommandEntry]) -> str:
    """Return a question that suggests the command of the group most similar to an unknown one, or
    else up to three commands of all groups; empty if none is similar."""
    paths = list(_paths(COMMANDS, "textevolve"))
    names = {path.rpartition(" ")[2] for path in paths}
    if term := find_term(name, group):
        return f" Did you mean '{term}'?"
    if name not in names and (near := difflib.get_close_matches(name, group, n=1)):
        return f" Did you mean '{near[0]}'?"
    near = difflib.get_close_matches(name, names, n=1)
    matches = [f"'{path}'" for path in paths if near and path.endswith(f" {near[0]}")]

    return f" Did you mean {' or '.join(matches[:3])}?" if matches else ""


def _paths(below: Mapping[str, CommandEntry], beginning: str) -> Iterator[str]:
    for name, entry in below.items():
        yield f"{beginning} {name}"
        yield from _paths(entry.below, f"{beginning} {name}")


def load_command(name: str, entry: CommandEntry) -> Any:
    """Import a command and return it with its options; for a group, return it without importing its
    commands."""
    if entry.below:
        more = f"\n\nIf no command is given, `{entry.default}` runs." if entry.default else ""
        return LazyGroup(
            below=entry.below,
            default=entry.default,
            name=name,
            help=f"{entry.help}{more}",
            no_args_is_help=entry.default != "show",
            rich_markup_mode=None,
        )

    module, _, function = entry.path.partition(":")
    loaded = load_module(f"textevolve.cli.{module}")
    if module in ("study", "resources"):
        function = loaded.make_command(function)
    else:
        function = getattr(loaded, function)

    single = typer.Typer(**PLAIN)
    single.command(name, cls=Command)(function)
    command = typer.main.get_command(single)
    assert isinstance(command, Command)
    command.summary = entry.help
    command.examples = entry.examples

    return command


app = typer.Typer(
    name="textevolve",
    help="Measure text with a structured debate of AI agents.",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"textevolve {textevolve.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options before any command."""


# The headings at the end of a command's help, in order.
LAST = ("Gates", "Run", "Advanced", "Options")


class Command(TyperCommand):
    """A command whose help shows options below the headings of their groups. Its help begins with
    `summary` and `examples`; the rest of the docstring follows."""

    summary: str = ""
    examples: Sequence[str] = ()

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        details = inspect.cleandoc(self.help or "").partition("\n\n")[2]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.summary)
            formatter.write_paragraph()
            for example in self.examples:
                formatter.write(f"  $ textevolve {example}\n")
            if details:
                formatter.write_paragraph()
                formatter.write_text(details)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        fields = {option.lstrip("-").replace("-", "_"): option for option in options}
        for place, word in enumerate(args):
            if word == "--":
                break
            name, equals, _ = word.partition("=")
            if not name.startswith("--") or name in options:
                continue
            if term := find_term(name, fields):
                ctx.fail(f"No such option: {name}. Did you mean {fields[term]}?")
            positive = f"--{name.removeprefix('--no-')}"
            if positive != name and positive in options:
                ctx.fail(f"No such option: {name}; {positive} is off by default: leave it out")
            rest = list(args[place + 1 :])
            if not equals and rest and not rest[0].startswith("-"):
                del rest[0]  # its value
            command = shlex.join([*ctx.command_path.split(), *args[:place], *rest])
            if advice := advise(name, command):
                ctx.fail(f"No such option: {name}; {advice}")

        self._check_values(ctx, args)

        return super().parse_args(ctx, args)

    def _check_values(self, ctx: Any, args: Sequence[str]) -> None:
        """Check that no option is empty, and that one that takes a single value has no second."""
        parser = self.make_parser(ctx)
        options = [param for param in self.params if isinstance(param, TyperOption)]
        for option in options:
            # The parser keeps the last of several values. A copy that may be repeated takes the
            # option's place in this parser, which is used for the check alone, and keeps all.
            repeatable = copy(option)
            repeatable.multiple = True
            repeatable.add_to_parser(parser, ctx)

        parsed, _, _ = parser.parse_args(args=list(args))
        for option in options:
            values: list[Any] = parsed.get(option.name or "") or []
            if "" in values:
                raise InputError(f"{option.opts[0]}: is empty; give it a value or leave it out")
            if option.multiple or len(values) < 2:
                continue
            # Without the check the last value would replace the others.
            name = option.opts[0]
            if not option.is_flag:
                texts = [f"'{shorten(str(value), 60, placeholder='...')}'" for value in values]
                raise InputError(
                    f"{name} takes one value, but is given more than once: {' and '.join(texts)}"
                )
            if len(set(values)) > 1:  # the same switch twice does no harm
                raise InputError(f"give only one of {name} and {option.secondary_opts[0]}")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("stopped")
            raise typer.Exit(INTERRUPTED) from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                arguments = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                heading = "Arguments" if arguments else (panel or "Options")
                if parameter.name == "help" and RUN in groups:
                    heading = RUN
                groups.setdefault(heading, []).append(record)

        for heading, rows in sorted(groups.items(), key=_rank):
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=26)


def _rank(panel: tuple[str, object]) -> int:
    """Return the sort key of a help panel: a command's own panels precede the shared ones."""
    heading = panel[0].partition(" ")[0]
    return LAST.index(heading) if heading in LAST else -1
