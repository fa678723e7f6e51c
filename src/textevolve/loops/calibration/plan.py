"""How a prompt template is searched for: the options, the budget, and what the search works with.

A budget is in calls or dollars, part of it for the decision. All is counted as if nothing had been
in a journal, so that a run that is resumed plans the same. What an output and a rewrite take is
learned from those that were asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import field_validator

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Evaluator, Usage
from textevolve.events import Listener, silence
from textevolve.llm.model import Model
from textevolve.loops.calibration.rewriting import SHOWN
from textevolve.loops.calibration.tree import Gain
from textevolve.loops.calibration.trial_runner import CountFailures, JudgedInput, Program
from textevolve.metrics.shapes import LabelMetric
from textevolve.spec import Frozen, option

_DOLLARS = r"(\d+(?:\.\d+)?|\.\d+)"
_BUDGET = re.compile(rf"(\d+)|\$\s*{_DOLLARS}|{_DOLLARS}\s*\$")

CallKind = Literal["output", "rewrite", "reasons"]
REWRITE_PRICE = 4
LEAST_SEARCH = 12
"""Outputs with which a search can begin: the original on a few rows, a template, a few for it."""


class SearchSpent(BudgetError):
    """The search has used its share of the budget; what was set aside for the decision is there."""


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """`most` calls, or US dollars."""

    most: float
    dollars: bool = False

    def __str__(self) -> str:
        return f"${self.most:g}" if self.dollars else f"{self.most:g} calls"


def read_budget(text: str) -> BudgetLimit:
    """A budget as it is written: `200` (calls), `$2.50` or `2.50$`.

    Raises:
        InputError: it is neither, or nothing at all.
    """
    match = _BUDGET.fullmatch(text.strip())
    amount = float(next(filter(None, match.groups()))) if match else 0.0
    if match is None or amount <= 0:
        raise InputError(
            f"the budget must be a number of calls, such as 200, or of dollars, such as $2.50, not"
            f" {text!r}"
        )
    return BudgetLimit(amount, dollars=match[1] is None)


@dataclass
class SearchBudget:
    """`limit` None: none. `used`: what was used so far. `reserve`: what the decision will take, by
    what an output does. Costs are in the unit of the limit: calls or dollars. `outputs`: what the
    search takes at most without a limit, in outputs. `most_reserved`: outputs that are enough for
    the decision, once it is known how large the gain is; `least_reserved`: below which no decision
    can be made. `learned`: by kind the most that one took on average in any batch so far, so that
    plans err on the side of too little."""

    limit: BudgetLimit | None
    used: Callable[[], Usage]
    reserve: Callable[[float], float] = lambda _: 0.0
    outputs: float = math.inf
    most_reserved: float = math.inf
    least_reserved: float = 0.0
    deciding: bool = False
    learned: dict[str, float] = field(default_factory=dict[str, float])

    def learn(self, kind: CallKind, cost: float, number: int) -> None:
        if number:
            self.learned[kind] = max(self.learned.get(kind, 0.0), cost / number)

    def cost(self, kind: CallKind) -> float:
        """Return the cost of one more. Before one was seen: an output a call, or next to nothing in
        dollars; a rewrite, whose prompt is longer than one row's, a call, or some outputs."""
        dollars = self.limit is not None and self.limit.dollars
        if learned := self.learned.get(kind):
            return learned
        if kind == "output":
            return 1e-9 if dollars else 1.0
        if kind == "rewrite":
            return REWRITE_PRICE * self.cost("output") if dollars else 1.0
        return self.cost("output")

    @property
    def spent(self) -> float:
        """
        Raises:
            InputError: dollars are limited, and what a call costs is not known.
        """
        usage = self.used()
        if self.limit is None or not self.limit.dollars:
            return usage.calls
        if usage.cost is None:
            raise InputError(
                "the budget is in dollars, but what a call costs is not known: give the model's"
                " price in the settings, or a budget in calls"
            )
        return usage.cost

    @property
    def left(self) -> float:
        """For the search, in the unit of the limit."""
        cost = self.cost("output")
        if self.limit is None:
            return self.outputs * cost - self.spent
        reserved = min(self.reserve(cost), self.most_reserved * cost)
        return self.limit.most - self.spent - reserved

    @property
    def whole_left(self) -> float:
        """The rest of the whole budget, the decision's part included."""
        return math.inf if self.limit is None else max(0.0, self.limit.most - self.spent)

    @property
    def outputs_left(self) -> float:
        """How many outputs the search may still ask for, if nothing else."""
        return max(0.0, self.left / self.cost("output"))

    def check(self) -> None:
        """Raises InputError where the budget is not enough for the shortest search and a
        decision, by what is known of the cost of an output."""
        cost = self.cost("output")
        if self.limit is None or self.left + self.spent >= LEAST_SEARCH * cost:
            return
        reserved = self.limit.most - self.spent - self.left
        least = LEAST_SEARCH * cost + max(reserved, self.least_reserved * cost)
        unit = 100 if self.limit.dollars else 1
        enough = BudgetLimit(math.ceil(least * unit) / unit, self.limit.dollars)
        raise InputError(
            f"a budget of {self.limit} is too small: the shortest search and a decision take"
            f" {enough}"
        )

    def require(self, outputs: int, rewrites: int = 0) -> None:
        """Raises SearchSpent where the search's share is not enough for these."""
        cost = outputs * self.cost("output") + rewrites * self.cost("rewrite")
        if not self.deciding and cost > self.left + 1e-9:
            of_all = f" of the budget of {self.limit}" if self.limit else ""
            raise SearchSpent(f"the search has used its share{of_all}")


