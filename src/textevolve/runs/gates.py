"""Gates: limits on the scores of a run, which make a build fail if quality falls.

`check_gates` checks the rows of any kind of study, without a store. `GateWatch` checks a run while
it is performed, and looks up the earlier run that its scores are compared with.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import model_validator

from textevolve.engine import sync
from textevolve.errors import InputError, StoreAwayError, StoreError
from textevolve.evaluation import ROUNDING, reaches
from textevolve.mappings import first_of
from textevolve.report import wording
from textevolve.report.blocks import Block, Estimate, Table
from textevolve.report.files import JUnitCase, JUnitSuite
from textevolve.rows.writing import flat_cells, plain
from textevolve.runs import driver
from textevolve.runs.aggregates import Aggregates, aggregate, estimate, join_clusters
from textevolve.runs.identity import describe_scorers, require_same_cases, require_same_ruler
from textevolve.runs.stored import StudyRun, read_records
from textevolve.runs.study import AnyStudy, Row
from textevolve.settings import Settings
from textevolve.spec import Frozen, option
from textevolve.statistics.comparisons import ALPHA, compare_pairs, items_needed
from textevolve.statistics.intervals import betting_interval
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord

GROUP = "Gates (exit code 4 where one fails)"
MARGIN = 0.02  # the default for how much worse the mean score may be than the baseline's
LAST = "last"  # the name that stands for the newest other run, as the baseline
DIFFERENCES = (-1.0, 1.0)  # the range of a difference between two scores
MOST_DIGITS = 9  # the most digits of a figure that is close to its limit
NAMED = 5  # the number of cases that a message names
AGREEMENT = "min agreement"  # the name of the gate on the judges' agreement with people
FLIPS = "max flips"  # the name of the gate on the judges' agreement with themselves


class Gates(Frozen):
    """Limits for the scores of a run. In a comparison each variant must reach them, except the one
    that `no_worse_than` names."""

    min_pass_rate: float | None = option(
        None, "The least share of records that must pass, from 0 to 1.", group=GROUP, ge=0, le=1
    )
    min_mean: float | None = option(
        None, "The least mean score, from 0 to 1.", group=GROUP, ge=0, le=1
    )
    no_worse_than: str | None = option(
        None,
        "A run or variant whose mean score is the baseline: the mean may be lower by at most"
        " --margin.",
        group=GROUP,
        metavar="RUN",
        min_length=1,
    )
    margin: float | None = option(
        None,
        "The most by which the mean score may be below that of --no-worse-than.  [default:"
        f" {MARGIN}]",
        group=GROUP,
        ge=0,
        le=1,
    )
    fail_if_worse: bool = option(
        False,
        "Fail only if the mean score is significantly below that of --no-worse-than (5 %), in place"
        " of the margin; the gate says how large a fall these rows can show.",
        group=GROUP,
    )
    max_regressions: int | None = option(
        None,
        "The most cases that passed in the run of --no-worse-than and fail now; the mean is then"
        " checked only with --margin. Default: no limit.",
        group="Advanced",
        ge=0,
    )
    max_failed: float | None = option(
        None,
        "The most records without a score, as a number such as 3 or a share such as 0.02;"
        " default: 0.",
        group=GROUP,
        metavar="NUMBER|SHARE",
        ge=0,
    )
    min_agreement: float | None = option(
        None,
        "The least agreement of each judge with people in --measured-on, from 0 to 1: the lower"
        " end of its 95 % interval. If a judge is below it, or was not measured, the run fails"
        " before any call.",
        group=GROUP,
        ge=0,
        le=1,
    )
    max_flips: float | None = option(
        None,
        "The most items, as a share from 0 to 1, on which a judge's verdict flips between the"
        " --samples of --measured-on: the upper end of the 95 % interval. Checked like"
        " --min-agreement.",
        group=GROUP,
        ge=0,
        le=1,
    )
    measured_on: str | None = option(
        None,
        "The run of `bench agreement` that measured the judges, by name or id, or its file of"
        " labels.",
        group=GROUP,
        metavar="RUN|FILE",
        min_length=1,
    )
    pass_threshold: float | None = option(
        None,
        "The score from which a record passes; default: its own verdict.",
        group="Advanced",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _usable(self) -> Gates:
        given = {
            "--margin": self.margin is not None,
            "--max-regressions": self.max_regressions is not None,
            "--fail-if-worse": self.fail_if_worse,
        }
        for name, is_given in given.items():
            if is_given and self.no_worse_than is None:
                raise InputError(f"{name}: needs --no-worse-than, which is missing")
        if self.fail_if_worse and self.margin is not None:
            raise InputError(
                "--fail-if-worse and --margin exclude each other: a margin must be shown not to be"
                " lost, while this gate fails only at a loss that is shown"
            )
        if (self.min_agreement is None and self.max_flips is None) != (self.measured_on is None):
            raise InputError(
                "--min-agreement or --max-flips, and --measured-on, belong together: one is missing"
            )
        return self

    @property
    def any(self) -> bool:
        """Return whether a gate is set. `pass_threshold` alone is no gate, since it cannot fail."""
        limits = [value for name, value in self if name != "pass_threshold"]
        return any(limit is not None and limit is not False for limit in limits)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """The outcome of one gate, for one variant if the run compares several.

    Attributes:
        gate: The name of the gate, such as "min mean".
        holds: Whether the gate passes.
        found: A sentence with the figure, its 95 % interval and its limit.
        value: The figure; None if it is missing.
        variant: The variant; empty if there is only one.
    """

    gate: str
    holds: bool
    found: str
    value: float | None = None
    variant: str = ""

    def __str__(self) -> str:
        of = f" for {wording.shorten(self.variant, 60)}" if self.variant else ""
        return f"gate {'holds' if self.holds else 'fails'}{of}: {self.found}"


@dataclass(frozen=True, slots=True)
class Gated:
    """The gates of a run with their outcomes; there are neither if the run has no gates."""

    gates: Gates = field(default_factory=Gates)
    outcomes: Sequence[GateOutcome] = ()

    @property
    def holds(self) -> bool:
        return all(outcome.holds for outcome in self.outcomes)


UNGATED = Gated()  # the value for a run without gates


def check_gates(
    rows: Iterable[Row],
    gates: Gates,
    earlier: Iterable[Row] | None = None,
    *,
    itself: bool = False,
    is_first: bool = False,
    judges: Sequence[GateOutcome] = (),
) -> list[GateOutcome]:
    """Return the outcome of each gate. A record without a score counts against the gate "max
    failed", as does a case of the baseline that this run lacks; if `max_failed` is not set, none is
    allowed.

    `rows`: the rows of a run, with unique keys. `earlier`: the rows of the run that `no_worse_than`
    names, unless it names a variant. `itself`: whether that run is this one; `is_first`: whether
    there is no earlier run of the kind. `judges`: the outcomes
    of `check_judges`, which reads the store; without them the gate `min_agreement` fails.
    """
    if not gates.any:
        return []
    by_variant = aggregate(rows, gates.pass_threshold)
    name = gates.no_worse_than
    checked = [variant for variant in by_variant if variant != name] or [""]
    baselines: dict[str, Aggregates] = {}
    excuse = ""

    if itself:
        excuse = f"this is the run {name} itself"
    elif earlier is not None:
        baselines = aggregate(earlier, gates.pass_threshold)
        checked = list({**by_variant, **baselines})
    elif name in by_variant:
        baselines = dict.fromkeys(checked, by_variant[name])
    elif is_first or name == LAST:
        excuse = "no earlier run of the kind to compare with"

    outcomes = list(judges)
    if gates.measured_on is not None and not judges:
        name = AGREEMENT if gates.max_flips is None else FLIPS
        outcomes.append(GateOutcome(name, False, "not checked: it needs the run in its store"))
    for variant in checked or [""]:
        baseline = baselines.get(variant)
        rows_of = by_variant.get(variant, Aggregates())
        for gate, (holds, statement, value) in _check(
            rows_of, gates, baseline, excuse, bool(by_variant)
        ):
            outcomes.append(GateOutcome(gate, holds, statement, value, variant))

    return outcomes


# The outcome of a check: whether it holds, the sentence about it, and the figure.
_GateFinding: TypeAlias = tuple[bool, str, float | None]


def _check(
    figures: Aggregates, gates: Gates, baseline: Aggregates | None, excuse: str, has_rows: bool
) -> Iterable[tuple[str, _GateFinding]]:
    """Yield the gates of one variant with their outcomes. `excuse`: the reason why there is no
    baseline to compare with. `has_rows`: whether the run has rows, possibly of other variants
    only."""
    name = gates.no_worse_than
    missing = figures.count_missing(baseline) if baseline else 0
    absent = missing > 0 and not figures.records
    coverage = _check_coverage(figures, gates.max_failed or 0, missing, absent and has_rows)
    if gates.max_failed is not None or not coverage[0]:
        yield "max failed", coverage
    if absent:
        return
    if gates.min_pass_rate is not None:
        yield "min pass rate", _check_pass_rate(figures, gates.min_pass_rate)
    if gates.min_mean is not None:
        yield "min mean", _compare("mean", figures.mean, gates.min_mean)
    if name is None:
        return
    if excuse:
        yield "no worse than", (True, excuse, None)
        return
    if baseline is None or not (pairs := _pair(figures.case_means(), baseline.case_means())):
        statement = f"not compared with {name}: no case is scored in both"
        yield "no worse than", (False, statement, None)
        return

    vouched = _check_baseline(baseline, name, gates.max_failed or 0)
    if gates.max_regressions is not None:
        passes = _pair(figures.case_passes(), baseline.case_passes())
        finding = _check_regressions(passes, name, gates.max_regressions)
        yield "max regressions", _join_findings(finding, vouched)
    clusters = join_clusters([baseline, figures])
    if gates.fail_if_worse:
        finding = _check_loss(pairs, clusters, name)
        yield "no worse than", _join_findings(finding, vouched)
    elif gates.max_regressions is None or gates.margin is not None:
        margin = MARGIN if gates.margin is None else gates.margin
        finding = _check_difference(pairs, clusters, name, margin)
        yield "no worse than", _join_findings(finding, vouched)


def _check_baseline(baseline: Aggregates, name: str, most: float) -> _GateFinding:
    """Check that at most `most` records of the baseline (below 1: that share) lack a score: for
    those it vouches for nothing."""
    lacking = baseline.unscored
    if not lacking:
        return True, "", None
    holds = lacking <= _count_allowed(most, baseline.records)
    records = wording.count(baseline.records, "record")
    statement = f"{lacking:,} of {records} of {name} have no score"
    if not holds:
        statement += (
            f", so nothing vouches for them: run {name} to its end, or allow it with --max-failed"
            f" {lacking}"
        )

    return holds, statement, float(lacking)


def _join_findings(finding: _GateFinding, vouched: _GateFinding) -> _GateFinding:
    """Return a finding with that about the baseline, which must hold, too."""
    holds, statement, value = finding
    return holds and vouched[0], "; ".join(filter(None, [statement, vouched[1]])), value


def _count_allowed(most: float, records: int) -> float:
    """Return how many records may lack a score: `most`, or that share of them if it is below 1."""
    return (most * records if 0 < most < 1 else most) + ROUNDING


def _pair(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the two values of each case that both runs have."""
    return {case: (ours[case], theirs[case]) for case in ours if case in theirs}


