"""What the cells of a comparison come to: figures of each variant, alone and compared.

The arithmetic is in `textevolve.bench.variants`; what people are shown is `compare_report`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from textevolve.bench.variants import (
    RowScores,
    VariantOutcomes,
    compare_variants,
    mean_score,
    outcomes_of,
    pass_rate,
    say_differences,
    strengths,
    win_rates,
)
from textevolve.evaluation import Usage
from textevolve.report import wording
from textevolve.showing import Shown
from textevolve.statistics.comparisons import PairedDifference
from textevolve.statistics.intervals import Statistic
from textevolve.studies.aggregates import keep_greatest
from textevolve.studies.compare_cells import Output
from textevolve.studies.compare_spec import CompareSpec, Variant, baseline_of, decides, variants_of

LISTED = 5
"""Of the lowest scores, and of the cells without one, so many are listed."""


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """What is known of one variant: `mean` score and `pass_rate` of its `scored` outputs, its
    `win_rate` against the others and its Bradley-Terry `strength`, with 95 % intervals clustered by
    row. `scorers`: the mean of each metric and judge; `missing`: how many outputs each has no score
    of. `usage`: of the outputs, without judging; `seconds`: the median of the model's time."""

    variant: str
    outputs: int
    scored: int
    cut: int
    mean: Statistic
    pass_rate: Statistic
    win_rate: Statistic
    strength: Statistic
    scorers: Mapping[str, Statistic]
    missing: Mapping[str, int]
    usage: Usage
    seconds: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """What was found: each variant by itself, and each beside the baseline. `decides`: whose score
    it is. `worst`: the lowest scores; `failures`: the first outputs without one, of `failed` in
    all. `judging`: what the judges used. `outputs`: all cells, in the order of the rows."""

    baseline: str
    decides: str
    rows: int
    variants: tuple[VariantSummary, ...]
    differences: Mapping[str, PairedDifference]
    worst: tuple[Output, ...]
    failures: tuple[Output, ...]
    failed: int
    judging: Usage
    outputs: Iterable[Output]

    def __repr__(self) -> str:
        return f"Comparison({self.sentence})"

    @property
    def sentence(self) -> str:
        """What is known, in plain words."""
        if not self.variants:
            return "There are no outputs."
        said = say_differences(self.differences, self.baseline)
        if len(self.variants) == 1 and (mean := self.variants[0].mean.value) == mean:
            said = f"{self.baseline} scores {mean:.3f} in the mean; there is nothing beside it."
        replaced = (wording.other_models(one.usage) for one in self.variants)
        if others := "; ".join(dict.fromkeys(filter(None, replaced))):
            said += f" Not every output is its variant's own: {others}."
        failed = wording.count(self.failed, "output")
        return f"{said} {failed} without a score left out." if self.failed else said


@dataclass
class _Tally:
    """The figures of one variant while its outputs go by."""

    grades: dict[str, dict[str, list[float]]] = field(
        default_factory=dict[str, dict[str, list[float]]]
    )
    scores: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    passes: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])
    seconds: array[float] = field(default_factory=lambda: array("d"))
    outputs: int = 0
    cut: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, output: Output) -> None:
        self.outputs += 1
        self.cut += output.cut
        self.usage += output.usage
        if output.seconds is not None:
            self.seconds.append(output.seconds)
        for name, grade in output.grades.items():
            if grade.score is not None:
                self.grades.setdefault(name, {}).setdefault(output.row, []).append(grade.score)
        if output.score is not None:
            self.scores.setdefault(output.row, []).append(output.score)
            self.passes.setdefault(output.row, []).append(bool(output.passed))

    def summarise(
        self, variant: str, scorers: tuple[str, ...], win: Statistic, strength: Statistic
    ) -> VariantSummary:
        counts = {n: sum(map(len, self.grades.get(n, {}).values())) for n in scorers}
        return VariantSummary(
            variant=variant,
            outputs=self.outputs,
            scored=sum(map(len, self.scores.values())),
            cut=self.cut,
            mean=mean_score(self.scores),
            pass_rate=pass_rate(self.passes),
            win_rate=win,
            strength=strength,
            scorers={name: mean_score(self.grades.get(name, {})) for name in scorers},
            missing={name: self.outputs - count for name, count in counts.items()},
            usage=self.usage,
            seconds=median(self.seconds) if self.seconds else None,
        )


def summarise(spec: CompareSpec, records: Iterable[Output]) -> Comparison:
    """The figures, from the cells that there are. Records that can be gone through only once are
    kept; others are read again for the matrix."""
    records = tuple(records) if isinstance(records, Iterator) else records
    named = () if spec.outputs_of is not None else variants_of(spec)
    tallies = {variant.name: _Tally() for variant in named}
    rows, scorers = dict[str, None](), dict[str, None]()
    wins = dict[tuple[str, str, str], list[float]]()
    worst: list[tuple[float, int, Output]] = []
    failures: list[Output] = []
    failed, judging = 0, Usage()
    for output in records:
        tallies.setdefault(output.variant, _Tally()).add(output)
        rows[output.row] = None
        scorers |= dict.fromkeys(output.grades)
        judging += output.judging
        for other, won in output.wins.items():
            wins.setdefault((output.row, output.variant, other), []).append(won)
        if output.failure is not None:
            failed += 1
            failures += [output] * (len(failures) < LISTED)
        elif output.score is not None and output.score < 1:
            keep_greatest(worst, (-output.score, -output.position, output), LISTED)
    names = list(tallies)
    scored = [one.scores for one in tallies.values()]
    found = _read_wins(wins, list(rows), names) if wins else outcomes_of(scored)
    figures = zip(win_rates(found), strengths(found), strict=True)
    baseline = baseline_of(spec, named or [Variant(name) for name in names])
    first = baseline.name if baseline else ""
    return Comparison(
        baseline=first,
        decides=decides(spec),
        rows=len(rows),
        variants=tuple(
            tally.summarise(name, tuple(scorers), win, strength)
            for (name, tally), (win, strength) in zip(tallies.items(), figures, strict=True)
        ),
        differences=compare_variants(_scores(tallies), first, seed=spec.seed),
        worst=tuple(output for _, _, output in sorted(worst, key=lambda one: one[:2])[::-1]),
        failures=tuple(failures),
        failed=failed,
        judging=judging,
        outputs=records,
    )


def _scores(tallies: Mapping[str, _Tally]) -> Mapping[str, RowScores]:
    return {name: tally.scores for name, tally in tallies.items()}


def _read_wins(
    wins: Mapping[tuple[str, str, str], list[float]], rows: list[str], names: list[str]
) -> VariantOutcomes:
    """The outcomes of comparisons of two outputs each, the mean over a row's samples."""
    place, column = ({name: n for n, name in enumerate(given)} for given in (rows, names))
    found = np.full((len(rows), len(names), len(names)), np.nan)
    for (row, one, other), won in wins.items():
        found[place[row], column[one], column[other]] = fmean(won)
    return found
