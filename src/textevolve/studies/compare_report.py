"""Figures of each variant of a comparison, alone and compared, and their report: tables, the
matrix, rows of files.

`textevolve.bench.variants` has the arithmetic. Outputs are read again for the matrix, so that they
are never in memory all at once.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from textevolve.bench.variants import (
    RowScores,
    compare_variants,
    mean_score,
    pass_rate,
    say_differences,
)
from textevolve.evaluation import Usage
from textevolve.images import image_reference
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Entry,
    Estimate,
    IntervalChart,
    Matrix,
    MatrixRow,
    Report,
    Table,
)
from textevolve.report.html import html_fragment
from textevolve.showing import Shown, show_as
from textevolve.statistics.comparisons import PairedDifference
from textevolve.statistics.intervals import Statistic
from textevolve.studies.aggregates import keep_greatest
from textevolve.studies.cells import estimate
from textevolve.studies.compare_cells import Output, shown
from textevolve.studies.compare_spec import CompareSpec, Variant, baseline_of, decides, variants_of
from textevolve.studies.judged_report import say_images
from textevolve.studies.study import Row

LISTED = 5
"""Of the lowest scores, and of the cells without one, so many are listed."""


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """What is known of one variant: `mean` score and `pass_rate` of its `scored` outputs,
    with 95 % intervals clustered by row. `scorers`: the mean of each
    metric and judge; `missing`: how many outputs each has no score of. `usage`: of the outputs,
    without judging; `seconds`: the median of the model's time."""

    variant: str
    outputs: int
    scored: int
    cut: int
    mean: Statistic
    pass_rate: Statistic
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

    def summarise(self, variant: str, scorers: tuple[str, ...]) -> VariantSummary:
        counts = {n: sum(map(len, self.grades.get(n, {}).values())) for n in scorers}
        return VariantSummary(
            variant=variant,
            outputs=self.outputs,
            scored=sum(map(len, self.scores.values())),
            cut=self.cut,
            mean=mean_score(self.scores),
            pass_rate=pass_rate(self.passes),
            scorers={name: mean_score(self.grades.get(name, {})) for name in scorers},
            missing={name: self.outputs - count for name, count in counts.items()},
            usage=self.usage,
            seconds=median(self.seconds) if self.seconds else None,
        )


def summarise(spec: CompareSpec, records: Iterable[Output]) -> Comparison:
    """The figures, from the cells that there are. Records that can be gone through only once are
    kept; others are read again for the matrix."""
    records = tuple(records) if isinstance(records, Iterator) else records
    named = variants_of(spec)
    tallies = {variant.name: _Tally() for variant in named}
    rows, scorers = dict[str, None](), dict[str, None]()
    worst: list[tuple[float, int, Output]] = []
    failures: list[Output] = []
    failed, judging = 0, Usage()
    for output in records:
        tallies.setdefault(output.variant, _Tally()).add(output)
        rows[output.row] = None
        scorers |= dict.fromkeys(output.grades)
        judging += output.judging
        if output.failure is not None:
            failed += 1
            failures += [output] * (len(failures) < LISTED)
        elif output.score is not None and output.score < 1:
            keep_greatest(worst, (-output.score, -output.position, output), LISTED)
    baseline = baseline_of(spec, named or [Variant(name) for name in tallies])
    first = baseline.name if baseline else ""
    return Comparison(
        baseline=first,
        decides=decides(spec),
        rows=len(rows),
        variants=tuple(t.summarise(name, tuple(scorers)) for name, t in tallies.items()),
        differences=compare_variants(_scores(tallies), first, seed=spec.seed),
        worst=tuple(output for _, _, output in sorted(worst, key=lambda one: one[:2])[::-1]),
        failures=tuple(failures),
        failed=failed,
        judging=judging,
        outputs=records,
    )


def _scores(tallies: Mapping[str, _Tally]) -> Mapping[str, RowScores]:
    return {name: tally.scores for name, tally in tallies.items()}


