"""One self-contained HTML file about a run: no script, nothing loaded, opens from disk.

Everything from a model, a user or a file passes through the template's escaping, with control
characters written out. How many cases a report shows in full is limited, and the report says so.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from textevolve.debate import tensor as arithmetic
from textevolve.debate.record import result_figures
from textevolve.debate.result import DebateResult, Turn
from textevolve.evaluation import Failure, Usage
from textevolve.export import charts, wording
from textevolve.export.files import open_target
from textevolve.export.pages import open_template

ALL_IN_FULL = 500
IN_FULL_OF_MANY = 100
ROWS = 5000


def write_report(
    results: Iterable[DebateResult],
    path: str | Path,
    facts: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    *,
    title: str = "",
    in_full: int | None = None,
) -> int:
    """Write the report, and say how many cases it covers; `-` is standard output.

    `facts` about the run are shown as given, each under its name; a function is asked for them
    when all results have been read. Up to 500 cases are shown in
    full; of more, the 100 that failed or were most disputed (`in_full` sets another number).
    Memory does not grow with the number of cases beyond that.

    Raises:
        InputError: the file cannot be written.
    """
    overview = Overview(in_full=in_full)
    for result in results:
        overview.add(result)
    template = open_template("report.html")
    single = overview.chosen[0] if overview.total == 1 and overview.chosen else None
    heading = title or (wording.shorten(single.case.input, 90) if single else "Results of a run")
    parts = template.generate(
        title=heading,
        facts=dict((facts() if callable(facts) else facts) or {}),
        overview=overview,
        histogram=charts.draw_histogram(overview.histogram),
        details=(describe(result) for result in overview.chosen),
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))
    return overview.total


@dataclass(frozen=True, slots=True)
class Line:
    """A case in the overview. `dispute` is the largest spread over agents of any candidate."""

    index: int
    id: str
    input: str
    status: str
    reason: str
    winner: str
    score: float | None
    s_norm: float | None
    probability: float | None
    first_winner: str
    dispute: float | None
    coverage: float
    rounds: int

    @property
    def turned(self) -> bool:
        return bool(self.winner) and self.winner != self.first_winner


@dataclass
class Overview:
    """What is known of all cases together; a bounded number of them is kept whole."""

    in_full: int | None = None
    total: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {"scored": 0, "failed": 0, "skipped": 0})
    lines: list[Line] = field(default_factory=list[Line])
    histogram: list[int] = field(default_factory=lambda: [0] * charts.BINS)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    disarmed: int = 0
    failed_turns: int = 0
    turned: int = 0
    _first: list[DebateResult] = field(default_factory=list[DebateResult])
    _worst: list[tuple[float, int, DebateResult]] = field(
        default_factory=list[tuple[float, int, DebateResult]]
    )

    def add(self, result: DebateResult) -> None:
        line = _line(result)
        self.total += 1
        self.counts[line.status] += 1
        self.usage += result.usage
        self.seconds += result.seconds
        self.disarmed += marks(result)
        self.failed_turns += sum(t.failure is not None for t in result.turns)
        self.turned += line.turned
        for score in result_figures(result)["scores"]:
            if score is not None:
                self.histogram[min(charts.BINS - 1, int(score * charts.BINS))] += 1
        if len(self.lines) < ROWS:
            self.lines.append(line)
        self._keep(result, line)

    def _keep(self, result: DebateResult, line: Line) -> None:
        limit = ALL_IN_FULL if self.in_full is None else self.in_full
        if self.total <= limit:
            self._first.append(result)
        else:
            self._first.clear()
        few = IN_FULL_OF_MANY if self.in_full is None else self.in_full
        urgency = math.inf if line.dispute is None else line.dispute
        item = (urgency, -self.total, result)
        if len(self._worst) < few:
            heapq.heappush(self._worst, item)
        elif few:
            heapq.heappushpop(self._worst, item)

    @property
    def chosen(self) -> list[DebateResult]:
        """The cases that are shown in full, in the order in which they came."""
        if self._first:
            return self._first
        return [item[2] for item in sorted(self._worst, key=lambda item: -item[1])]

    @property
    def shown(self) -> set[int]:
        return {result.index for result in self.chosen}


def _line(result: DebateResult) -> Line:
    figures = result_figures(result)
    best = result.best
    spread = [s for s in figures["spread"] if s is not None]
    winners = result.tied or (() if best is None else (best,))
    return Line(
        index=result.index,
        id=wording.shorten(result.case.id, 30),
        input=wording.shorten(result.case.input, 90),
        status=figures["status"],
        reason=wording.shorten(wording.reason(result), 160),
        winner=wording.letters(winners),
        score=None if best is None else figures["scores"][best],
        s_norm=None if best is None else figures["s_norm"][best],
        probability=None if best is None else figures["probabilities"][best],
        first_winner=wording.letters(arithmetic.top_candidates(result.round_one)),
        dispute=max(spread) if spread and result.scored else None,
        coverage=result.coverage,
        rounds=len(result.convergence),
    )


def marks(result: DebateResult) -> int:
    """Forged marks that were made harmless, in the texts and in what the agents said."""
    return result.disarmed + sum(t.disarmed for t in result.turns)


@dataclass(frozen=True)
class Speech:
    """A turn with what its reader needs beside it."""

    turn: Turn
    agent: str
    shown: str
    weighted: tuple[float, ...]


@dataclass(frozen=True)
class Round:
    number: int
    said: str
    summary: str
    speeches: tuple[Speech, ...]


@dataclass(frozen=True)
class Detail:
    """One debate as the template shows it."""

    result: DebateResult
    figures: Mapping[str, Any]
    verdict: str
    changes: str
    ending: str
    marks: int
    intervals: tuple[charts.Interval, ...]
    heat_map: charts.HeatMap
    disagreement: charts.BarChart
    rounds: tuple[Round, ...]
    failures: Mapping[Failure, Sequence[Turn]]


def describe(result: DebateResult) -> Detail:
    figures = result_figures(result)
    return Detail(
        result=result,
        figures=figures,
        verdict=wording.verdict(result),
        changes=wording.changes(result),
        ending=wording.ending(result),
        marks=marks(result),
        intervals=charts.draw_intervals(result),
        heat_map=charts.draw_heat_map(result),
        disagreement=charts.draw_disagreement(result),
        rounds=tuple(_round(result, r) for r in range(len(result.convergence))),
        failures=wording.failures(result),
    )


def _round(result: DebateResult, r: int) -> Round:
    last = r + 1 == len(result.convergence)
    cv = result.convergence[r]
    return Round(
        number=r + 1,
        said=wording.round_text(result.profile, r, cv, result.certainty, last, result.voters[r]),
        summary=result.summaries[r] if r < len(result.summaries) else "",
        speeches=tuple(_speech(result, t) for t in result.turns if t.round == r),
    )


def _speech(result: DebateResult, turn: Turn) -> Speech:
    weighted: tuple[float, ...] = ()
    if turn.scores is not None:
        weighted = tuple(
            float(s) for s in arithmetic.turn_scores(np.array(turn.scores), result.weights)
        )
    order = ", ".join(wording.letter(j) for j in turn.order)
    return Speech(turn, result.agents[turn.agent], order, weighted)