Compare = Callable[[Sequence[float], Sequence[float]], Gain]
"""What a paired comparison of two lists of scores says, NaN for a missing one: first less second.
Handed in: how a gain is told from chance is for whoever runs the search to say."""

StrategyName = Literal["auto", "reflect", "demos", "protegi"]
PROTEGI = "Beam search (strategy protegi)"


class CalibrationPlan(Frozen):
    """How to search."""

    strategy: StrategyName = option(
        "auto",
        "How to search: reflect rewrites by what failed, demos puts labelled rows in front, auto"
        " does both, protegi is beam search by written gradients.",
        group="Search",
        metavar="NAME",
    )
    budget: str | None = option(
        None, "All that it may take, such as 200 (calls) or $2.50.", group="Search"
    )
    editor: str | None = option(None, "The model that rewrites templates.", group="Advanced")
    beam: int = option(4, "Templates that are kept after each round.", group=PROTEGI, ge=1)
    depth: int = option(5, "Rounds at most.", group=PROTEGI, ge=1)
    successors: int = option(5, "New templates for each one kept.", group=PROTEGI, ge=1)
    gradient_depth: int = option(
        10, "Gradients written for a template.", group="Beam search (strategy protegi)", ge=1
    )
    minibatch: int = option(5, "Rows on which faults are looked for.", group=PROTEGI, ge=1)
    selection_minibatch: int = option(
        6, "Rows on which the templates of a round compete.", group=PROTEGI, ge=1
    )
    final_minibatch: int = option(
        20, "Rows that name the best template of the last beam.", group=PROTEGI, ge=1
    )
    selection: Literal["fast", "ucb"] = option(
        "fast",
        "How the beam is chosen: fast (all on the same rows), or ucb (bandits).",
        group=PROTEGI,
        metavar="NAME",
    )
    judged: JudgedInput = option(
        "seed",
        "The input that judges see: seed (the original template), filled, or template.",
        group="Advanced",
        metavar="NAME",
    )
    failures: CountFailures = option(
        "zero",
        "What an unusable output counts: zero, or missing.",
        group="Advanced",
        metavar="NAME",
    )
    patience: int = option(3, "Rounds without a new template in the beam.", group="Advanced", ge=1)
    temperature: float | None = option(
        0.0, "Sampling temperature of the outputs.", group="Advanced", ge=0, le=2
    )
    max_output_tokens: int = option(
        512, "Tokens at most that an output may have.", group="Advanced", ge=1
    )

    @field_validator("budget")
    @classmethod
    def _readable(cls, given: str | None) -> str | None:
        return given if given is None else str(read_budget(given)).removesuffix(" calls")

    seed: int = option(0, "Seed of the rows that are drawn.", group="Search")


@dataclass(frozen=True)
class CalibrationContext:
    """The models and judges of a search. `generator` answers the prompts, `editor` writes
    instructions and templates. At least one of `evaluator` and `metric`; with both the metric gives
    the scores and the evaluator the reasons. `second_judge` is never optimised against.
    `time_limit`: in seconds. `program`: what is optimised; None: the template alone, which
    `generator` answers. `shown`: characters of all outcomes that one prompt shows the editor.
    """

    generator: Model
    editor: Model
    compare: Compare
    evaluator: Evaluator | None = None
    metric: LabelMetric | None = None
    second_judge: Evaluator | None = None
    concurrency: int = 64
    time_limit: float | None = None
    listener: Listener = silence
    program: Program | None = None
    shown: int = SHOWN