def _check_coverage(figures: Aggregates, most: float, missing: int, absent: bool) -> _GateFinding:
    """Check that at most `most` records (below 1: that share of them) lack a score, and that there
    is a score at all. `missing`: the number of rows of the baseline that have no record; `absent`:
    whether the variant has no records at all."""
    share = 0 < most < 1
    records = figures.records + missing
    lacking = figures.unscored + missing
    noun = "record"
    # The one record of a search has a score, even if some of its trials have none.
    if not lacking and figures.trials[1]:
        lacking, records = figures.trials
        noun = "trial"

    limit = wording.percent(most, 1) if share else f"{most:,g}"
    lack = f"{lacking:,} of {wording.count(records, noun)}"
    if not figures.scored and not absent:
        return False, f"{lack} have no score: there is nothing to judge by", float(lacking)
    holds = lacking <= _count_allowed(most, records)
    left_out = f" ({missing:,} of the baseline {'is' if missing == 1 else 'are'} missing)"
    statement = f"{lack} without a score{left_out if missing else ''}"

    return holds, f"{statement}, {'at most' if holds else 'more than'} {limit}", float(lacking)


def _check_pass_rate(figures: Aggregates, least: float) -> _GateFinding:
    if missing := figures.scored - figures.verdicts:
        unjudged = f"{wording.count(missing, 'record')} with a score but no verdict"
        return False, f"pass rate unknown: {unjudged}; give --pass-threshold", None
    return _compare("pass rate", figures.pass_rate, least)


