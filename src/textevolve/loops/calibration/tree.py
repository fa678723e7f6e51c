"""The result of a calibration: the tree of templates, and the validation of the best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from textevolve.evaluation import Usage
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.trial_runner import Templates
from textevolve.statistics.sequential import POWER, fewest_units, smallest_gain

Stage = Literal["round", "finals"]


@dataclass(frozen=True, slots=True)
class Placing:
    """How a template did in one selection: the mean of the `scored` out of `asked` trials."""

    stage: Stage
    round: int
    mean: float | None
    scored: int
    asked: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A template. Number 0 is the original, and the only one without a parent.

    `instructions` are those that were applied to the parent. With a `fault` it never competed; its
    text may then be empty. `repaired`: a first rewrite had a fault and was asked for again.
    `operator`: what made it, where a strategy has several. `demos`: the ids of the rows that stand
    in front of the template as demonstrations.
    """

    number: int
    templates: Templates
    parent: int | None
    round: int
    instructions: tuple[str, ...] = ()
    fault: str = ""
    repaired: bool = False
    placings: tuple[Placing, ...] = ()
    notes: tuple[str, ...] = ()
    operator: str = ""
    demos: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The template, or all of them where a program has several."""
        return self.templates.text

    @property
    def score(self) -> float | None:
        """The mean of its latest selection; means of different selections are of other rows."""
        return self.placings[-1].mean if self.placings else None


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired comparison on `items` rows that have both scores, out of `rows` that were asked, and
    of `planned` that were to be asked at most (0: not known).

    `difference` is `first` less `second`, all means over those items, and `low` to `high` its 95 %
    interval of sign flips, NaN where all differences are the same or are too few for it; it is
    shown and decides nothing. `p` is of an exact sign-flip test, NaN where there is no item, and
    `level` what it may be at most: of runs from before the test was one-sided, 0.05.
    `first_scored` and `second_scored`: how many of the rows have a score under each. `smallest`:
    the smallest true gain that is found 8 times in 10 on the planned rows, by the scores of the
    second; NaN where none is.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    items: int
    rows: int
    first_scored: int = 0
    second_scored: int = 0
    level: float = 0.05
    planned: int = 0
    smallest: float = math.nan

    @property
    def covers_less(self) -> bool:
        """Whether fewer rows have a score than before: those that are missing might be the bad
        ones."""
        return self.first_scored < self.second_scored

    @property
    def significant(self) -> bool:
        """Whether it is a gain to believe."""
        return self.difference > 0 and self.p <= self.level and not self.covers_less

    @property
    def ends(self) -> str:
        """The interval in words."""
        if math.isnan(self.low):
            return "no interval"
        return f"95 % {self.low:+.3f} to {self.high:+.3f}"


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The search as a tree, and its outcome.

    `leader` is the best by the training rows. `gain` of it over the original on the validation
    rows, `second` of the same outputs by the second judge; None where it did not come to that.
    `rows`: of training and of validation. `tried` counts trials of a template on a row, `failed`
    those that could not be scored. `seconds` of this sitting. `perfect`: on how many training
    rows, all that were tried, the original scores 1, so that nothing was searched for; else 0.
    """

    nodes: tuple[Node, ...]
    beam: tuple[int, ...]
    leader: int
    stopped: StopReason
    reason: str
    rounds: int
    names: tuple[str, ...]
    rows: tuple[int, int]
    gain: Gain | None
    second: Gain | None
    tried: int
    failed: int
    usage: Usage
    seconds: float
    perfect: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the leader may replace the original."""
        return self.leader != 0 and self.gain is not None and self.gain.significant

    @property
    def template(self) -> str:
        """The template to use: the leader if it is accepted, else the original."""
        return self.nodes[self.leader if self.accepted else 0].text

    @property
    def templates(self) -> dict[str, str]:
        """The templates to use, by name; a plain prompt has one."""
        return dict(self.nodes[self.leader if self.accepted else 0].templates.parts)

    @property
    def smallest(self) -> float:
        """The smallest true gain that validation finds 8 times in 10; NaN: none is."""
        return smallest_gain(self.rows[1]) if self.gain is None else self.gain.smallest


def describe_outcome(result: CalibrationResult) -> str:
    """Whether there is a better template, in plain words."""
    ended = f" The search was cut short: {result.reason}." if result.stopped == "budget" else ""
    ended = " The search was stopped." if result.stopped == "stopped" else ended
    gain = result.gain
    if result.stopped == "failed":
        return f"Nothing could be scored ({result.reason}). The original is kept."
    if result.perfect:
        return (
            f"The original scores 1 on all {result.perfect} training rows that were tried: nothing"
            " is left to be gained there, and it is kept."
        )
    if result.leader == 0:
        faults = [node.fault for node in result.nodes if node.parent is not None]
        notes = [note for node in result.nodes for note in node.notes]
        if not all(faults):
            kept = "the original is kept"
            return f"No rewritten template did better on the training rows: {kept}.{ended}"
        reason = next(iter([*faults, *notes]), "none was made")
        return f"No new template could be written ({reason}): the original is kept.{ended}"
    if gain is None:
        few = f" {describe_power(result.rows[1])}" if result.rows[1] < fewest_units() else ""
        return (
            f"Template {result.leader} leads on the training rows, but was not validated, so the"
            f" original is kept.{few}{ended}"
        )
    if result.accepted:
        verdict = f"The gain is significant: template {result.leader} is taken."
    elif gain.items < fewest_units():
        verdict = (
            f"Fewer than {fewest_units()} rows can be compared, which is too few for any gain to be"
            " significant: the original is kept."
        )
    elif gain.covers_less:
        verdict = (
            f"Only {gain.first_scored} rows have a score under it, and {gain.second_scored} under"
            " the original; the missing ones may be those that it does worse on, so the original is"
            " kept. To resume the run asks for them again."
        )
    else:
        smallest = f" {describe_smallest(gain.smallest)}" if gain.planned else ""
        verdict = f"The gain is not significant: the original is kept.{smallest}"
    return f"{_compared(result.leader, gain)} {verdict}{_second(result.second)}{ended}"


def describe_power(rows: int) -> str:
    """Describe the gain that so many rows held out can show, before the original's scores are
    known."""
    if rows < fewest_units():
        return (
            f"With {rows} rows held out no gain, however large, can be significant: that takes"
            f" {fewest_units()} at least."
        )
    return describe_smallest(smallest_gain(rows))


def describe_smallest(gain: float) -> str:
    often = f"{POWER * 10:.0f} times in 10"
    if math.isnan(gain):
        return f"On the rows held out no gain that is possible would be found {often}."
    return f"On the rows held out a true gain of {gain:.2f} or more is found {often}."


def _compared(leader: int, gain: Gain) -> str:
    if gain.items == 0:
        return "No validation row has a score under both templates."
    of_all = f" of {gain.rows}" if gain.items < gain.rows else ""
    sides = "one-sided " if gain.planned else ""
    early = f", after a look at {gain.rows} of {gain.planned}" if gain.rows < gain.planned else ""
    return (
        f"On {gain.items}{of_all} validation rows template {leader} scores {gain.first:.3f}, the"
        f" original {gain.second:.3f}: a difference of {gain.difference:+.3f}"
        f" ({gain.ends}, {sides}p {'< 0.001' if gain.p < 0.001 else f'{gain.p:.3f}'}{early})."
    )


def _second(gain: Gain | None) -> str:
    if gain is None:
        return ""
    if gain.items == 0:
        return " The second judge, which the search never saw, could not score both."
    verdict = "agrees that it is better" if gain.significant else "sees no significant gain"
    if gain.high < 0 or (math.isnan(gain.high) and gain.difference < 0):
        verdict = "finds it worse, so the first judge may have been played"
    return (
        f" The second judge, which the search never saw, {verdict}"
        f" ({gain.difference:+.3f}, {gain.ends})."
    )