def report(_spec: CompareSpec, found: Comparison) -> Report:
    used = sum((v.usage for v in found.variants), Usage())
    facts = {
        "Rows": f"{found.rows:,}",
        "Score": shown(found.decides),
        "Without a score": wording.count(found.failed, "output") if found.failed else "",
        "Used for outputs": wording.spent(used) if used.calls else "",
        "Used for judging": wording.spent(found.judging) if found.judging.calls else "",
    }
    told = {name: said for name, said in facts.items() if said}
    return Report("Comparison", found.sentence, _blocks(found), told)


def _blocks(found: Comparison) -> Iterator[Block]:
    yield _variants(found)
    means = [(v.variant, estimate(v.mean)) for v in found.variants]
    yield IntervalChart("Mean scores", means)
    if found.differences:
        yield _differences(found)
    names = list(dict.fromkeys(name for v in found.variants for name in v.scorers))
    if len(names) > 1:
        yield _scorers(found, names)
    if any(v.usage.calls or v.cut or v.scored < v.outputs for v in found.variants):
        yield _spending(found)
    if found.worst:
        yield _listing("The lowest scores", found.worst)
    if found.failures:
        yield _listing("Outputs without a score", found.failures, found.failed)
    names = [v.variant for v in found.variants]
    yield Matrix("Outputs", names, matrix_rows(found.outputs, names))


def _variants(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("mean score", "number", 3),
        Column("passed", "percent", 1),
        Column("scored", "count"),
    )
    rows = [(v.variant, estimate(v.mean), estimate(v.pass_rate), v.scored) for v in found.variants]
    means = [one.mean.value for one in found.variants if one.scored]
    best = {n for n, v in enumerate(found.variants) if v.scored and v.mean.value == max(means)}
    note = "95 % intervals, clustered by row."
    marked = best if len(best) < len(found.variants) else ()
    return Table("Variants", columns, rows, frozenset(marked), note)


def _differences(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("difference", "number", 3),
        Column("rows", "count"),
        Column("p (Holm)", "p_value"),
        Column("rows needed", "count"),
    )
    rows = [
        (variant, Estimate(one.difference, one.low, one.high), one.items, one.p, one.needed)
        for variant, one in found.differences.items()
    ]
    note = (
        "On the rows that both have a score of. p: a sign-flip test. Rows needed: for a test with"
        " 80 % power to find a difference of this size."
    )
    return Table(f"Beside the baseline: {found.baseline}", columns, rows, note=note)


def _scorers(found: Comparison, names: list[str]) -> Table:
    columns = [Column("variant")]
    rows: list[list[Cell]] = [[one.variant] for one in found.variants]
    note = ""
    for name in names:
        columns.append(Column(wording.shorten(shown(name), 40), "number", 3))
        missing = [one.missing.get(name, one.outputs) for one in found.variants]
        if any(missing):
            columns.append(Column("missing", "count"))
            note = "Missing: outputs that it gave no score of, and those that there are not."
        for one, row, number in zip(found.variants, rows, missing, strict=True):
            figure = estimate(one.scorers.get(name, Statistic()))
            row += [figure, number] if any(missing) else [figure]
    return Table("Each metric and judge", columns, rows, note=note)


def _spending(found: Comparison) -> Table:
    columns = (
        Column("variant"),
        Column("outputs", "count"),
        Column("without a score", "count"),
        Column("cut at the limit", "count"),
        Column("prompt tokens", "count"),
        Column("output tokens", "count"),
        Column("median time", "duration"),
        Column("cost", "money"),
    )
    rows: list[list[Cell]] = []
    for one in found.variants:
        used = one.usage
        tokens = (used.prompt_tokens, used.completion_tokens) if used.calls else (None, None)
        counts = (one.outputs, one.outputs - one.scored, one.cut)
        cost = used.cost if used.calls else None
        rows.append([one.variant, *counts, *tokens, one.seconds, cost])
    return Table("What the outputs took", columns, rows)


def _listing(title: str, outputs: tuple[Output, ...], total: int = 0) -> Table:
    columns = (
        Column("row"),
        Column("variant"),
        Column("score", "score", 2),
        Column("output"),
        Column("reason"),
    )
    rows = [
        (
            one.row,
            one.variant,
            one.score,
            wording.shorten(one.text, 80),
            wording.shorten(one.failure.reason if one.failure else one.reason, 80),
        )
        for one in outputs
    ]
    more = total - len(outputs)
    return Table(title, columns, rows, note=f"{more:,} more left out." if more > 0 else "")