def _compare(name: str, figure: Estimate, least: float) -> _GateFinding:
    if figure.value is None:
        return False, f"{name} unknown: no record has a score", None
    holds = reaches(figure.value, least)
    statement = (
        f"{name} {_format_figure(figure, least)}, {'at least' if holds else 'below'} {least:g}"
    )
    return holds, statement, figure.value


def _format_figure(figure: Estimate, limit: float | None = None) -> str:
    """Format a figure with its interval, and with so many digits that a reader sees on which side
    of the limit it lies."""
    digits = 3
    value = figure.value
    if value is not None and limit is not None and not reaches(value, limit):
        while digits < MOST_DIGITS and round(value, digits) >= limit:
            digits += 1
    ends = "no interval"
    if figure.low is not None and figure.high is not None:
        ends = f"95 % {figure.low:.3f} to {figure.high:.3f}"
    return f"{wording.number(figure.value, digits)} ({ends})"


def _check_difference(
    pairs: Mapping[str, tuple[float, float]], clusters: Mapping[str, str], name: str, margin: float
) -> _GateFinding:
    """Check non-inferiority to the baseline: the gate passes if the lower end of the 95 % interval
    of the paired mean difference (this run's scores minus the baseline's) is above `-margin`.
    `clusters`: the cluster of each case; the cases of one depend on each other."""
    if not all(0 <= score <= 1 for pair in pairs.values() for score in pair):
        return False, f"not compared with {name}: scores lie outside 0 to 1", None
    gaps: dict[str, list[float]] = {}
    for case, (ours, theirs) in pairs.items():
        gaps.setdefault(clusters[case], []).append(ours - theirs)

    # Their mean is the mean over all cases: a cluster counts by the number of its cases.
    size = len(pairs) / len(gaps)
    sums = [sum(members) / size for members in gaps.values()]
    difference = sum(sums) / len(sums)
    most = max(map(len, gaps.values())) / size
    interval = betting_interval(sums, (-most, most))
    low = max(interval.low, DIFFERENCES[0])
    high = min(interval.high, DIFFERENCES[1])
    holds = low > -margin
    cases = wording.count(len(pairs), "case")
    if len(gaps) < len(pairs):
        cases += f" in {wording.count(len(gaps), 'independent group')}"
    ends = f"95 % {low:+.3f} to {high:+.3f}, {cases}"
    statement = f"difference to {name} {difference:+.3f} ({ends})"
    if holds or difference <= -margin:
        return holds, f"{statement}, {'above' if holds else 'not above'} {-margin:g}", difference
    statement = f"{statement}, not shown to be above {-margin:g}: too few rows"

    return False, f"{statement}; --max-regressions judges these rows alone", difference


