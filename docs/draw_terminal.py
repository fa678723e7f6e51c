"""Draws docs/terminal.svg: a run that is kept, as the terminal shows it, from its journal alone.

    python docs/draw_terminal.py [RUN] [--store FILE] [--round N]

The picture shows the header, the turns of one round (the last, unless said) and the result. Nothing
is asked. Fonts are the viewer's own; nothing is loaded.
"""

from __future__ import annotations

import argparse
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from textevolve.cli import working
from textevolve.engine import sync
from textevolve.events import CallFinished, Event, StepFinished, StepStarted
from textevolve.report.terminal import print_report
from textevolve.runs import driver
from textevolve.runs.report import make_report
from textevolve.runs.stored import StudyRun, read_records
from textevolve.settings import read_settings
from textevolve.store.repository import open_store

TARGET = Path(__file__).with_name("terminal.svg")
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS = "18191f e06c75 8cc265 e5c07b 61afef c678dd 56b6c2 cdd2da"
BRIGHT = "787e8a e06c75 8cc265 e5c07b 61afef c678dd 56b6c2 ffffff"


class Still:
    """Stands for the moving part of the display, which a picture does not have."""

    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def draw(which: str, store_file: Path, round: int | None) -> str:
    console = Console(
        record=True,
        width=100,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        emoji=False,
        markup=False,
    )
    with open_store(store_file) as store:
        run = StudyRun(store.get_run(which))
        settings = read_settings()
        sync.run(driver.restore_records(store, run, settings))
        records = read_records(store, run)
        (result,) = records()
        live = working.LiveDebate(result.case, result.profile, console=console)
        shown = result.profile.rounds if round is None else round

        def listen(event: Event) -> None:
            if isinstance(event, StepStarted):  # what is under way is not in a picture
                return
            turn = event.value if isinstance(event, StepFinished) and event.step == "turn" else None
            if not isinstance(event, CallFinished) and (turn is None or turn.round + 1 == shown):
                live(event)

        with live:
            for _ in sync.iterate(
                driver.replay(store, run, settings, driver.Launch(listener=listen))
            ):
                pass
        report = make_report(store, run, records)
        facts = {n: f.replace(f"{Path.cwd()}/", "") for n, f in report.facts.items()}
        print_report(replace(report, facts=facts), console)
    return console.export_svg(
        title="textevolve evaluate", theme=theme(), code_format=frame(), unique_id="t"
    )


def theme() -> TerminalTheme:
    def colours(text: str) -> list[tuple[int, int, int]]:
        return [(int(c[:2], 16), int(c[2:4], 16), int(c[4:], 16)) for c in text.split()]

    normal = colours(COLOURS)
    return TerminalTheme(normal[0], normal[-1], normal, colours(BRIGHT))


def frame() -> str:
    """rich's frame without the fonts that it would load from elsewhere."""
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*|<!-- .*? -->\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    return plain.replace("Fira Code, monospace", FONTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", nargs="?", default="last")
    parser.add_argument("--store", type=Path, default=read_settings().store)
    parser.add_argument("--round", type=int)
    given = parser.parse_args()
    setattr(working, "Live", Still)  # noqa: B010 - the module's own name is replaced here
    TARGET.write_text(draw(given.run, given.store, given.round), encoding="utf-8")


if __name__ == "__main__":
    main()
