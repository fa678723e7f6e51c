"""Judges beside people, and beside each other, as small tables in the terminal.

Judges are numbered in the first table, and known by their numbers where two of them stand in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from textevolve.cli.drawing import Column, draw_facts, fit_columns, open_console, safe
from textevolve.export import wording

if TYPE_CHECKING:
    from textevolve.bench.summary import AgreementSummary, Comparison, JudgeSummary
    from textevolve.runs.agreement import Measured
    from textevolve.statistics.intervals import Interval

PAIRS_SHOWN = 15
LABEL_ROOM = 6


def print_agreement(
    found: Measured,
    facts: Mapping[str, str],
    *,
    sentence: str = "",
    console: Console | None = None,
) -> None:
    """Everything that was found, in tables that fit 100 columns."""
    console = console or open_console()
    tables = _Tables(found, console)
    if sentence:
        console.print(safe(sentence, "bold"))
        console.print()
    if found.summary.labelled:
        tables.print_accuracy()
    tables.print_order()
    tables.print_spent()
    tables.print_parts()
    tables.print_comparisons()
    shown = (*facts.items(), *summary_facts(found).items())
    console.print(draw_facts((name, safe(value)) for name, value in shown if value))


def summary_facts(found: Measured) -> dict[str, str]:
    """What there is to say about the items, and about what is missing."""
    summary = found.summary
    items = f"{wording.count(summary.items, 'item')} on {wording.count(summary.groups, 'question')}"
    if not summary.labelled:
        items += "; none has labels, so it cannot be told who is right"
    elif summary.labelled < summary.items:
        items += f"; {summary.labelled:,} with labels"
    won = {name: share for name, share in summary.winners.items() if share}
    chose = [f"{_place(name)} {wording.percent(share)}" for name, share in won.items()]
    facts = {"Items": items, "People chose": ", ".join(chose)}
    for judge in summary.judges:
        reasons = [
            f"{wording.count(number, 'verdict')}: {wording.shorten(reason, 160)}"
            for reason, number in judge.failures.items()
        ]
        if reasons:
            facts[f"Missing, {judge.name}"] = "\n".join(reasons)
    return facts


def _place(name: str) -> str:
    return "a tie" if name == "tie" else f"text {name}"


@dataclass(frozen=True)
class _Tables:
    found: Measured
    console: Console

    @property
    def summary(self) -> AgreementSummary:
        return self.found.summary

    @property
    def judges(self) -> tuple[JudgeSummary, ...]:
        return self.summary.judges

    def names(self) -> list[Text]:
        return [_numbered(n, judge.name) for n, judge in enumerate(self.judges, 1)]

    def column(self, title: str, cell: Callable[[JudgeSummary], str], style: str = "") -> Column:
        return Column(title, [Text(cell(judge), style) for judge in self.judges])

    def draw(self, title: str, labels: Sequence[Text], columns: Sequence[Column], *notes: str):
        self.console.print(Text(title, "bold"))
        self.console.print(fit_columns(labels, [columns], self.console.width, LABEL_ROOM))
        for note in notes:
            self.console.print(Text(note, "dim"))
        self.console.print()

    def print_accuracy(self) -> None:
        summary = self.summary
        plain = {
            "always the first": summary.always_first,
            "always the best place": summary.always_best,
            "always the shorter text": summary.always_shorter,
            "always the longer text": summary.always_longer,
        }
        columns = [
            self.column("accuracy", lambda j: share(j.accuracy.value), "bold"),
            self.column("95 %", accuracy_ends),
            self.column("kappa", lambda j: number(j.kappa.value)),
            self.column("AC1", lambda j: number(j.ac1.value)),
            self.column("ties", lambda j: share(j.ties)),
            self.column("covered", lambda j: wording.percent(j.coverage)),
        ]
        rows = [Text(share(value), "dim") for value in plain.values()]
        blank = [Text("") for _ in plain]
        columns = [
            Column(c.title, [*c.cells, *(rows if n == 0 else blank)]) for n, c in enumerate(columns)
        ]
        labels = [*self.names(), *(Text(f"  {name}", "dim") for name in plain)]
        self.draw("Agreement with people", labels, columns)

    def print_order(self) -> None:
        if not any(judge.position for judge in self.judges):
            return
        columns = [
            self.column("alone", lambda j: share(j.single.value)),
            self.column("same", lambda j: share(j.position.consistency.value if j.position else 0)),
            self.column(
                "95 %", lambda j: ends(j.position.consistency.interval if j.position else None)
            ),
            self.column("to first", lambda j: f"{j.position.to_first if j.position else 0:,}"),
            self.column("to last", lambda j: f"{j.position.to_last if j.position else 0:,}"),
            self.column("other", lambda j: f"{j.position.other if j.position else 0:,}"),
            self.column("1st won", lambda j: share(j.position.first if j.position else math.nan)),
        ]
        self.draw(
            "What the order of the candidates does",
            self.names(),
            columns if self.summary.labelled else columns[1:],
            "alone: accuracy of one order by itself; same: one winner in both orders; to first, to",
            "last: items on which whatever stood there won both times; 1st won: 50 % is fair",
        )

    def print_spent(self) -> None:
        once = self.found.once
        columns = [
            self.column("samples", lambda j: f"{self.found.samples[j.name]:,}"),
            self.column("calls", lambda j: f"{j.per_item.calls:,.1f}"),
            self.column("tokens", lambda j: f"{j.per_item.tokens:,.0f}"),
            self.column("seconds", lambda j: f"{j.per_item.seconds:,.1f}"),
            self.column("cost", lambda j: _cost(j.per_item.cost)),
        ]
        notes: list[str] = []
        if once is not None:
            columns.append(
                self.column("accuracy once", lambda j: share(once.judge(j.name).accuracy.value))
            )
            notes.append("accuracy once: with one sample, before the others were asked")
        self.draw("Spent on an item, all orders and samples", self.names(), columns, *notes)

    def print_parts(self) -> None:
        rows = [
            (_numbered(n, judge.name), part)
            for n, judge in enumerate(self.judges, 1)
            for part in judge.parts
        ]
        if not rows or not self.summary.labelled:
            return

        def column(title: str, cells: Iterable[str]) -> Column:
            return Column(title, [Text(cell) for cell in cells])

        parts = [part for _, part in rows]
        columns = [
            column("subset", (wording.shorten(part.name, 18) or "–" for part in parts)),
            column("items", (f"{part.covered:,}" for part in parts)),
            column("accuracy", (share(part.accuracy.value) for part in parts)),
            column("95 %", (ends(part.accuracy.interval) for part in parts)),
            column("same", (share(part.consistency) for part in parts)),
            column("first", (share(part.always_first) for part in parts)),
            column("shorter", (share(part.always_shorter) for part in parts)),
        ]
        note = "first, shorter: what always the first and always the shorter text would score"
        self.draw("By subset", [label for label, _ in rows], columns, note)

    def print_comparisons(self) -> None:
        found, notes = self._chosen_pairs()
        if not found:
            return
        names = [judge.name for judge in self.judges]
        labels = [
            safe(
                f"{names.index(c.first) + 1} − {names.index(c.second) + 1}  {c.first} − {c.second}"
            )
            for c in found
        ]

        def column(title: str, cell: Callable[[Comparison], str]) -> Column:
            return Column(title, [Text(cell(c)) for c in found])

        columns = [
            column("difference", lambda c: points(c.difference.value)),
            column("95 %", lambda c: _gap_ends(c.difference.interval)),
            column("p McNemar", lambda c: p_value(c.mcnemar_holm)),
            column("p perm.", lambda c: p_value(c.permutation_holm)),
            column("needed", lambda c: _items(c.items_needed)),
        ]
        same = column("same", lambda c: share(c.same.value))
        if not self.summary.labelled:
            self.draw("Between judges", labels, [same], "same: both choose the same winner", *notes)
            return
        self.draw(
            "Between judges",
            labels,
            [same, *columns],
            "same: both choose the same; difference in points of 100; p after Holm's correction;",
            "needed: items to find a difference of this size (power 80 %, at 5 %)",
            *notes,
        )

    def _chosen_pairs(self) -> tuple[list[Comparison], list[str]]:
        """All comparisons, or of many those of the most accurate judge."""
        found = list(self.summary.comparisons)
        if len(found) <= PAIRS_SHOWN:
            return found, []
        best = max(
            self.judges, key=lambda j: -1.0 if math.isnan(j.accuracy.value) else j.accuracy.value
        )
        left = len(found) - len(self.judges) + 1
        note = f"only those of the most accurate judge; the JSON has the other {left}"
        return [
            self.summary.compare(best.name, other.name)
            for other in self.judges
            if other is not best
        ], [note]


def _numbered(number: int, name: str) -> Text:
    return Text.assemble((f"{number} ", "dim"), safe(name, "bold"))


def share(value: float) -> str:
    return wording.percent(value, 1)


def number(value: float) -> str:
    return wording.figure(value, 2)


def ends(interval: Interval | None) -> str:
    """`62 to 79`, in percent."""
    if interval is None or math.isnan(interval.low):
        return "–"
    return f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"


def accuracy_ends(judge: JudgeSummary) -> str:
    """The interval by question; by items where that does not exist (all right, or all wrong)."""
    drawn = judge.accuracy.interval
    return ends(judge.wilson if math.isnan(drawn.low) else drawn)


def points(value: float) -> str:
    """A difference of two shares, in points of 100."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.1f}" if abs(value) >= 0.0005 else "0.0"


def _gap_ends(interval: Interval) -> str:
    if math.isnan(interval.low):
        return "–"
    return f"{100 * interval.low:+.0f} to {100 * interval.high:+.0f}"


def p_value(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _items(needed: float) -> str:
    return "–" if math.isnan(needed) else "> 1 million" if needed > 1e6 else f"{needed:,.0f}"


def _cost(cost: float | None) -> str:
    return "–" if cost is None else wording.money(cost)