def _check_loss(
    pairs: Mapping[str, tuple[float, float]], clusters: Mapping[str, str], name: str
) -> _GateFinding:
    """Check that the mean score is not significantly below that of the baseline: the gate fails at
    a loss with p at most 0.05 by the two-sided sign-flip test of the report. Equal quality thus
    fails in at most 2.5 % of builds, whatever the noise of the judge. The sentence names the
    smallest fall that such a test finds in 80 % of builds."""
    ours = [score for score, _ in pairs.values()]
    theirs = [score for _, score in pairs.values()]
    groups = [clusters[case] for case in pairs]
    (compared,) = compare_pairs([(ours, theirs)], [groups])
    difference = compared.difference
    holds = difference >= 0 or compared.p > ALPHA
    cases = wording.count(len(pairs), "case")
    if compared.groups:
        cases += f" in {wording.count(compared.groups, 'independent group')}"
    p = "p < 0.001" if compared.p < 0.001 else f"p {compared.p:.3f}"
    statement = f"difference to {name} {difference:+.3f} ({p}, {cases})"
    statement += ", no significant loss" if holds else ", a significant loss"

    return holds, f"{statement}; {_describe_sight(ours, theirs, groups)}", difference


def _describe_sight(ours: list[float], theirs: list[float], groups: list[str]) -> str:
    """Describe the smallest fall in points that rows such as these show with 80 % power."""
    points = range(1, 101)

    def is_seen(fall: int) -> bool:
        return items_needed(ours, theirs, groups, size=fall / 100) <= len(ours)

    least = bisect_left(points, True, key=is_seen)
    if least == len(points):
        return "so few rows cannot see any fall"
    return f"these rows can see a fall of {wording.count(points[least], 'point')}"


