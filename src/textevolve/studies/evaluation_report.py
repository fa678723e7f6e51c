"""What many judged cases come to beside their aggregates: each case in a line, some in full.

Everything is added up record by record, so memory does not grow with the number of cases beyond
what is shown of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from textevolve.debate import tensor as arithmetic
from textevolve.debate.result import DebateResult
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.judges.judged import JudgedCase
from textevolve.report import wording
from textevolve.report.blocks import BarChart, Block, Cell, Column, Note, Report, Section, Table
from textevolve.studies.aggregates import Aggregates
from textevolve.studies.judged_report import count_marks, facts_of, say_verdict, show_case
from textevolve.studies.judged_rows import Judged
from textevolve.studies.study import Row

ALL_IN_FULL = 500
IN_FULL_OF_MANY = 100
LISTED = 5000
BINS = 20

LEGEND = {
    "s_norm": "Mean of all agents' scores over rounds and components, each component times its"
    " weight; from 0 to 10.",
    "Score": "The same as a weighted mean from 0 to 1, comparable whatever the weights.",
    "Softmax": "The candidates' shares under the softmax of s_norm.",
    "Round 1": "What the agents said before they had debated. Where it equals the end, the debate"
    " changed nothing.",
    "± agents": "Standard deviation over the agents, in points of 10.",
    "CV": "Standard deviation over mean of the agents' scores in one round, of the candidate on"
    " which they differ most. At or below the threshold c the debate ends.",
    "Coverage": "Share of the turns that gave scores. A turn that failed is missing; it is never"
    " counted as a zero.",
    "Response 1, 2, ...": "Names drawn by lot, under which the agents knew the candidates.",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A case in the list. `dispute`: the largest spread over agents of any candidate."""

    index: int
    name: str
    input: str
    row: Row
    winner: str
    first_winner: str
    s_norm: float | None
    share: float | None
    dispute: float | None
    coverage: float | None
    rounds: int | None

    @property
    def turned(self) -> bool:
        return bool(self.winner) and bool(self.first_winner) and self.winner != self.first_winner


@dataclass
class Evaluations:
    """What is known of all cases together. `scores`: of the best candidate of each scored case;
    `chosen`: the cases that are shown whole."""

    total: int = 0
    scores: Aggregates = field(default_factory=Aggregates)
    several: bool = False
    usage: Usage = field(default_factory=Usage)
    coverage: float = 0.0
    debates: int = 0
    turned: int = 0
    failed_turns: int = 0
    marks: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)
    lines: list[Line] = field(default_factory=list[Line])
    _first: list[Judged] = field(default_factory=list[Judged])
    _urgent: list[tuple[float, int, Judged]] = field(
        default_factory=list[tuple[float, int, Judged]]
    )

    def add(self, judged: Judged, row: Row) -> None:
        line = _line(judged, row)
        self.total += 1
        self.scores.add(row)
        self.several |= len(judged.case.candidates) > 1
        self.usage += judged.usage
        if isinstance(judged, DebateResult):
            self.debates += 1
            self.coverage += judged.coverage
            self.marks += count_marks(judged)
            self.failed_turns += sum(turn.failure is not None for turn in judged.turns)
            self.turned += line.turned
        found = [one for one in judged.result if isinstance(one, EvaluationResult)]
        for one in found:
            place = min(BINS - 1, max(0, int(one.score * BINS))) if math.isfinite(one.score) else 0
            self.histogram[place] += math.isfinite(one.score)
        if len(self.lines) < LISTED:
            self.lines.append(line)
        if self.total <= ALL_IN_FULL:
            self._first.append(judged)
        else:
            self._first.clear()
        urgency = math.inf if line.dispute is None else line.dispute
        _push(self._urgent, (urgency, -self.total, judged), IN_FULL_OF_MANY)

    @property
    def chosen(self) -> list[Judged]:
        """The cases that are shown in full, in the order in which they came."""
        if self._first or not self._urgent:
            return self._first
        return [item[2] for item in sorted(self._urgent, key=lambda item: -item[1])]


def _push(heap: list[Any], item: Any, most: int) -> None:
    """Keep the greatest items."""
    if len(heap) < most:
        heapq.heappush(heap, item)
    else:
        heapq.heappushpop(heap, item)


def _line(judged: Judged, row: Row) -> Line:
    name = wording.shorten(judged.case.id, 30) or str(judged.index + 1)
    shown = wording.shorten(str(judged.case.input), 90)
    if isinstance(judged, JudgedCase):
        winner = "" if judged.best is None else wording.letter(judged.best)
        return Line(judged.index, name, shown, row, winner, "", None, None, None, None, None)
    best = judged.best
    spread = [float(v) for v in judged.spread if not math.isnan(v)] if best is not None else []
    winners = judged.tied or (() if best is None else (best,))
    first = arithmetic.top_candidates(judged.round_one)
    return Line(
        index=judged.index,
        name=name,
        input=shown,
        row=row,
        winner=wording.letters(winners),
        first_winner=wording.letters(first),
        s_norm=None if best is None else float(judged.scores[best]),
        share=None if best is None else float(judged.probabilities[best]),
        dispute=max(spread) if spread else None,
        coverage=judged.coverage,
        rounds=len(judged.convergence),
    )


