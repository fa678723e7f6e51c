"""What many judged cases come to beside their aggregates: a matrix of the cases, of which
those that matter most can be opened in full.

Everything is added up record by record, so memory does not grow with the number of cases beyond
what is shown of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from textevolve.debate import tensor as arithmetic
from textevolve.debate.result import DebateResult
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.judges.judged import JudgedCase
from textevolve.report import wording
from textevolve.report.blocks import (
    BarChart,
    Block,
    Column,
    Matrix,
    MatrixRow,
    Note,
    Report,
    Section,
    Table,
)
from textevolve.studies.aggregates import Aggregates, keep_greatest, say_mean
from textevolve.studies.judged_report import (
    COMPACT,
    Judged,
    count_decided,
    count_marks,
    facts_of,
    make_row,
    say_decided,
    say_verdict,
    show_case,
    whole_row,
)
from textevolve.studies.study import Row

ALL_IN_FULL = 500
IN_FULL_OF_MANY = 100
LISTED = 5000
BINS = 10
CHARTED = 8
"""From how many scores on there is a chart of them; fewer are read one by one."""

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
    """What the figures need of a case. `dispute`: the largest spread over agents of any candidate;
    None where there is no score."""

    winner: str = ""
    first_winner: str = ""
    dispute: float | None = None

    @property
    def turned(self) -> bool:
        return bool(self.winner) and bool(self.first_winner) and self.winner != self.first_winner


@dataclass
class Evaluations:
    """What is known of all cases together. `scores`: of the best candidate of each scored case;
    `decided`: how many of them each judge of a cascade decided; `listed`: the first cases, with the
    beginning of their texts; `chosen`: the cases that are shown whole."""

    total: int = 0
    scores: Aggregates = field(default_factory=Aggregates)
    usage: Usage = field(default_factory=Usage)
    coverage: float = 0.0
    debates: int = 0
    turned: int = 0
    failed_turns: int = 0
    marks: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)
    candidates: int = 0
    decided: Counter[str] = field(default_factory=Counter[str])
    listed: list[MatrixRow] = field(default_factory=list[MatrixRow])
    _first: list[Judged] = field(default_factory=list[Judged])
    _urgent: list[tuple[float, int, Judged]] = field(
        default_factory=list[tuple[float, int, Judged]]
    )

    def add(self, judged: Judged, row: Row) -> None:
        line = _line(judged)
        self.total += 1
        self.scores.add(row)
        self.candidates = max(self.candidates, len(judged.case.candidates))
        self.usage += judged.usage
        self.decided += count_decided(judged)
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
        if len(self.listed) < LISTED:
            self.listed.append(make_row(judged, COMPACT))
        if self.total <= ALL_IN_FULL:
            self._first.append(judged)
        else:
            self._first.clear()
        urgency = math.inf if line.dispute is None else line.dispute
        keep_greatest(self._urgent, (urgency, -self.total, judged), IN_FULL_OF_MANY)

    @property
    def chosen(self) -> list[Judged]:
        """The cases that are shown in full, in the order in which they came."""
        return list(self.numbered.values())

    @property
    def numbered(self) -> dict[int, Judged]:
        """The chosen cases by their numbers, from 1 on."""
        if self._first or not self._urgent:
            return dict(enumerate(self._first, 1))
        return {-item[1]: item[2] for item in sorted(self._urgent, key=lambda item: -item[1])}


def _line(judged: Judged) -> Line:
    if isinstance(judged, JudgedCase):
        return Line()
    best = judged.best
    spread = [float(v) for v in judged.spread if not math.isnan(v)] if best is not None else []
    winners = judged.tied or (() if best is None else (best,))
    first = arithmetic.top_candidates(judged.round_one)
    dispute = max(spread) if spread else None
    return Line(wording.letters(winners), wording.letters(first), dispute)


def report_evaluations(found: Evaluations, facts: Mapping[str, str]) -> Report:
    """One case in full, or the aggregates of many, then their list, then those chosen in full."""
    if found.total == 1 and found.chosen:
        (judged,) = found.chosen
        title = wording.shorten(str(judged.case.input), 90)
        whole = {**facts_of(judged), **facts}
        return Report(title, say_verdict(judged), _with_legend(show_case(judged), found), whole)
    blocks = _with_legend(_show_many(found), found)
    decided = {"Decided by": say_decided(found.decided)} if found.decided else {}
    return Report("Results of a run", _sentence(found), blocks, {**facts, **decided})


def _with_legend(blocks: Iterable[Block], found: Evaluations) -> Iterator[Block]:
    yield from blocks
    if found.debates:
        yield Section("How to read this", (), facts=LEGEND, folded=True)


def _sentence(found: Evaluations) -> str:
    counts = found.scores.counts.items()
    states = ", ".join(f"{number:,} {name}" for name, number in counts if number)
    said = f"{wording.count(found.total, 'case')}: {states}" if found.total else "no cases"
    if not (mean := say_mean(found.scores.mean)):
        return said
    share = wording.percent(found.scores.pass_rate.value)
    return f"{said}; {mean}, {share} passed"


def _show_many(found: Evaluations) -> Iterator[Block]:
    if found.candidates > 1:
        said = "A case's score is that of its best candidate; it passed where a candidate did."
        yield Note(said, "dim")
    if found.debates:
        yield _debates(found)
    bars = [
        (f"{n / BINS:.1f} to {(n + 1) / BINS:.1f}", float(number))
        for n, number in enumerate(found.histogram)
    ]
    if sum(found.histogram) >= CHARTED:
        yield BarChart("Scores of all candidates, from 0 to 1", bars, format="count")
    chosen = found.numbered
    if note := _say_shown(found, len(chosen)):
        yield Note(note, "dim")
    names = [wording.letter(j) for j in range(max(1, found.candidates))]
    yield Matrix("Cases", names, _rows(found, chosen, len(names)))


def _rows(found: Evaluations, chosen: Mapping[int, Judged], columns: int) -> Iterator[MatrixRow]:
    """The cases that are listed, whole where they are shown so, and those that are only shown."""
    after = [number for number in chosen if number > len(found.listed)]
    for number in (*range(1, len(found.listed) + 1), *after):
        whole = whole_row(chosen[number]) if number in chosen else found.listed[number - 1]
        missing = (None,) * (columns - len(whole.entries))
        yield replace(whole, entries=(*whole.entries, *missing))


def _say_shown(found: Evaluations, shown: int) -> str:
    said: list[str] = []
    if len(found.listed) < found.total:
        listed = wording.count(len(found.listed), "case")
        said.append(f"The first {listed} of {found.total:,} are listed; the figures cover all.")
    if shown < found.total:
        number = wording.count(shown, "case")
        said.append(
            f"Shown in full: {number} of {found.total:,}, those that failed or on which the agents"
            f" differ most; of the others at most {COMPACT:,} characters of each text."
        )
    return " ".join(said)


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