def _check_regressions(
    pairs: Mapping[str, tuple[float, float]], name: str, most: int
) -> _GateFinding:
    """Check the number of cases that passed in all their records of the baseline, and do not pass
    in all of them now."""
    if unknown := sum(math.isnan(ours + theirs) for ours, theirs in pairs.values()):
        cases = wording.count(unknown, "case")
        return False, f"regressions unknown: {cases} without a verdict; give --pass-threshold", None

    # A case with several samples has regressed as soon as one of them no longer passes.
    lost = [case for case, (ours, theirs) in pairs.items() if theirs == 1 and ours < 1]
    names = ""
    if lost:
        shown_cases = [wording.shorten(case, 40) for case in lost[:NAMED]]
        if len(lost) > NAMED:
            shown_cases.append("...")
        names = f" ({', '.join(shown_cases)})"

    passed = wording.count(sum(theirs == 1 for _, theirs in pairs.values()), "case")
    statement = f"{len(lost):,} of {passed} that passed in {name} fail now{names}"
    holds = len(lost) <= most

    return holds, f"{statement}, {'at most' if holds else 'more than'} {most:,}", float(len(lost))


def check_agreement(
    judge: str, figure: Estimate | None, blind: tuple[str, float], gates: Gates
) -> GateOutcome:
    """Check whether a judge agrees with people often enough. The lower end of the interval counts,
    so that a few labels do not suffice. `figure`: the judge's agreement; None if it was not
    measured. `blind`: the best rule that does not read the texts, with its agreement, which the
    judge must exceed."""
    if figure is None or figure.value is None:
        statement = (
            f"{judge} was not measured on {gates.measured_on}; see textevolve bench agreement"
        )
        return GateOutcome(AGREEMENT, False, statement)

    least = gates.min_agreement or 0
    low = figure.low
    holds = low is not None and low >= least - ROUNDING and figure.value > blind[1] + ROUNDING
    statement = f"agreement of {judge} {_format_figure(figure)} on {gates.measured_on}; its lower"
    statement += f" end must reach {least:g}, and its value must exceed {blind[0]} ({blind[1]:.3f})"

    return GateOutcome(AGREEMENT, holds, statement, figure.value)


def check_flips(judge: str, figure: Estimate | None, gates: Gates) -> GateOutcome:
    """Check whether a judge agrees with itself often enough. The upper end of the interval counts.
    `figure`: the share of items on which its verdict flips; None if it was not measured."""
    if figure is None or figure.value is None:
        statement = (
            f"{judge} was not measured on {gates.measured_on} with --samples of 2 or more; see"
            " textevolve bench agreement"
        )
        return GateOutcome(FLIPS, False, statement)

    most = gates.max_flips or 0
    holds = figure.high is not None and figure.high <= most + ROUNDING
    statement = f"flips of {judge} {_format_figure(figure)} on {gates.measured_on}; the upper end"
    return GateOutcome(FLIPS, holds, f"{statement} may be {most:g} at most", figure.value)


def draw_gates(outcomes: Sequence[GateOutcome]) -> list[Block]:
    """Return the table of the gates; nothing without gates."""
    if not outcomes:
        return []
    several = any(outcome.variant for outcome in outcomes)
    columns = ["gate", "variant", "outcome", "found"]
    rows = [
        (outcome.gate, outcome.variant, "holds" if outcome.holds else "fails", outcome.found)
        for outcome in outcomes
    ]
    if not several:
        columns = columns[:1] + columns[2:]
        rows = [row[:1] + row[2:] for row in rows]

    return [Table("Gates", columns, rows)]


