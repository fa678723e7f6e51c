"""What a calibration leaves behind: the tree of templates, and what validation says of the best."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from textevolve.evaluation import Usage
from textevolve.loops.attempt import StopReason

Stage = Literal["round", "finals"]
FEWEST_PAIRS = 10
"""Rows of validation with both scores below which no gain is believed."""
ALPHA = 0.05


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
    """

    number: int
    text: str
    parent: int | None
    round: int
    instructions: tuple[str, ...] = ()
    fault: str = ""
    repaired: bool = False
    placings: tuple[Placing, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def score(self) -> float | None:
        """The mean of its latest selection; means of different selections are of other rows."""
        return self.placings[-1].mean if self.placings else None

    def noted(self, note: str) -> Node:
        return replace(self, notes=(*self.notes, note))


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired comparison on `items` rows that have both scores, out of `rows`.

    `difference` is `first` less `second`, all means over those items, and `low` to `high` its 95 %
    bootstrap interval, NaN where all differences are the same, so that no draw could vary; `p` is
    of an exact or random sign-flip test. NaN where there is none. `first_scored` and
    `second_scored`: how many of the rows have a score under each.
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

    @property
    def covers_less(self) -> bool:
        """Whether fewer rows have a score than before: those that are missing might be the bad
        ones."""
        return self.first_scored < self.second_scored

    @property
    def significant(self) -> bool:
        """Whether it is a gain to believe. The test is asked too, since the bootstrap is too sure
        of itself on few items."""
        above = self.low > 0 or (math.isnan(self.low) and self.difference > 0)
        enough = self.items >= FEWEST_PAIRS and not self.covers_less
        return enough and above and self.p <= ALPHA

    @property
    def ends(self) -> str:
        """The interval in words."""
        if math.isnan(self.low):
            return "the same on every row"
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

    def children(self, parent: int) -> Iterator[Node]:
        return (node for node in self.nodes if node.parent == parent)


def describe_outcome(result: CalibrationResult) -> str:
    """Whether there is a better template, in plain words."""
    if result.stopped == "failed":
        return f"Nothing could be scored ({result.reason}). The original is kept."
    ended = f" The search was cut short: {result.reason}." if result.stopped == "budget" else ""
    if result.stopped == "stopped":
        ended = " The search was stopped."
    if result.perfect:
        return (
            f"The original scores 1 on all {result.perfect} training rows that were tried: nothing"
            " is left to be gained there, and it is kept."
        )
    rewritten = [node for node in result.nodes if node.parent is not None]
    if result.leader == 0 and not any(not node.fault for node in rewritten):
        why = next((node.fault for node in rewritten), "")
        why = why or next((note for node in result.nodes for note in node.notes), "none was made")
        return f"No new template could be written ({why}): the original is kept.{ended}"
    if result.leader == 0:
        return (
            f"No rewritten template did better on the training rows: the original is kept.{ended}"
        )
    if result.gain is None:
        return (
            f"Template {result.leader} leads on the training rows, but was not validated, so the"
            f" original is kept.{ended}"
        )
    if result.accepted:
        why = f"The gain is significant: template {result.leader} is taken."
    elif result.gain.items < FEWEST_PAIRS:
        why = f"Fewer than {FEWEST_PAIRS} rows can be compared, which is too few to believe a gain:"
        why += " the original is kept."
    elif result.gain.covers_less:
        gain = result.gain
        why = f"Only {gain.first_scored} rows have a score under it, and {gain.second_scored} under"
        why += " the original; the missing ones may be those that it does worse on, so the original"
        why += " is kept. To resume the run asks for them again."
    else:
        why = "The gain is not significant: the original is kept."
    return f"{_compared(result.leader, result.gain)} {why}{_second(result.second)}{ended}"


def _compared(leader: int, gain: Gain) -> str:
    if gain.items == 0:
        return "No validation row has a score under both templates."
    of_all = f" of {gain.rows}" if gain.items < gain.rows else ""
    return (
        f"On {gain.items}{of_all} validation rows template {leader} scores {gain.first:.3f}, the"
        f" original {gain.second:.3f}: a difference of {gain.difference:+.3f}"
        f" ({gain.ends}, p {'< 0.001' if gain.p < 0.001 else f'{gain.p:.3f}'})."
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
