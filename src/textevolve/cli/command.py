"""What all commands have in common: empty options are refused, and how a command is stopped."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from textevolve.cli import INTERRUPTED, process, say
from textevolve.errors import InputError


class Command(TyperCommand):
    """A command of ours."""

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


def _has_empty(value: object) -> bool:
    return value == "" or (isinstance(value, list | tuple) and "" in value)


def use_everywhere(app: typer.Typer) -> None:
    """Make all commands of an app, and of the groups below it, commands of this kind."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            use_everywhere(group.typer_instance)
