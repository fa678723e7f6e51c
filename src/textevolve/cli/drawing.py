"""The console of the displays, and safe texts for it."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from textevolve.cli import process
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.terminal import print_report


class _Console(Console):
    """A console without Rich's SystemExit on a closed pipe, which would end a thread's event
    loop."""

    def on_broken_pipe(self) -> None:
        process.lose_reader(sys.stderr if self.stderr else sys.stdout)


def open_console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, highlight=False, emoji=False, markup=False, soft_wrap=False)


def show_report(report: Report) -> None:
    print_report(report, open_console())


def safe(text: str, style: str = "") -> Text:
    """Return a text from outside with control characters written out, so that neither markup nor
    escape sequences in it have an effect."""
    return Text(wording.visible(text), style)
