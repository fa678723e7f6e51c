"""The data of a search for a prompt template: its options, its budget, its models and judges, and
its result, which is the tree of templates and the validation of the best.

A budget is a number of calls, of which a part is reserved for the decision. Calls whose answers
come from a journal count as well, so that a resumed run makes the same plans. The calls that an
output and a rewrite take are estimated from earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Evaluator, Result, Usage, empty_default
from textevolve.events import Listener, silence
from textevolve.llm.model import Model
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.rewriting import SHOWN
from textevolve.loops.calibration.trial_runner import Program, Templates
from textevolve.metrics.label_metrics import Grader
from textevolve.spec import Count, Frozen, option
from textevolve.statistics.comparisons import fewest_units

CallKind = Literal["output", "rewrite"]
"""The purpose of a call: an output of a template, or the rewriting of a template."""
FEW_ROWS = 50
"""The number of held-out rows below which a true gain of 0.3 is found in fewer than 8 of 10
cases."""
LEAST_SEARCH = 12
"""The least number of outputs with which a search can begin: the original on a few rows, one new
template, a few rows for it."""


class SearchSpent(BudgetError):
    """The search has used its share of the budget; the reserve for the decision is untouched."""


@dataclass
class SearchBudget:
    """The budget of a search. `limit`: the number of calls; None: no limit. `used`: returns the
    usage so far. `reserve`: returns the number of calls that the decision will take, from the calls
    of an output. `outputs`: the maximum number of outputs of a search without a limit.
    `most_reserved`: the largest number of outputs that are reserved. `least_reserved`: the least
    number of outputs for any decision. `deciding`: whether the search has ended, so that the
    reserve may be used. `learned`: for each kind of call the highest mean number of calls in any
    batch so far, so that plans are cautious."""

    limit: int | None
    used: Callable[[], Usage]
    reserve: Callable[[float], float] = lambda _: 0.0
    outputs: float = math.inf
    most_reserved: float = math.inf
    least_reserved: float = 0.0
    deciding: bool = False
    learned: dict[str, float] = empty_default(dict)

    @contextmanager
    def paying(self, kind: CallKind, number: int) -> Generator[None]:
        """Pay for new outputs or rewrites (`kind`) in the block, and learn from the calls that they
        take.

        Raises:
            SearchSpent: the search's share is not enough for them.
        """
        if not self.deciding and number * self.cost(kind) > self.left + 1e-9:
            of_all = f" of the budget of {self.limit} calls" if self.limit else ""
            raise SearchSpent(f"the search has used its share{of_all}")
        before = self.spent
        yield
        if number and not self.deciding:
            cost = (self.spent - before) / number
            self.learned[kind] = max(self.learned.get(kind, 0.0), cost)

    def cost(self, kind: CallKind) -> float:
        """Return the expected calls of one more output or rewrite (`kind`); 1 before the first."""
        return self.learned.get(kind) or 1.0

    @property
    def spent(self) -> int:
        return self.used().calls

    @property
    def left(self) -> float:
        """Return the calls that are left for the search."""
        cost = self.cost("output")
        if self.limit is None:
            return self.outputs * cost - self.spent
        reserved = min(self.reserve(cost), self.most_reserved * cost)
        return self.limit - self.spent - reserved

    @property
    def outputs_left(self) -> float:
        """Return how many outputs the search could still generate if it did nothing else."""
        return max(0.0, self.left / self.cost("output"))

    def check(self) -> None:
        """Raise InputError if the budget is not enough for the shortest search and a decision, by
        the known cost of an output."""
        cost = self.cost("output")
        if self.limit is None or self.left + self.spent >= LEAST_SEARCH * cost:
            return
        reserved = self.limit - self.spent - self.left
        least = math.ceil(LEAST_SEARCH * cost + max(reserved, self.least_reserved * cost))
        raise InputError(
            f"a budget of {self.limit} calls is too small: the shortest search and the decision"
            f" need {least}"
        )


StrategyName = Literal["auto", "reflect", "demos", "protegi"]
"""The strategy of a search: rewrites after failures (`reflect`), labelled rows as examples
(`demos`), both (`auto`), or beam search (`protegi`)."""
PROTEGI = "Beam search (strategy protegi)"
"""The heading of the options of beam search."""


class CalibrationPlan(Frozen):
    """The options of a search for a prompt template."""

    strategy: StrategyName = option(
        "auto",
        "The search strategy: reflect (rewrite the template after failures), demos (add labelled"
        " rows as examples), auto (both), or protegi (beam search with written gradients,"
        " without the paper's paraphrases).",
        group="Search",
        metavar="NAME",
    )
    budget: int | None = option(
        None, "The most model calls of the whole search.", group="Search", ge=1
    )
    editor: str | None = option(
        None,
        "The model that rewrites templates; default: the model of the study.",
        group="Advanced",
    )
    beam: Count = option(
        4, "The number of templates that are kept after each round.", group=PROTEGI
    )
    depth: Count = option(5, "The most rounds of the search.", group=PROTEGI)
    successors: Count = option(
        5, "The number of new templates that are written for each kept one.", group=PROTEGI
    )
    gradient_depth: Count = option(
        10,
        "The number of gradients (criticisms) that are written for a template.",
        group="Beam search (strategy protegi)",
    )
    minibatch: Count = option(
        5, "The number of rows on which gradients look for faults.", group=PROTEGI
    )
    selection_minibatch: Count = option(
        6, "The number of rows on which the templates of a round compete.", group=PROTEGI
    )
    final_minibatch: Count = option(
        20,
        "The number of rows on which the best template of the last beam is chosen.",
        group=PROTEGI,
    )
    selection: Literal["fast", "ucb"] = option(
        "fast",
        "How the beam is chosen: fast (all on the same rows), or ucb (bandits).",
        group=PROTEGI,
        metavar="NAME",
    )
    select: Literal["argmax", "sample"] = option(
        "argmax",
        "Which template is rewritten next, or kept in the beam: argmax (the best) or sample (at"
        " random by scores).",
        group="Advanced",
        metavar="NAME",
    )
    patience: Count = option(
        3, "Stop after this many rounds without a new template in the beam.", group="Advanced"
    )
    temperature: float | None = option(
        0.0, "The temperature of the outputs.", group="Advanced", ge=0, le=2
    )
    max_output_tokens: Count = option(512, "The most tokens of an output.", group="Advanced")

    seed: int = option(0, "The seed of the random choice of rows.", group="Search")


@dataclass(frozen=True, slots=True)
class CalibrationContext:
    """The models and judges of a search. `generator`: answers the prompts. `editor`: writes
    instructions and templates. `evaluator` or `metric`: gives the scores. `second_judge`: a control
    whose scores the search does not use. `time_limit`: in seconds. `program`: what is optimised;
    None: the template alone, which `generator` answers. `shown`: the characters of all outcomes
    that one prompt shows to the editor."""

    generator: Model
    editor: Model
    evaluator: Evaluator | None = None
    metric: Grader | None = None
    second_judge: Evaluator | None = None
    concurrency: int = 64
    time_limit: float | None = None
    listener: Listener = silence
    program: Program | None = None
    shown: int = SHOWN


Stage = Literal["round", "finals"]
"""When templates compete: in a round of the search, or in the finals."""


@dataclass(frozen=True, slots=True)
class Placing:
    """The result of a template in one selection. `mean`: the mean score; None without scores.
    `scored`: the number of trials with a score, of the `asked` trials. `kept`: whether the template
    was selected."""

    stage: Stage
    round: int
    mean: float | None
    scored: int
    asked: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A template in the tree. `number`: 0 is the original, the only one without a `parent`.
    `round`: the round that added it. `instructions`: those that were applied to the parent.
    `fault`: the reason why it never competed (its text may then be empty); empty if it did.
    `placings`: its results in selections. `operator`: the operator that made it, if the strategy
    has several. `demos`: the ids of the rows that precede the template as demonstrations."""

    number: int
    templates: Templates
    parent: int | None
    round: int
    instructions: tuple[str, ...] = ()
    fault: str = ""
    placings: tuple[Placing, ...] = ()
    notes: tuple[str, ...] = ()
    operator: str = ""
    demos: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the template; for a program with several templates, all of them as one text."""
        return self.templates.text

    @property
    def score(self) -> float | None:
        """Return the mean score of the latest selection; None without one. Earlier selections used
        other rows."""
        return self.placings[-1].mean if self.placings else None


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired comparison of two templates on `items` rows that have both scores, out of `rows`
    that were tried, of at most `planned` rows (0: unknown).

    `first`, `second`: the mean scores over the items; `difference`: first less second. `low` to
    `high`: its 95 % interval by sign flips, NaN if all differences are the same or too few; it is
    shown, but decides nothing. `p`: of a one-sided exact sign-flip test, NaN without items;
    `level`: the p-value up to which a gain is significant. `first_scored`, `second_scored`: the
    numbers of rows with a score under each template. `groups`: the number of independent groups of
    items, which the test counts (0: each item is one).
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
    groups: int = 0

    @property
    def covers_less(self) -> bool:
        """Return whether fewer rows have a score under the first template than under the second:
        the missing ones might be the bad ones."""
        return self.first_scored < self.second_scored

    @property
    def significant(self) -> bool:
        """Tell whether the gain is above 0 and statistically significant, without more missing
        scores."""
        return self.difference > 0 and self.p <= self.level and not self.covers_less

    @property
    def ends(self) -> str:
        """Format the 95 % interval of the difference."""
        if math.isnan(self.low):
            return "no interval"
        return f"95 % {self.low:+.3f} to {self.high:+.3f}"


@dataclass(frozen=True)
class CalibrationResult(Result):
    """The tree of templates, and the outcome of a search.

    `nodes`: the tree. `names`: the placeholders. `beam`: the numbers of the templates in the last
    beam. `leader`: the number of the best template on the training rows. `gain`: of the `tested`
    template over the original on the validation rows; the leader is another one if the calls that
    the decision left brought a better one, which began with it; `second`: of the same outputs by
    the second judge; None if they were not compared. `rows`: the numbers of training and of
    validation rows. `tried`: the number of trials of a template on a row; `failed`: of those
    without a score. `seconds`: the time of this process; earlier processes of a resumed run do not
    count. `perfect`: the number of training rows if the original scores 1 on all rows tried, so
    that nothing was searched for; otherwise 0. `groups`: the numbers of independent groups of
    training and of validation rows (0: each row is one). `missing`: the number of trials that have
    no score at all, and
    `missing_reason` why the first one has none; a faulty output without a score counts as 0.
    `is_cross_fitted`: whether two searches used one half of the rows each, and `gain` compares the
    leader of each with the original on the other half; then all rows are both training and
    validation rows, and `leader` is the best template of a third search, on all rows, that began
    with the better of these leaders once their gain was significant.
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
    groups: tuple[int, int] = (0, 0)
    missing: int = 0
    missing_reason: str = ""
    is_cross_fitted: bool = False
    tested: int = 0

    @property
    def accepted(self) -> bool:
        """Tell whether the leader may replace the original."""
        return self.leader != 0 and self.gain is not None and self.gain.significant

    def describe_missing(self) -> str:
        """Describe how many trials of a search that came to its end have no score, and why the
        first one has none; empty if all have one."""
        if not self.missing or self.stopped in ("budget", "failed"):
            return ""
        return (
            f"{self.missing} of {self.tried} trials have no score, the first:"
            f" {self.missing_reason:.300}"
        )

    @property
    def score(self) -> float | None:
        """Return the mean score of the template to use, or of the one that was tested in its
        place, on the held-out rows. Without a comparison
        there it is the original's on the training rows, which chose nothing."""
        if self.gain is None:
            return self.nodes[0].score
        return self.gain.first if self.accepted else self.gain.second

    @property
    def template(self) -> str:
        """Return the template to use: the leader if it is accepted, otherwise the original."""
        return self.nodes[self.leader if self.accepted else 0].text

    @property
    def templates(self) -> dict[str, str]:
        """Return the templates to use by name; a plain prompt has one."""
        return dict(self.nodes[self.leader if self.accepted else 0].templates.parts)


