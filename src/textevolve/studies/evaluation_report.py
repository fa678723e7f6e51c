"""What many judged cases come to beside their aggregates: a matrix of the cases, of which the
first can be opened in full.

Everything is added up record by record, so memory does not grow with the number of cases beyond
what is shown of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from textevolve.debate import tensor as arithmetic
from textevolve.debate.result import DebateResult
from textevolve.evaluation import Usage
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Column,
    Matrix,
    MatrixRow,
    Note,
    Report,
    Section,
    Table,
)
from textevolve.studies.aggregates import Aggregates, say_mean
from textevolve.studies.judged_report import (
    Judged,
    count_decided,
    facts_of,
    say_decided,
    say_verdict,
    show_case,
    whole_row,
)
from textevolve.studies.study import Row

IN_FULL = 1000
"""Of how many cases the texts and all that was said are shown."""

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


@dataclass
class Evaluations:
    """What is known of all cases together. `scores`: of the best candidate of each scored case;
    `decided`: how many of them each judge of a cascade decided; `chosen`: the first cases, which
    are shown."""

    total: int = 0
    scores: Aggregates = field(default_factory=Aggregates)
    usage: Usage = field(default_factory=Usage)
    coverage: float = 0.0
    debates: int = 0
    turned: int = 0
    failed_turns: int = 0
    candidates: int = 0
    decided: Counter[str] = field(default_factory=Counter[str])
    chosen: list[Judged] = field(default_factory=list[Judged])

    def add(self, judged: Judged, row: Row) -> None:
        self.total += 1
        self.scores.add(row)
        self.candidates = max(self.candidates, len(judged.case.candidates))
        self.usage += judged.usage
        self.decided += count_decided(judged)
        if isinstance(judged, DebateResult):
            self.debates += 1
            self.coverage += judged.coverage
            self.failed_turns += sum(turn.failure is not None for turn in judged.turns)
            self.turned += _is_turned(judged)
        if self.total <= IN_FULL:
            self.chosen.append(judged)


def _is_turned(result: DebateResult) -> bool:
    """Whether the debate ended with another winner than its first round had."""
    winners = result.tied or (() if result.best is None else (result.best,))
    first = arithmetic.top_candidates(result.round_one)
    return bool(winners) and bool(first) and tuple(winners) != tuple(first)


def report_evaluations(found: Evaluations, facts: Mapping[str, str]) -> Report:
    """One case in full, or the aggregates of many, then their list, then those chosen in full."""
    if found.total == 1:
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
    if found.total > len(found.chosen):
        shown = wording.count(len(found.chosen), "case")
        yield Note(f"Shown: the first {shown} of {found.total:,}; the figures cover all.", "dim")
    names = [wording.letter(j) for j in range(max(1, found.candidates))]
    yield Matrix("Cases", names, _rows(found, len(names)))


def _rows(found: Evaluations, columns: int) -> Iterator[MatrixRow]:
    for row in map(whole_row, found.chosen):
        missing = (None,) * (columns - len(row.entries))
        yield replace(row, entries=(*row.entries, *missing))


def _debates(found: Evaluations) -> Table:
    columns = (
        Column("debates", "count"),
        Column("coverage", "percent", 1),
        Column("winner not that of round 1", "count"),
        Column("failed turns", "count"),
    )
    share = found.coverage / found.debates
    row = (found.debates, share, found.turned, found.failed_turns)
    return Table("Debates", columns, [row])
