"""What all commands have in common: empty options are refused, and how a command is stopped."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from textevolve.cli import INTERRUPTED, process, say
from textevolve.errors import InputError


class Command(TyperCommand):
    """A command of ours. Its help shows options under the headings of their groups."""

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
                groups.setdefault(heading, []).append(record)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def _has_empty(value: object) -> bool:
    return value == "" or (isinstance(value, list | tuple) and "" in value)