# The earlier runs that gates depend on: the run that scores are compared with, and the runs in
# which the judges' agreement with people was measured. Both are looked up before the first model
# call, so that a wrong name costs nothing.

MEASURES = "agreement"
"""The kind of study that measures how far judges agree with people."""
LOOKED_AT = 1000
"""The number of runs, the newest first, among which a name is looked up."""


def find_baseline(store: Store, run: StudyRun, gates: Gates, settings: Settings) -> StudyRun | None:
    """Return the run that the gate `no_worse_than` names by name or id, with its records in the
    store. If several runs of the same kind have the name, the newest counts that has the same cases
    and the same ruler; the name `last` means the newest finished run of the kind other than this
    one, likewise. Return None without such a gate, if the name is that of a variant, or if
    there is no `last` run yet, or with `fail_if_worse` no other run of the kind at all.

    Raises:
        InputError: there is neither a variant nor a run of the same kind and inputs of that name.
    """
    name = gates.no_worse_than
    if name is None:
        return None
    kind = run.stored.kind
    variants = run.study.variants(run.spec, run.stored.model)
    if name in variants:
        return None
    of_kind = [
        listed_run
        for listed_run in store.list_runs(LOOKED_AT)
        if listed_run.spec.get("kind") == kind
    ]
    by_age = sorted(of_kind, key=lambda listed_run: -listed_run.updated)

    if name == LAST:
        earlier_runs = [
            listed_run
            for listed_run in by_age
            if listed_run.id != run.id and listed_run.status == "finished"
        ]
        if not earlier_runs:
            return None
        record = _prefer_comparable(store, earlier_runs, run)
    else:
        named_runs = [listed_run for listed_run in by_age if name in listed_run.names]
        try:
            record = (
                _prefer_comparable(store, named_runs, run) if named_runs else store.get_run(name)
            )
        except StoreAwayError:
            raise
        except StoreError as error:
            # The gate for builds: in the first one main could not have run yet.
            is_first = all(listed_run.id == run.id for listed_run in of_kind)
            if gates.fail_if_worse and is_first:
                return None
            hint = f"; variants: {', '.join(variants)}" if variants else ""
            raise InputError(f"--no-worse-than: {error}{hint}") from None

    baseline = StudyRun(record)
    if baseline.stored.kind != kind:
        raise InputError(
            f"--no-worse-than: run {baseline.id} is of the kind {baseline.stored.kind}, not {kind}"
        )

    require_same_ruler(baseline, run)
    require_same_cases(store, baseline, run)
    sync.run(driver.restore_records(store, baseline, settings))

    return baseline


def _prefer_comparable(store: Store, runs: Sequence[RunRecord], run: StudyRun) -> RunRecord:
    """Return the first of several runs that has cases of this run and was scored in the same way;
    the first one if none has. One store may hold several studies of a kind, each with a `main`."""
    if len(runs) == 1:
        return runs[0]
    ids = {case.id for case in store.iterate_cases(run.id)}
    for record in runs:
        earlier = StudyRun(record)
        with suppress(InputError):
            require_same_ruler(earlier, run)
            require_same_cases(store, earlier, run)
            if any(case.id in ids for case in store.iterate_cases(record.id)):
                return record

    return runs[0]


