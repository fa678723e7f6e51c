"""The console in which commands draw."""

from __future__ import annotations

import sys

from rich.console import Console

from textevolve.cli import process
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
