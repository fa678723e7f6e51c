"""The console in which commands draw, and the preparation of texts from outside for it."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from textevolve.cli import process
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.terminal import print_report


class _Console(Console):
    """A console that does not raise SystemExit on a closed pipe, as Rich does, which would end the
    event loop of another thread."""

    def on_broken_pipe(self) -> None:
        process.lose_reader(sys.stderr if self.stderr else sys.stdout)


def open_console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, highlight=False, emoji=False, markup=False, soft_wrap=False)


def show_report(report: Report) -> None:
    print_report(report, open_console())


def safe(text: str, style: str = "") -> Text:
    """Return a text from outside with control characters replaced, so that markup and escape
    sequences in it have no effect."""
    return Text(wording.visible(text), style)
