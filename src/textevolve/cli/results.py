"""The parts that commands share: opening the store and fetching weights, and the output of results,
as files in the format of their endings and as JSON on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console

from textevolve.agents.resources import split_name
from textevolve.cli import process, say
from textevolve.llm.catalogue import require_packages
from textevolve.llm.weights import ReportProgress, TransferProgress, fetch
from textevolve.report.blocks import Report
from textevolve.report.files import open_target, write_junit
from textevolve.report.terminal import print_report
from textevolve.runs.gates import Gated, junit_suites
from textevolve.runs.report import json_line
from textevolve.runs.stored import Records
from textevolve.runs.study import AnyStudy
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import Store

# The console in which commands draw.


class _Console(Console):
    """A console that does not raise SystemExit on a closed pipe, as Rich does, which would end the
    event loop of another thread."""

    def on_broken_pipe(self) -> None:
        process.lose_reader(sys.stderr if self.stderr else sys.stdout)


def open_console(*, stderr: bool = False) -> Console:
    """Open a console. What is drawn again and again is drawn at terminals alone: a build server
    that asks for colours keeps each drawing in its log."""
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _Console(
        stderr=stderr,
        highlight=False,
        emoji=False,
        markup=False,
        force_interactive=None if is_terminal else False,
    )


def show_report(report: Report) -> None:
    print_report(report, open_console())


T = TypeVar("T")


def write_tests(study: AnyStudy, records: Records, path: str, gated: Gated) -> None:
    """Write the records and the gates as JUnit XML."""
    with open_target(path) as target:
        write_junit(junit_suites(study, records, gated), target)
    if path != "-":
        say(f"written to {path}")


def remove_old_tests(path: str) -> None:
    """Remove the JUnit file of an earlier command, which a build server would take for that of this
    one if this one fails before its end. Any other file is left alone."""
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        is_junit = b"<testsuite" in file.read(500)
    if is_junit:
        os.unlink(path)


def format_record(study: AnyStudy, record: Any) -> str:
    """Return a record as a line of JSON."""
    return study.encode(record).decode() if study.line is None else study.line(record)


def print_json(data: Any) -> None:
    """Print one line of JSON; a missing figure is null."""
    print(json_line(data).decode(), end="")


def print_list(
    items: Sequence[T],
    data: Callable[[T], Any],
    draw: Callable[[Sequence[T]], None],
    empty: str,
    *,
    as_json: bool,
) -> None:
    """Print a list: as JSON lines, drawn by `draw`, or, if it has no items, as the sentence
    `empty`."""
    if as_json:
        for item in items:
            print_json(data(item))
    elif items:
        draw(items)
    else:
        print(empty)


def print_lines(line: Callable[[T], str]) -> Callable[[Sequence[T]], None]:
    """Return a function that prints each item of a list as a line."""
    return lambda items: print("\n".join(map(line, items)))


# Preparations of commands.


def fetch_weights(names: Iterable[str], settings: Settings) -> None:
    """Download the missing weights of local models, with a progress bar. `names`: any models, of
    which those that begin with `local/` are local."""
    local = [name.removeprefix("local/") for name in names if name.startswith("local/")]
    for name in local:
        require_packages(f"local/{name}")
    if local:
        with draw_transfer() as report:
            for name in local:
                fetch(name, settings, report)


@contextmanager
def draw_transfer() -> Generator[ReportProgress]:
    """Yield a function for `fetch` that reports its progress within the block: at a terminal by a
    bar with bytes, speed, source and time left. Notes are printed everywhere, and stay visible
    above the bar."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    console = open_console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    )
    state: dict[str, Any] = {}

    def report(now: TransferProgress) -> None:
        if now.note:
            console.print(f"{now.name}: {now.note}", markup=False, highlight=False, soft_wrap=True)
        # A new source, or the hashing of a download, has its own speed.
        if state.get("source") != now.source or (now.note and now.done == 0):
            if "task" in state:
                bar.remove_task(state["task"])
            state["source"] = now.source
            state["task"] = bar.add_task(f"{now.name}, {now.source}", total=now.total)

        bar.update(state["task"], completed=now.done)

    with bar:
        yield report


@contextmanager
def open_named(
    store: str | None, name: str = "-", namespace: str | None = None
) -> Generator[tuple[Settings, Store, str, str]]:
    """Open the store; yield the settings, the store, and `name` split into its namespace and bare
    name. The namespace of the settings is created at its first use."""
    settings = read_settings(store=store)
    space, bare_name = split_name(name, namespace or settings.namespace)
    with Store(settings.memory_location) as resources:
        if space == settings.namespace:
            resources.ensure_namespace(space)
        yield settings, resources, space, bare_name
