"""Gates: what the scores of a run must reach, so that a build can fail where quality falls.

Pure functions over the rows of any study. Which earlier run is meant is found in `baseline.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Estimate, Table
from textevolve.spec import Frozen, option
from textevolve.statistics.comparisons import difference_interval
from textevolve.studies.aggregates import Aggregates, aggregate
from textevolve.studies.study import Row

GROUP = "Gates (exit code 4 where one fails)"
MARGIN = 0.02
LAST = "last"
ROUNDING = 1e-9


def _read_most(given: Any) -> Any:
    """A number of records, or a share of them: 3, 2% or 0.02."""
    if given is None or isinstance(given, bool):
        return given
    text = str(given).strip()
    share = text.endswith("%")
    try:
        number: float = float(text[:-1]) / 100 if share else float(text)
        if not share and "." not in text and "e" not in text.lower():
            number = int(text)
    except ValueError:
        number = -1
    whole = isinstance(number, int) or number > 1
    if not number >= 0 or (whole and number != int(number)):
        raise ValueError(f"give a number of records, or a share such as 2% or 0.02, not '{given}'")
    if number > 1 and share:
        raise ValueError(f"a share is at most 100%, not '{given}'")
    return int(number) if whole else number


Most: TypeAlias = Annotated[
    int | float, BeforeValidator(_read_most), WithJsonSchema({"type": ["number", "string"]})
]
"""So many records where it is a whole number (an `int`), else such a share of them."""


class Gates(Frozen):
    """What is asked of the scores of a run. Where several variants are compared each has to reach
    it, but for the one that `no_worse_than` names."""

    min_pass_rate: float | None = option(
        None, "The least share of scored records that must pass.", group=GROUP, ge=0, le=1
    )
    min_mean: float | None = option(
        None, "The least mean score, from 0 to 1.", group=GROUP, ge=0, le=1
    )
    no_worse_than: str | None = option(
        None,
        "An earlier run of the same kind (its id, its name, or last), or one of the variants that"
        " are compared. The mean difference by case must not be below it by more than the margin,"
        " with 97.5 % confidence.",
        group=GROUP,
        metavar="RUN|VARIANT",
        min_length=1,
    )
    margin: float | None = option(
        None,
        f"By how much the mean may be worse than that.  [default: {MARGIN}]",
        group=GROUP,
        ge=0,
        le=1,
    )
    max_failed: Most | None = option(
        None,
        "How many records may lack a score, as a number or a share: 3, 2% or 0.02. With any other"
        " gate none may, unless this says so: no gate is passed by leaving out records.",
        group=GROUP,
        metavar="NUMBER|SHARE",
    )
    pass_threshold: float | None = option(
        None,
        "From which score a record passes, whatever its judge's verdict is.",
        group=GROUP,
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _usable(self) -> Gates:
        if self.margin is not None and self.no_worse_than is None:
            raise InputError("--margin: belongs to --no-worse-than, which is missing")
        return self

    @property
    def any(self) -> bool:
        asked = (self.min_pass_rate, self.min_mean, self.no_worse_than, self.max_failed)
        return any(one is not None for one in asked)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """Whether a gate holds, for one of the variants where there are several. `found`: in words,
    the figure with its 95 % interval and what is asked of it; `value`: the figure, None where there
    is none."""

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
    """The gates of a run and what came of them; none where there are none."""

    gates: Gates = field(default_factory=Gates)
    outcomes: Sequence[GateOutcome] = ()

    @property
    def holds(self) -> bool:
        return all(one.holds for one in self.outcomes)


UNGATED = Gated()


def check_gates(
    rows: Iterable[Row], gates: Gates, earlier: Iterable[Row] | None = None
) -> list[GateOutcome]:
    """What comes of each gate; a record without a score counts against it.

    `rows`: those of a run, in which each key stands once. `earlier`: those of the run that
    `no_worse_than` names, where it names no variant.
    """
    if not gates.any:
        return []
    found = aggregate(rows, gates.pass_threshold)
    before = None if earlier is None else aggregate(earlier)
    checked = [variant for variant in found if before is not None or variant != gates.no_worse_than]
    outcomes: list[GateOutcome] = []
    for variant in checked or [""]:
        one = found.get(variant, Aggregates())
        outcomes += [
            GateOutcome(gate, holds, said, value, variant)
            for gate, (holds, said, value) in _check(variant, one, gates, found, before)
        ]
    return outcomes


_Found: TypeAlias = tuple[bool, str, float | None]


def _check(
    variant: str,
    one: Aggregates,
    gates: Gates,
    found: Mapping[str, Aggregates],
    before: Mapping[str, Aggregates] | None,
) -> Iterable[tuple[str, _Found]]:
    coverage = _check_coverage(one, gates.max_failed or 0)
    if gates.max_failed is not None or not coverage[0]:
        yield "max failed", coverage
    if gates.min_pass_rate is not None:
        yield "min pass rate", _check_pass_rate(one, gates.min_pass_rate)
    if gates.min_mean is not None:
        yield "min mean", _compare("mean", one.mean, gates.min_mean)
    if gates.no_worse_than is not None:
        name, margin = gates.no_worse_than, MARGIN if gates.margin is None else gates.margin
        if before is None and name == LAST and name not in found:
            yield "no worse than", (True, "no earlier run of the kind to compare with", None)
            return
        baseline = found.get(name) if before is None else before.get(variant)
        yield "no worse than", _check_difference(one, baseline, name, margin)


def _check_coverage(one: Aggregates, most: float) -> _Found:
    share = isinstance(most, float)
    allowed = most * one.records if share else most
    said = wording.percent(most, 1) if share else f"{most:,}"
    lack = f"{one.unscored:,} of {wording.count(one.records, 'record')}"
    if not one.scored:
        return False, f"{lack} have no score: there is nothing to judge by", float(one.unscored)
    holds = one.unscored <= allowed + ROUNDING
    told = f"{lack} without a score, {'at most' if holds else 'more than'} {said}"
    return holds, told, float(one.unscored)


def _check_pass_rate(one: Aggregates, least: float) -> _Found:
    if left := one.scored - one.verdicts:
        said = f"{wording.count(left, 'record')} with a score but no verdict"
        return False, f"pass rate unknown: {said}; give --pass-threshold", None
    return _compare("pass rate", one.pass_rate, least)


def _compare(name: str, found: Estimate, least: float) -> _Found:
    if found.value is None:
        return False, f"{name} unknown: no record has a score", None
    holds = found.value >= least - ROUNDING
    told = f"{name} {_say(found)}, {'at least' if holds else 'below'} {least:g}"
    return holds, told, found.value


def _say(found: Estimate) -> str:
    """The figure with as many digits as tell it apart, and its interval."""
    ends = "no interval"
    if found.low is not None and found.high is not None:
        ends = f"95 % {found.low:.3f} to {found.high:.3f}"
    return f"{wording.number(found.value, 3)} ({ends})"


def _check_difference(
    one: Aggregates, baseline: Aggregates | None, name: str, margin: float
) -> _Found:
    """Non-inferiority: the lower end of the paired difference's interval is above -margin."""
    ours, theirs = one.case_means(), {} if baseline is None else baseline.case_means()
    shared = [case for case in ours if case in theirs]
    if len(shared) < 2:
        number = wording.count(len(shared), "case")
        return False, f"not compared with {name}: {number} scored in both, of 2 at least", None
    first, second = [ours[case] for case in shared], [theirs[case] for case in shared]
    difference = sum(first) / len(first) - sum(second) / len(second)
    interval = difference_interval(first, second)
    # Where all differences are the same there is no interval, and no doubt about the mean either.
    low = difference if interval.reason else interval.low
    high = difference if interval.reason else interval.high
    holds = low > -margin - (ROUNDING if interval.reason else 0.0)
    cases = wording.count(len(shared), "case")
    told = f"difference to {name} {difference:+.3f} (95 % {low:+.3f} to {high:+.3f}, {cases})"
    return holds, f"{told}, {'above' if holds else 'not shown to be above'} {-margin:g}", difference


def draw_gates(outcomes: Sequence[GateOutcome]) -> list[Block]:
    """What a person is shown of them; nothing where there are none."""
    if not outcomes:
        return []
    several = len({one.variant for one in outcomes}) > 1 or bool(outcomes[0].variant)
    columns = [Column("gate"), *([Column("variant")] if several else [])]
    rows = [
        (
            one.gate,
            *([one.variant] if several else []),
            "holds" if one.holds else "fails",
            one.found,
        )
        for one in outcomes
    ]
    return [Table("Gates", [*columns, Column("outcome"), Column("found")], rows)]
