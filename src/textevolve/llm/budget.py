"""A run's limits of money, tokens and calls, held by one `Budget` that all its models share.

A call is asked when it surely fits beside all that is in flight. Close to a limit, where that
cannot be known, calls are asked one at a time: a limit is passed by less than one call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from textevolve.errors import BudgetError, ModelError, SettingsError
from textevolve.evaluation import Usage
from textevolve.llm.case_images import prompt_tokens
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.prices import find_price, say_unlisted
from textevolve.llm.providers import Endpoint
from textevolve.llm.reported_usage import cost_of
from textevolve.llm.token_count import CHARACTERS_A_TOKEN
from textevolve.settings import Price

NO_DISCOUNT = "what its batch jobs take off is not known: set batch_discount of its provider"

UNSEEN_ANSWER = 4096
"""Tokens an answer is taken to need at most while nothing bounds it and none was seen."""


def refuse_unpriced(model: str, looked: str = "") -> SettingsError:
    """What there is to say of a limit of cost where the cost of a model is not known; `looked`:
    where it was looked for, too."""
    looked = f" ({looked})" if looked else ""
    return SettingsError(
        f"the cost is limited, but what {model} costs is not known{looked}; give its price in the"
        f' settings under [prices."{model}"], or limit tokens instead'
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """What one call will need, at most and at least. An unknown cost is infinite at most."""

    most_tokens: int
    least_tokens: int
    most_cost: float
    least_cost: float


class Budget:
    """`cost` in US dollars, `tokens` of prompts and answers together, `calls` with failed ones.

    `spent` starts at what a resumed run had spent before.
    """

    def __init__(
        self,
        *,
        cost: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        spent: Usage | None = None,
    ) -> None:
        self.cost = math.inf if cost is None else cost
        self.tokens = math.inf if tokens is None else tokens
        self.calls = math.inf if calls is None else calls
        self.spent = spent or Usage()
        self.in_flight = 0
        self._claimed_tokens = 0
        self._claimed_cost = 0.0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._unpriced = "" if self.spent.cost is not None else "the run so far"

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return any(map(math.isfinite, (self.cost, self.tokens, self.calls)))

    async def claim(self, claim: Claim) -> None:
        """Sets aside what a call may need; waits while only calls in flight can tell if it fits.

        Raises:
            BudgetError: the call cannot be asked within the limits.
            SettingsError: the cost is limited, and what a call costs is not known.
        """
        async with self._turn:
            while True:
                self._check(claim)
                if self.in_flight == 0 or self._fits(claim):
                    break
                self._changed.clear()
                await self._changed.wait()
        self.in_flight += 1
        self._claimed_tokens += claim.most_tokens
        self._claimed_cost += self._bounded(claim)

    def settle(self, claim: Claim, usage: Usage, model: str) -> None:
        """Puts what was spent in the place of what was set aside."""
        self.in_flight -= 1
        self._claimed_tokens -= claim.most_tokens
        self._claimed_cost = self._claimed_cost - self._bounded(claim) if self.in_flight else 0.0
        self.spent += usage
        if usage.cost is None:
            self._unpriced = self._unpriced or model
        self._changed.set()

    def _bounded(self, claim: Claim) -> float:
        return min(claim.most_cost, self.cost) if math.isfinite(self.cost) else 0.0

    def _check(self, claim: Claim) -> None:
        if self.spent.calls + self.in_flight >= self.calls:
            raise BudgetError(f"the limit of {self.calls} calls is reached; raise it to go on")
        if self.spent.tokens + claim.least_tokens > self.tokens:
            spent = f"{'about ' if self.spent.estimated else ''}{self.spent.tokens}"
            raise BudgetError(
                f"the limit of {self.tokens} tokens is reached ({spent} are spent, the "
                f"next call needs {claim.least_tokens} or more); raise it to go on"
            )
        if math.isinf(self.cost):
            return
        if self._unpriced:
            raise refuse_unpriced(self._unpriced)
        spent = self.spent.cost or 0.0
        if spent + claim.least_cost > self.cost or spent >= self.cost:
            raise BudgetError(
                f"the limit of ${self.cost:g} is reached (${spent:.4f} is spent); raise it to go on"
            )

    def _fits(self, claim: Claim) -> bool:
        tokens = self.spent.tokens + self._claimed_tokens + claim.most_tokens
        if tokens > self.tokens:
            return False
        if math.isinf(self.cost):
            return True
        return (self.spent.cost or 0.0) + self._claimed_cost + claim.most_cost <= self.cost


@dataclass
class ClaimedCall:
    """What a call took, to be filled in by whoever makes it."""

    usage: Usage = Usage()


class Allowance:
    """What the calls of one model may take of a `Budget`: estimated before, bounded better with
    each answer. Without a price, costs are those that the model reports."""

    def __init__(self, name: str, budget: Budget, price: Price | None = None) -> None:
        self.name = name
        self.budget = budget
        self.price = price
        self._seen_per_character = (math.inf, 0.0)
        self._longest_answer = 0
        self._most_per_token = math.inf

    @asynccontextmanager
    async def claimed(self, characters: int, max_tokens: int | None) -> AsyncGenerator[ClaimedCall]:
        """Room for a call with a prompt of so many characters, for as long as it takes.

        Raises:
            BudgetError, SettingsError: as `Budget.claim`.
        """
        claim = self._estimate(characters, max_tokens)
        await self.budget.claim(claim)
        spent = ClaimedCall()
        try:
            yield spent
            self._learn(spent.usage, characters)
        except ModelError:
            spent.usage = Usage(calls=1)
            raise
        finally:
            self.budget.settle(claim, spent.usage, self.name)

    def _estimate(self, characters: int, max_tokens: int | None) -> Claim:
        low, high = self._seen_per_character
        most = math.ceil(characters * (1.5 * high or 1.0)) + 64
        least = max(1, math.floor(characters * min(0.5 * low, 0.1)))
        answer = max_tokens or max(UNSEEN_ANSWER, 2 * self._longest_answer)
        if self.price is None:
            return Claim(most + answer, least, self._most_per_token * (most + answer), 0.0)
        highest = cost_of(self.price, most, 0, answer)
        return Claim(most + answer, least, highest, cost_of(self.price, least, least, 0))

    def _learn(self, usage: Usage, characters: int) -> None:
        """Bounds for the next calls, with room on both sides of what was seen."""
        if characters >= 200 and usage.prompt_tokens:
            seen = usage.prompt_tokens / characters
            known = self._seen_per_character
            low, high = min(known[0], seen), max(known[1], seen)
            self._seen_per_character = (low, high)
        self._longest_answer = max(self._longest_answer, usage.completion_tokens)
        if usage.cost is not None and usage.tokens:
            known = 0.0 if math.isinf(self._most_per_token) else self._most_per_token
            self._most_per_token = max(known, 2 * usage.cost / usage.tokens)


class Budgeted:
    """A model that asks only within a `Budget`."""

    def __init__(self, model: Model, budget: Budget, price: Price | None = None) -> None:
        self.model, self.budget = model, budget
        self._allowance = Allowance(model.name, budget, price)

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        characters = CHARACTERS_A_TOKEN * prompt_tokens(request)
        async with self._allowance.claimed(characters, request.max_tokens) as spent:
            response = await self.model(request)
            spent.usage = response.usage
            return response


def within(
    model: Model, endpoint: Endpoint, budget: Budget, price_of: Callable[[Endpoint], Price | None]
) -> Model:
    """The model within a budget; it asks nothing where a limited cost is not known."""
    price = price_of(endpoint)
    if math.isfinite(budget.cost) and price is None and not endpoint.reports_cost:
        why = say_unlisted(endpoint) if find_price(endpoint) is None else NO_DISCOUNT
        model = _Unpriced(model.name, why)
    return Budgeted(model, budget, price)


@dataclass(frozen=True, slots=True)
class _Unpriced:
    """Stands where a model was of which a limit of cost could only be kept after a call too many.
    What the journal has is still found."""

    name: str
    looked: str

    async def __call__(self, request: Request, /) -> Response:
        raise refuse_unpriced(self.name, self.looked)
