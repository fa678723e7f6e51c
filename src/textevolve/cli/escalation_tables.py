"""What escalating saves and costs in the terminal: the curve, and the threshold it leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from textevolve.cli.drawing import Column, draw_facts, fit_columns, open_console, safe
from textevolve.cli.judge_tables import ends, points, share
from textevolve.export import wording

if TYPE_CHECKING:
    from textevolve.bench.escalation import Calibration, Point
    from textevolve.runs.calibration import Escalated
    from textevolve.statistics.intervals import Figure


def print_escalation(
    found: Escalated, facts: Mapping[str, str], console: Console | None = None
) -> None:
    """The curve, the threshold or why there is none, and how to use it."""
    console = console or open_console()
    if found.curve:
        console.print(Text("What escalating below a certainty does", "bold"))
        labels, columns = _curve(found.curve)
        console.print(fit_columns(labels, [columns], console.width, labels[0].cell_len))
        for line in (
            "at once: items decided by the first round, and how many of them are wrong; right: all",
            "items; difference: to debating everything, in points of 100; calls: share of those.",
        ):
            console.print(Text(line, "dim"))
        console.print()
    console.print(safe(explain_calibration(found), "bold"))
    console.print()
    said = [
        ("Items", f"{len(found.debated)}; {found.calibration.items} of use, one a question"),
        ("First round", _figure(found.first)),
        ("Whole debate", _figure(found.debate)),
        ("Spent", f"{wording.count(found.usage.calls, 'call')}, {wording.spent(found.usage)}"),
    ]
    failures = {d.failure.reason: None for d in found.debated if d.failure}
    said += [("Missing", wording.shorten(reason, 160)) for reason in list(failures)[:3]]
    shown = [*said, *facts.items()]
    console.print(draw_facts((name, safe(value)) for name, value in shown if value))


def _curve(curve: Sequence[Point]) -> tuple[list[Text], list[Column]]:
    def column(title: str, cell: Callable[[Point], str]) -> Column:
        return Column(title, [Text(cell(point)) for point in curve])

    labels = [Text(f"below {point.threshold:.3f}", "bold") for point in curve]
    return labels, [
        column("at once", lambda p: share(p.share.value)),
        column("wrong", lambda p: share(p.error.value)),
        column("95 %", lambda p: ends(p.error.interval)),
        column("right", lambda p: share(p.accuracy.value)),
        column("difference", lambda p: points(p.difference.value)),
        column("calls", lambda p: share(p.calls.value)),
    ]


def explain_calibration(found: Escalated) -> str:
    """The threshold and how it is used, or why there is none."""
    made = found.calibration
    aim = f"{made.agreement:.0%} agreement with a confidence of {made.confidence:.0%}"
    if made.threshold is None or found.chosen is None:
        return f"No threshold holds {aim}: {made.reason}."
    point = found.chosen
    return (
        f"For {aim}: --protocol escalation --escalate-below {made.threshold:g}. On these items"
        f" that decides {share(point.share.value)} at once and takes {share(point.calls.value)} of"
        f" the calls, for a difference of {points(point.difference.value)} points to debating all"
        f" ({_gap(point)}). {_last(made)} It holds for new items like these, not for others."
    )


def _last(made: Calibration) -> str:
    passed = [step for step in made.steps if step.threshold == made.threshold]
    step = passed[-1]
    return (
        f"Of {step.items} first rounds so sure {step.errors} were wrong, so at most"
        f" {step.bound:.1%} are."
    )


def _gap(point: Point) -> str:
    found = point.difference.interval
    return f"{points(found.low)} to {points(found.high)}"


def _figure(found: Figure) -> str:
    return f"right in {share(found.value)} ({ends(found.interval)})"
