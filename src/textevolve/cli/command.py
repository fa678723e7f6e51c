"""What all commands have in common: empty options are refused, and how a command is stopped."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from textevolve.cli import INTERRUPTED, process, say
from textevolve.cli.options import RUN
from textevolve.errors import InputError

LAST = ("Gates", "Run", "Advanced", "Options")


class Command(TyperCommand):
    """A command of ours. Its help shows options under the headings of their groups."""

    summary, examples = "", ()

    def set_help(self, summary: str, examples: Sequence[str]) -> None:
        """Begin the help with a line and examples; the rest of the docstring stands below them."""
        self.summary, self.examples = summary, examples

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
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.params:
            if param.param_type_name == "option" and _has_empty(given.get(param.name or "")):
                raise InputError(f"{param.opts[0]}: is empty; give it a value or leave it out")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        process.expect_files(ctx.params.get("output"))
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
    """Put a command's own panels before those that all commands share."""
    heading = panel[0].partition(" ")[0]
    return LAST.index(heading) if heading in LAST else -1


def _has_empty(value: object) -> bool:
    return value == "" or (isinstance(value, list | tuple) and "" in value)
