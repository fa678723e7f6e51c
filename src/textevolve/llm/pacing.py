"""When a call may be made: limits a minute from the settings, and those that answers tell of.

Arithmetic alone, with the time given to it: `limiting` lets calls wait. A limit of the settings is
a token bucket. A limit that an endpoint tells of is followed as it tells it: where its figures are
those of a bucket that fills all the time, so much is taken to have come back meanwhile; else
nothing, until the moment at which it says that all is there again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import takewhile

from textevolve.evaluation import Usage
from textevolve.llm.rate_limits import RateWindow, Unit

MINUTE = 60.0
PERIODS: Mapping[float, str] = {1.0: "second", MINUTE: "minute", 3600.0: "hour", 86_400.0: "day"}
BURST = 0.1
"""The share of a minute's limit that may be taken at once."""
MARGIN = 0.05
"""Seconds after the moment at which an endpoint says that a limit is whole again."""
TOKENS_PER_CHARACTER, ANSWER = 0.3, 200.0
"""Of a call's tokens before the first answer has shown better figures."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one call is taken to use: itself, tokens of its prompt and of its answer."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, unit: Unit, kind: str) -> float:
        if unit == "requests":
            return 1.0
        if "input" in kind:
            return self.prompt
        return self.answer if "output" in kind else self.prompt + self.answer


NOTHING = Need()


class RateBucket:
    """A limit a minute of our own: `BURST` of it at once, the rest as time goes by.

    Of requests never more than `limit` are let through in any 60 seconds; of tokens at most one
    call more, since what a call takes is known only after it, and one that is larger than the
    bucket has to go on at some time.
    """

    def __init__(self, limit: float, unit: Unit) -> None:
        self.unit: Unit = unit
        self.limit = limit
        whole = 1.0 if unit == "requests" else 0.0
        self.capacity = max(whole, limit * BURST)
        self.rate = (limit - self.capacity + whole) / MINUTE
        self._level, self._at = self.capacity, -math.inf

    def _fill(self, now: float) -> float:
        if now > self._at:
            passed = now - self._at if math.isfinite(self._at) else 0.0
            self._level = min(self.capacity, self._level + passed * self.rate)
            self._at = now
        return self._level

    def wait(self, now: float, amount: float) -> float:
        missing = min(amount, self.capacity) - self._fill(now)
        return missing / self.rate if missing > 1e-9 else 0.0

    def take(self, now: float, amount: float) -> None:
        self._fill(now)
        self._level -= amount

    @property
    def reason(self) -> str:
        return f"your limit of {self.limit:g} {self.unit} a minute"


def make_buckets(requests: float | None, tokens: float | None) -> tuple[RateBucket, ...]:
    """The limits a minute that there are."""
    given: tuple[tuple[float | None, Unit], ...] = ((requests, "requests"), (tokens, "tokens"))
    return tuple(RateBucket(limit, unit) for limit, unit in given if limit is not None)


class ToldLimit:
    """A limit that an endpoint tells of, as far as is known between two answers."""

    def __init__(self, kind: str, unit: Unit) -> None:
        self.kind = kind
        self.unit: Unit = unit
        self.limit: float | None = None
        self.period: float | None = None
        self.strict = False
        self._left, self._at, self._whole_at = math.inf, 0.0, math.inf
        self._longest = 0.0

    def note(self, now: float, told: RateWindow, flying: float) -> None:
        """`flying`: what those calls will take that were sent after the one that this was told
        to."""
        self.limit = told.limit
        self._left, self._at = told.remaining - flying, now
        self._whole_at = math.inf if told.reset is None else now + told.reset
        self._longest = max(self._longest, told.reset or 0.0)
        used = 0.0 if told.limit is None else told.limit - told.remaining
        if told.limit and told.reset and used > 0:
            self.period = None if self.strict else _period(told.limit * told.reset / used)

    def refused(self, told: RateWindow, amount: float) -> None:
        """A call was refused that was thought to have room: nothing comes back before its time."""
        if self.period is not None and told.remaining < amount:
            self.strict, self.period = True, None

    def _available(self, now: float) -> float:
        if now >= self._whole_at:
            self._left = math.inf if self.limit is None else self.limit
            self._at, self._whole_at = now, now + self._longest  # until an answer tells better
        elif self.period is not None and self.limit is not None and now > self._at:
            come = (now - self._at) * self.limit / self.period
            self._left, self._at = min(self.limit, self._left + come), now
        return self._left

    def wait(self, now: float, amount: float) -> float:
        missing = (amount if self.limit is None else min(amount, self.limit)) - self._available(now)
        if missing <= 1e-9:
            return 0.0
        due = self._whole_at + MARGIN - now
        if self.period is not None and self.limit:
            return min(due, missing * self.period / self.limit)
        return due if math.isfinite(due) else 0.0  # it does not say when: let the endpoint decide

    def take(self, now: float, amount: float) -> None:
        self._left = self._available(now) - amount

    def say(self, whose: str) -> str:
        kind = "requests" if self.kind.startswith("req") else self.kind.replace("-", " ")
        spoken = kind.split(" ")[-1] in ("second", "minute", "hour", "day")
        each = "" if spoken or self.period is None else f" a {PERIODS[self.period]}"
        return f"{whose}'s limit of {kind}{each}".replace("a hour", "an hour")


def _period(found: float) -> float | None:
    """The usual time in which a bucket fills, where the figures are those of one."""
    return next((one for one in PERIODS if 0.8 * one <= found <= 1.25 * one), None)


@dataclass(slots=True)
class Ticket:
    """A call under way: which in order, and what it was taken to need."""

    number: int
    need: Need
    refused: bool = False
    headers: Mapping[str, str] | None = None


@dataclass
class Pacer:
    """The limits of one endpoint. `whose`: its name in messages. `buckets` may be shared with
    others."""

    whose: str
    buckets: tuple[RateBucket, ...] = ()
    told: dict[str, ToldLimit] = field(default_factory=dict[str, ToldLimit])
    _held_until: float = -math.inf
    _number: int = 0
    _noted: int = 0
    _flying: dict[int, Need] = field(default_factory=dict[int, Need])
    _per_character: float = TOKENS_PER_CHARACTER
    _answer: float = ANSWER

    def need(self, characters: int, max_tokens: int | None) -> Need:
        """What a call with a prompt of so many characters is taken to need."""
        answer = self._answer if max_tokens is None else min(self._answer, max_tokens)
        return Need(characters * self._per_character, answer)

    @property
    def idle(self) -> bool:
        """Whether nothing is limited, as far as is known."""
        return not (self.buckets or self.told) and self._held_until == -math.inf

    def wait(self, now: float, need: Need) -> tuple[float, str]:
        """Seconds until such a call may be made, and for what it has to wait."""
        waits = [(self._held_until - now, f"{self.whose}, which asked to wait")]
        waits += [(one.wait(now, need.of(one.unit, "")), one.reason) for one in self.buckets]
        waits += [
            (one.wait(now, need.of(one.unit, kind)), one.say(self.whose))
            for kind, one in self.told.items()
        ]
        longest = max(waits, key=lambda found: found[0])
        return longest if longest[0] > 0 else (0.0, "")

    def take(self, now: float, need: Need) -> Ticket:
        for one in self.buckets:
            one.take(now, need.of(one.unit, ""))
        for kind, limit in self.told.items():
            limit.take(now, need.of(limit.unit, kind))
        self._number += 1
        self._flying[self._number] = need
        return Ticket(self._number, need)

    def note(self, now: float, ticket: Ticket, windows: Iterable[RateWindow]) -> None:
        """What the answer to a call told. Figures that are older than those that are known are left
        alone: answers overtake each other."""
        newest = ticket.number >= self._noted
        self._noted = max(self._noted, ticket.number)
        later = list(takewhile(lambda number: number > ticket.number, reversed(self._flying)))
        for told in windows:
            limit = self.told.get(told.kind)
            if limit is None:
                limit = self.told[told.kind] = ToldLimit(told.kind, told.unit)
            if ticket.refused:
                limit.refused(told, ticket.need.of(told.unit, told.kind))
            if newest:
                flying = [self._flying[number].of(told.unit, told.kind) for number in later]
                limit.note(now, told, sum(flying))

    def settle(self, now: float, ticket: Ticket, used: Usage | None, characters: int = 0) -> None:
        """The call has ended; `used`: what it took, where it was answered."""
        del self._flying[ticket.number]
        if used is None or not used.tokens or self.idle:
            return
        guessed = ticket.need.prompt + ticket.need.answer
        for one in self.buckets:
            if one.unit == "tokens":
                one.take(now, used.tokens - guessed)
        self._answer += 0.2 * (used.completion_tokens - self._answer)
        if characters:
            self._per_character += 0.2 * (used.prompt_tokens / characters - self._per_character)

    def hold(self, until: float) -> None:
        """The endpoint asked to wait: no call before that."""
        self._held_until = max(self._held_until, until)


hearing_ticket: ContextVar[Ticket | None] = ContextVar("hearing_ticket", default=None)
"""The call that is under way here, which is told the headers of its answer."""


def tell_headers(headers: Mapping[str, str]) -> None:
    """Tells whoever limits this call what the headers of its answer were."""
    ticket = hearing_ticket.get()
    if ticket is not None:
        ticket.headers = headers