def matrix_rows(outputs: Iterable[Output], names: Sequence[str]) -> Iterator[MatrixRow]:
    """A row for each sample of each row of the data, as they are read."""
    for (row, sample), cells in itertools.groupby(outputs, lambda o: (o.row, o.sample)):
        given = {output.variant: output for output in cells}
        first = next(iter(given.values()))
        name = row if not sample else f"{row}, sample {sample + 1}"
        entries = [_entry(given[n]) if n in given and _is_there(given[n]) else None for n in names]
        facts = say_images(first.images)
        yield MatrixRow(name, first.input, entries, first.reference or "", facts)


def _is_there(output: Output) -> bool:
    """Whether it came to anything: what an interrupted run has not asked yet has not failed."""
    return bool(output.text) or output.failure is None or output.failure.kind != "skipped"


def _entry(output: Output) -> Entry:
    facts = {
        "tokens": f"{output.usage.tokens:,}" if output.usage.calls else "",
        "time": "" if output.seconds is None else wording.duration(output.seconds),
        "cost": wording.money(output.usage.cost) if output.usage.cost else "",
        "cut": "at the token limit" if output.cut else "",
    }
    grades = {shown(name): grade for name, grade in output.grades.items()}
    reasons = {n: g.failure.reason if g.failure else g.reason for n, g in grades.items()}
    return Entry(
        output=output.text,
        scores={name: grade.score for name, grade in grades.items()},
        passed=output.passed,
        reasons={name: said for name, said in reasons.items() if said},
        failure=output.failure.reason if output.failure else "",
        facts={name: said for name, said in facts.items() if said},
    )


def find_row(output: Output) -> Row:
    missing = [grade.failure for grade in output.grades.values() if grade.failure]
    skipped = next((one for one in missing if one.kind == "skipped"), None)
    failure, sample = skipped or output.failure, output.sample + 1
    return Row(
        key=f"{output.row.replace('|', '||')}|{output.variant}" + f"|{sample}" * (sample > 1),
        position=output.position,
        case=output.row,
        score=output.score,
        status=failure.kind if failure else "scored",
        reason=failure.reason if failure else output.reason,
        variant=output.variant,
        passed=output.passed,
    )


def flatten(output: Output) -> Iterator[Mapping[str, Any]]:
    """One row: what was asked and given, each score in a column of its own."""
    row = find_row(output)
    own = {name: value for name, value in asdict(output).items() if name not in _NESTED}
    scores = {shown(name): grade.score for name, grade in output.grades.items()}
    reasons = {shown(name): grade.reason or None for name, grade in output.grades.items()}
    several = {"reasons": reasons} if len(reasons) > 1 else {}
    several |= {"images": list(map(image_reference, output.images))} if output.images else {}
    yield {
        **own,
        "status": row.status,
        "reason": row.reason or None,
        "scores": scores,
        **several,
        "usage": asdict(output.usage),
        "judging": asdict(output.judging),
    }


_NESTED = ("failure", "grades", "reason", "usage", "judging", "images")


def data(_spec: CompareSpec, found: Comparison) -> Mapping[str, Any]:
    variants = [
        {
            **asdict(one),
            **{name: estimate(getattr(one, name)) for name in _FIGURES},
            "scorers": {name: estimate(figure) for name, figure in one.scorers.items()},
        }
        for one in found.variants
    ]
    return {
        "sentence": found.sentence,
        "baseline": found.baseline,
        "decides": found.decides,
        "rows": found.rows,
        "variants": variants,
        "differences": {
            variant: {**asdict(one), "difference": one.difference}
            for variant, one in found.differences.items()
        },
        "worst": [next(flatten(output)) for output in found.worst],
        "failures": [next(flatten(output)) for output in found.failures],
        "failed": found.failed,
        "judging": found.judging,
    }


_FIGURES = ("mean", "pass_rate")


def _draw(found: Comparison) -> str:
    """What a notebook shows."""
    return html_fragment(Report("Comparison", found.sentence, _blocks(found)))


def _rows(found: Comparison) -> Iterator[Mapping[str, Any]]:
    return (row for output in found.outputs for row in flatten(output))


show_as(Comparison, _draw, _rows)
