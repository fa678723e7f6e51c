"""What a search may still ask for: a budget in calls or dollars, part of it for the decision.

All is counted as if nothing had been in a journal, so that a run that is resumed plans the same.
What an output and a rewrite take is learned from those that were asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Usage

_CALLS = re.compile(r"\d+")
_DOLLARS = re.compile(r"\$\s*(\d+(?:\.\d+)?|\.\d+)|(\d+(?:\.\d+)?|\.\d+)\s*\$")

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
    given = text.strip()
    found = _DOLLARS.fullmatch(given)
    limit = None
    if found:
        limit = BudgetLimit(float(found[1] or found[2]), dollars=True)
    elif _CALLS.fullmatch(given):
        limit = BudgetLimit(float(given))
    if limit is None or limit.most <= 0:
        raise InputError(
            f"the budget must be a number of calls, such as 200, or of dollars, such as $2.50, not"
            f" {text!r}"
        )
    return limit


@dataclass
class LearnedCost:
    """What one of a kind takes: the most that it took on average in any batch so far, so that plans
    err on the side of too little; 0 until one was seen."""

    each: float = 0.0

    def learn(self, cost: float, number: int) -> None:
        if number:
            self.each = max(self.each, cost / number)


@dataclass
class SearchBudget:
    """`limit` None: none. `used`: what was used so far. `reserve`: what the decision will take, by
    what an output does. Costs are in the unit of the limit: calls or dollars. `outputs`: what the
    search takes at most without a limit, in outputs. `most_reserved`: outputs that are enough for
    the decision, once it is known how large the gain is; `least_reserved`: below which no decision
    can be made."""

    limit: BudgetLimit | None
    used: Callable[[], Usage]
    reserve: Callable[[float], float] = lambda _: 0.0
    output: LearnedCost = field(default_factory=LearnedCost)
    rewrite: LearnedCost = field(default_factory=LearnedCost)
    reasons: LearnedCost = field(default_factory=LearnedCost)
    outputs: float = math.inf
    most_reserved: float = math.inf
    least_reserved: float = 0.0
    deciding: bool = False

    @property
    def output_cost(self) -> float:
        """Of one more; before one was seen a call, or next to nothing in dollars."""
        return self.output.each or (1e-9 if self.limit and self.limit.dollars else 1.0)

    @property
    def rewrite_cost(self) -> float:
        """A prompt of several rows and a template is longer than one row's."""
        dollars = self.limit is not None and self.limit.dollars
        return self.rewrite.each or (REWRITE_PRICE * self.output_cost if dollars else 1.0)

    @property
    def reasons_cost(self) -> float:
        return self.reasons.each or self.output_cost

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
        if self.limit is None:
            return self.outputs * self.output_cost - self.spent
        cost = self.output_cost
        kept = min(self.reserve(cost), self.most_reserved * cost)
        return self.limit.most - self.spent - kept

    @property
    def whole_left(self) -> float:
        """Of the whole budget, the decision's part included."""
        return math.inf if self.limit is None else max(0.0, self.limit.most - self.spent)

    @property
    def outputs_left(self) -> float:
        """How many outputs the search may still ask for, if nothing else."""
        return max(0.0, self.left / self.output_cost)

    def check(self) -> None:
        """Raises InputError where the budget is not enough for the shortest search and a
        decision, by what is known of the cost of an output."""
        cost = self.output_cost
        if self.limit is not None and self.left + self.spent < LEAST_SEARCH * cost:
            kept = self.limit.most - self.spent - self.left
            least = LEAST_SEARCH * cost + max(kept, self.least_reserved * cost)
            said = BudgetLimit(math.ceil(least * 100) / 100, True) if self.limit.dollars else None
            raise InputError(
                f"a budget of {self.limit} is too small: the shortest search and a decision take"
                f" {said or BudgetLimit(math.ceil(least))}"
            )

    def require(self, outputs: int, rewrites: int = 0) -> None:
        """Raises SearchSpent where the search's share is not enough for these."""
        if self.deciding:
            return
        cost = outputs * self.output_cost + rewrites * self.rewrite_cost
        if cost > self.left + 1e-9:
            of_all = f" of the budget of {self.limit}" if self.limit else ""
            raise SearchSpent(f"the search has used its share{of_all}")