def describe_outcome(result: CalibrationResult) -> str:
    """Describe in plain words whether a better template was found."""
    ending = f" The search was cut short: {result.reason}." if result.stopped == "budget" else ""
    ending = " The search was stopped." if result.stopped == "stopped" else ending
    if missing := result.describe_missing():
        ending += f" {missing.rstrip('.')}."
    gain = result.gain
    if result.stopped == "failed":
        return f"Nothing could be scored ({result.reason}). The original is kept."
    if result.perfect:
        return (
            f"The original scores 1 on all {result.perfect} training rows that were tried: nothing"
            f" is left to be gained there, and it is kept.{ending}"
        )

    if result.leader == 0:
        faults = [node.fault for node in result.nodes if node.parent is not None]
        notes = [note for node in result.nodes for note in node.notes]
        if not all(faults):
            fallback = "the original is kept"
            return f"No rewritten template did better on the training rows: {fallback}.{ending}"
        reason = next(iter([*faults, *notes]), "none was made")
        return f"No new template could be written ({reason}): the original is kept.{ending}"

    power = describe_power(result.groups[1] or result.rows[1])
    if gain is None:
        few = f" {power}".rstrip()
        return (
            f"Template {result.leader} leads on the training rows, but was not validated, so the"
            f" original is kept.{few}{ending}"
        )

    if result.accepted:
        verdict = f"The gain is significant: template {result.leader} is taken."
        if result.tested != result.leader:
            verdict += " A search that began with a tested template found it with the calls left."
    elif (gain.groups or gain.items) < fewest_units():
        verdict = (
            f"Fewer than {fewest_units()} independent rows can be compared, which is too few for"
            " any gain to be significant: the original is kept."
        )
    elif gain.covers_less:
        verdict = (
            f"Only {gain.first_scored} rows have a score under it, and {gain.second_scored} under"
            " the original; the missing ones may be those that it does worse on, so the original is"
            " kept. To resume the run asks for them again."
        )
    else:
        verdict = "The gain is not significant: the original is kept."
        verdict = f"{verdict} {power}".rstrip()

    return f"{verdict} {_compared(result, gain)}{_second(result.second)}{ending}"