def report_evaluations(found: Evaluations, facts: Mapping[str, str]) -> Report:
    """One case in full, or the aggregates of many, then their list, then those chosen in full."""
    if found.total == 1 and found.chosen:
        (judged,) = found.chosen
        title = wording.shorten(str(judged.case.input), 90)
        whole = {**facts_of(judged), **facts}
        return Report(title, say_verdict(judged), _with_legend(show_case(judged), found), whole)
    blocks = _with_legend(_show_many(found), found)
    return Report("Results of a run", _sentence(found), blocks, facts)


def _with_legend(blocks: Iterable[Block], found: Evaluations) -> Iterator[Block]:
    yield from blocks
    if found.debates:
        yield Section("How to read this", (), facts=LEGEND, folded=True)


def _sentence(found: Evaluations) -> str:
    counts = found.scores.counts.items()
    states = ", ".join(f"{number:,} {name}" for name, number in counts if number)
    said = f"{wording.count(found.total, 'case')}: {states}" if found.total else "no cases"
    mean = found.scores.mean
    if mean.value is None:
        return said
    ends = "" if mean.low is None else f" (95 % {mean.low:.3f} to {mean.high or 0:.3f})"
    share = wording.percent(found.scores.pass_rate.value)
    return f"{said}; mean score {mean.value:.3f}{ends}, {share} passed"


def _show_many(found: Evaluations) -> Iterator[Block]:
    if found.several:
        said = "A case's score is that of its best candidate; it passed where a candidate did."
        yield Note(said, "dim")
    if found.debates:
        yield _debates(found)
    bars = [
        (f"{n / BINS:.2f} to {(n + 1) / BINS:.2f}", float(number))
        for n, number in enumerate(found.histogram)
    ]
    if found.scores.scored:
        yield BarChart("Scores of all candidates, from 0 to 1", bars, format="count")
    chosen = found.chosen
    yield _list(found, {judged.index for judged in chosen})
    for judged in chosen:
        name = judged.case.id or str(judged.index + 1)
        title = f"{wording.shorten(name, 30)}: {wording.shorten(str(judged.case.input), 90)}"
        told = {"Verdict": say_verdict(judged), **facts_of(judged)}
        yield Section(title, show_case(judged), told, folded=True, anchor=_anchor(judged.index))


def _anchor(index: int) -> str:
    return f"case-{index}"


def _debates(found: Evaluations) -> Table:
    columns = (
        Column("debates", "count"),
        Column("coverage", "percent", 1),
        Column("winner not that of round 1", "count"),
        Column("failed turns", "count"),
        Column("forged marks", "count"),
    )
    share = found.coverage / found.debates
    row = (found.debates, share, found.turned, found.failed_turns, found.marks)
    return Table("Debates", columns, [row])


def _list(found: Evaluations, shown: set[int]) -> Table:
    debates = found.debates > 0
    columns = [Column("case"), Column("winner"), Column("score", "score", 3)]
    if debates:
        columns += [
            Column("s_norm", "number", 2),
            Column("softmax", "percent", 1),
            Column("round 1"),
            Column("± agents", "number", 2),
            Column("coverage", "percent", 0),
            Column("rounds", "count"),
        ]
    columns.append(Column("input"))
    rows = [_cells(line, debates=debates) for line in found.lines]
    links = [_anchor(line.index) if line.index in shown else "" for line in found.lines]
    note = ""
    if len(found.lines) < found.total:
        listed = wording.count(len(found.lines), "case")
        note = f"The first {listed} of {found.total:,} are listed; the figures above cover all."
    if len(shown) < found.total:
        number = wording.count(len(shown), "case")
        note += (
            f" Shown in full below: {number} of {found.total:,}, those that failed or on which the"
            " agents differ most."
        )
    return Table("Cases", columns, rows, note=note.strip(), links=links)


def _cells(line: Line, *, debates: bool) -> list[Cell]:
    row = line.row
    missing = row.status if row.status != "scored" else "a tie"
    cells: list[Cell] = [line.name, line.winner or missing, row.score]
    if debates:
        first = line.first_winner or None
        cells += [line.s_norm, line.share, first, line.dispute, line.coverage, line.rounds]
    reason = "" if row.status == "scored" else wording.shorten(row.reason, 160)
    return [*cells, reason or line.input]