def check_judges(store: Store, run: StudyRun, gates: Gates) -> list[GateOutcome]:
    """Check for each judge of a run that it agreed with people, and with itself, often enough in
    the newest finished agreement run that `measured_on` names; return the outcomes for each judge,
    none without the gates `min_agreement` and `max_flips`. A measured judge is the same judge if
    its text, model, files, threshold and rubric are the same. The check precedes the first model
    call.

    Raises:
        StoreError: the store cannot be read.
    """
    if gates.measured_on is None:
        return []
    measurements = [
        listed_run
        for listed_run in store.list_runs(LOOKED_AT)
        if _measures(listed_run, gates.measured_on)
    ]
    figures: dict[str, Estimate] = {}
    flips: dict[str, Estimate] = {}
    blind = ("", 0.0)

    if measurements:
        measured = StudyRun(max(measurements, key=lambda listed_run: listed_run.updated))
        records = read_records(store, measured)()
        results = measured.study.summarise(measured.spec, records)
        summary = results.summary
        for judge, about in measured_judges(measured):
            figures[about] = estimate(summary.judge(judge).accuracy)
            if judge in results.consistency:
                flips[about] = estimate(results.consistency[judge].flips)
        blind = max(summary.blind_answers, key=lambda answer: answer[1])

    outcomes: list[GateOutcome] = []
    for judge, about in measured_judges(run) or [("no judge", "")]:
        if gates.min_agreement is not None:
            outcomes.append(check_agreement(judge, figures.get(about), blind, gates))
        if gates.max_flips is not None:
            outcomes.append(check_flips(judge, flips.get(about), gates))

    return outcomes


def measured_judges(run: StudyRun) -> list[tuple[str, str]]:
    """Return the name of each judge of a run, with all that its verdicts depend on as JSON."""
    return [(name, json.dumps(about, sort_keys=True)) for name, about in describe_scorers(run)]


def _measures(run: RunRecord, name: str | None) -> bool:
    """Tell whether a run is a finished measurement of judges that has this name or id, or that used
    the labels in a file of this name."""
    finished = run.spec.get("kind") == MEASURES and run.status == "finished"
    return finished and name in (run.id, *run.names, *run.spec["spec"].get("items", ()))


class GateWatch:
    """The rows and the gates of a run that is performed.

    The baseline and the judges are looked up when the watch begins, before the first call of a
    model; the rows are checked at the end.

    Attributes:
        judges: The gate on the judges. If it does not hold, nothing is to be performed.
        unscored: The rows of records that failed or were skipped, by their keys.
        partial_reason: How many trials of a search that has a score have none, and why.
    """

    def __init__(self, store: Store, run: StudyRun, gates: Gates, settings: Settings) -> None:
        self._store = store
        self._run_id = run.id
        self._gates = gates
        self._has_gates = gates.any
        # Of several judges the one that the specification names; otherwise each has its gates.
        self._judge = getattr(run.spec, "score_by", None) if run.spec.variants_are_judges else None
        self._baseline = find_baseline(store, run, gates, settings)
        name = gates.no_worse_than
        is_variant = name in run.study.variants(run.spec, run.stored.model)
        self._is_first = name is not None and self._baseline is None and not is_variant
        self._rows: dict[str, Row] = {}
        self.judges = Gated(gates, check_judges(store, run, gates))
        self.unscored: dict[str, Row] = {}
        self._has_score = False
        self._reason = ""
        self.partial_reason = ""

    def add(self, row: Row) -> None:
        """Take a row of the run; it replaces an earlier one with the same key."""
        if row.status == "scored":
            self.unscored.pop(row.key, None)
            self.partial_reason = row.missing
        else:
            self.unscored[row.key] = row
        if row.score is not None:
            self._has_score = True
        else:
            self._reason = self._reason or row.reason
        if self._has_gates and self._judge in (None, row.variant):
            self._rows[row.key] = row

    @property
    def unjudged(self) -> str:
        """The reason why no record has a score; empty if one has."""
        return "" if self._has_score else self._reason

    @property
    def is_complete(self) -> bool:
        """Return whether every record has the score that it should have."""
        return not (self.unscored or self.unjudged or self.partial_reason)

    def check(self) -> Gated:
        """Check all gates on the rows that were added, by the same intervals as in the run's
        report."""
        rows = sorted(self._rows.values(), key=lambda row: (row.position, row.key))
        baseline = self._baseline
        earlier = None
        itself = False
        if baseline is not None:
            earlier = map(baseline.study.row, read_records(self._store, baseline)())
            itself = baseline.id == self._run_id

        outcomes = check_gates(
            rows,
            self._gates,
            earlier,
            itself=itself,
            is_first=self._is_first,
            judges=self.judges.outcomes,
        )
        return Gated(self._gates, outcomes)


# The records and gates of a run as test cases in the JUnit format, for build servers.

