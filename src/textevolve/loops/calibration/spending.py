"""What a search may still ask for: a budget in calls or dollars, part of it for the decision.

All is counted as if nothing had been in a journal, so that a run that is resumed plans the same.
What an output and a rewrite take is learned from those that were asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Usage

_DOLLARS = r"(\d+(?:\.\d+)?|\.\d+)"
_BUDGET = re.compile(rf"(\d+)|\$\s*{_DOLLARS}|{_DOLLARS}\s*\$")

Kind = Literal["output", "rewrite", "reasons"]
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

    def learn(self, kind: Kind, cost: float, number: int) -> None:
        if number:
            self.learned[kind] = max(self.learned.get(kind, 0.0), cost / number)

    def cost(self, kind: Kind) -> float:
        """What one more takes. Before one was seen: an output a call, or next to nothing in
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
        """Of the whole budget, the decision's part included."""
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