def describe_power(rows: int) -> str:
    """Return a warning if this number of independent held-out rows can show no gain, or only a
    large one; otherwise an empty text."""
    if rows < fewest_units():
        return (
            f"With {rows} row{'s' * (rows > 1)} held out no gain, however large, can be"
            f" significant: that takes {fewest_units()} at least."
        )

    if rows < FEW_ROWS:
        return f"With {rows} rows held out a gain of less than 0.3 will mostly be missed."

    return ""


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


def _compared(result: CalibrationResult, gain: Gain) -> str:
    if gain.items == 0:
        return "No validation row has a score under both templates."
    of_all = f" of {gain.rows}" if gain.items < gain.rows else ""
    early = f", after a look at {gain.rows} of {gain.planned}" if gain.rows < gain.planned else ""
    grouped = ""
    if gain.groups:
        grouped = f" in {gain.groups} independent group{'s' * (gain.groups > 1)}"
    subject = f"validation rows{grouped} template {result.tested or result.leader} scores"
    if result.is_cross_fitted:
        subject = f"rows{grouped}, each under the best template of the other half, new ones score"
    return (
        f"On {gain.items}{of_all} {subject}"
        f" {gain.first:.3f}, the original {gain.second:.3f}: a difference of {gain.difference:+.3f}"
        f" ({gain.ends}, one-sided p {'< 0.001' if gain.p < 0.001 else f'{gain.p:.3f}'}{early})."
    )