TEXT_SHOWN = 10_000
MESSAGE_SHOWN = 500
GATES = "gates"  # the name of the suite of gates


def junit_suites(
    study: AnyStudy, records: Callable[[], Iterable[Any]], gated: Gated
) -> list[JUnitSuite]:
    """Return two JUnit suites: one of the records, in which a missing score is an error or a
    skipped test, and one of the gates, if there are any."""
    suites = [JUnitSuite(study.kind, lambda: _record_cases(study, records(), gated))]
    if gated.outcomes:
        suites.append(JUnitSuite(GATES, lambda: _gate_cases(gated)))
    return suites


def _record_cases(study: AnyStudy, records: Iterable[Any], gated: Gated) -> Iterator[JUnitCase]:
    seen: Counter[tuple[str, str]] = Counter()
    for record in records:
        row = study.row(record)
        if row.status == "scored" and row.score is None:
            continue  # the record was not to be scored
        key = (row.variant or study.kind, row.case or row.name)
        seen[key] += 1
        classname, name = key
        name += f" #{seen[key]}" if seen[key] > 1 else ""
        yield _case(row, name, classname, gated, lambda record=record: study.flat(record))


def _case(
    row: Row,
    name: str,
    classname: str,
    gated: Gated,
    flat: Callable[[], Iterable[Mapping[str, Any]]],
) -> JUnitCase:
    if row.status != "scored" or row.score is None:
        allowed = row.status == "skipped" or _is_allowed(row, gated, has_score=False)
        outcome = "skipped" if allowed else "error"
        return JUnitCase(name, classname, outcome, _shorten(row.reason or row.status))

    least = gated.gates.pass_threshold
    passed = row.passed if least is None else reaches(row.score, least)
    if passed is None or passed:
        return JUnitCase(name, classname)
    below = "not passed" if least is None else f"below {least:g}"
    reason = f": {row.reason}" if row.reason else ""
    rows = list(flat())
    message = _shorten(f"{_describe_mismatch(rows)}score {row.score:.3f}, {below}{reason}")
    if _is_allowed(row, gated, has_score=True):
        return JUnitCase(name, classname, "skipped", f"{message} (the gates hold)")

    return JUnitCase(name, classname, "failure", message, _format_rows(rows))


def _is_allowed(row: Row, gated: Gated, *, has_score: bool) -> bool:
    """Tell whether a failing record is reported as skipped, since the gates of its variant hold, so
    that it does not fail the build; never in a run without gates. For a record without a score the
    gate "max failed" counts alone, otherwise all other gates. A variant that is the baseline has no
    gates, so its records are skipped."""
    relevant = (
        outcome.holds
        for outcome in gated.outcomes
        if outcome.variant == row.variant and (outcome.gate != "max failed") == has_score
    )

    return bool(gated.outcomes) and all(relevant)


EXPECTED_FIELDS = ("reference", "people", "label")
OUTPUT_FIELDS = ("text", "output", "response")
"""The fields of a record's row that hold what was expected, and the output."""


def _describe_mismatch(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe what was expected and what came; empty for several rows, or if one is unknown."""
    if len(rows) != 1:
        return ""
    expected, output = (
        wording.shorten(str(first_of(rows[0], names) or ""), MESSAGE_SHOWN // 4)
        for names in (EXPECTED_FIELDS, OUTPUT_FIELDS)
    )
    return f"expected {expected}, got {output}; " if expected and output else ""


def _format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format the rows of a record, with a line for each field that has something."""
    parts: list[str] = []
    for row in rows:
        cells = flat_cells(plain(row))
        parts.append("\n".join(f"{name}: {cell}" for name, cell in cells if cell not in (None, "")))

    return wording.clip("\n\n".join(parts), TEXT_SHOWN)


def _gate_cases(gated: Gated) -> Iterator[JUnitCase]:
    for outcome in gated.outcomes:
        name = f"{outcome.gate}, {outcome.variant}" if outcome.variant else outcome.gate
        if outcome.holds:
            yield JUnitCase(name, GATES)
        else:
            yield JUnitCase(name, GATES, "failure", str(outcome))


def _shorten(text: str) -> str:
    return wording.shorten(text, MESSAGE_SHOWN)
