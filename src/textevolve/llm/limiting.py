"""How many calls of an endpoint are in flight, and when the next one may be made.

One gate with one queue: a call goes through when there is a place for it (additive increase,
multiplicative decrease with the 429s), and when no rate limit holds it (`pacing`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from textevolve.errors import UnavailableError
from textevolve.evaluation import Usage
from textevolve.events import CallHeld, Listener, silence
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.pacing import NOTHING, Need, Pacer, Ticket, hearing_ticket
from textevolve.llm.rate_limits import read_windows
from textevolve.llm.wrappers import stopped_deadline

ANNOUNCED = 0.5
"""Seconds of a wait that is worth telling."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    place: asyncio.Future[Ticket]
    need: Need


class Limited:
    """At most `limit` calls in flight, in the order they came; the limit follows the 429s.

    Additive increase: one more for each round of `limit` answers, while the limit is in full use,
    up to `most` (`start`, unless said). Multiplicative decrease: a 429 halves it, once for all
    calls that had begun before. Never below 1. Calls wait for rate limits as `pacer` says, and
    nobody is asked before the time that a 429 named. A wait of more than `patience` seconds is an
    `UnavailableError` instead.
    """

    def __init__(
        self,
        model: Model,
        start: int,
        *,
        most: int | None = None,
        pacer: Pacer | None = None,
        listener: Listener = silence,
        patience: float = 900.0,
    ) -> None:
        if start < 1 or (most is not None and most < start):
            raise ValueError("start must be at least 1, and most at least start")
        self.model = model
        self.limit = float(start)
        self.most = start if most is None else most
        self.in_flight = 0
        self.pacer = pacer or Pacer(model.name)
        self._listener, self._patience = listener, patience
        self._waiting: deque[_Waiter] = deque()
        self._decreases = 0
        self._timer: asyncio.TimerHandle | None = None
        self._told = ("", 0.0)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def load(self) -> int:
        """Calls in flight and calls that wait."""
        return self.in_flight + len(self._waiting)

    def held(self) -> tuple[float, str]:
        """For how many seconds rate limits hold the next call, and which; (0, "") for not at
        all."""
        now = asyncio.get_running_loop().time()
        return (0.0, "") if self.pacer.idle else self.pacer.wait(now, self.pacer.need(0, None))

    async def __call__(self, request: Request, /) -> Response:
        pacer, characters, loop = self.pacer, 0, asyncio.get_running_loop()
        idle = pacer.idle
        if idle and not self._waiting and self.in_flight < int(self.limit):
            self.in_flight += 1
            ticket = pacer.take(0.0, NOTHING)
        else:
            characters = 0 if idle else _characters(request)
            ticket = await self._enter(pacer.need(characters, request.max_tokens))
        began = self._decreases
        used: Usage | None = None
        outer = hearing_ticket.set(ticket)
        try:
            response = await self.model(request)
            used = response.usage
            self._increase()
        except UnavailableError as error:
            if error.status == 429:
                ticket.refused = True
                self._decrease(began)
                if error.retry_after:
                    self.pacer.hold(loop.time() + error.retry_after)
            raise
        finally:
            hearing_ticket.reset(outer)
            now = loop.time()
            windows = read_windows(ticket.headers, time.time) if ticket.headers else ()
            if windows:
                pacer.note(now, ticket, windows)
            pacer.settle(now, ticket, used, characters)
            self.in_flight -= 1
            if self._waiting:
                self._admit()
        return response

    async def _enter(self, need: Need) -> Ticket:
        """Waits for a place; the deadline around this call stands still meanwhile."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Ticket] = loop.create_future()
        self._waiting.append(_Waiter(place, need))
        self._admit()
        try:
            with stopped_deadline():
                return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                # The place was given in the same turn of the loop.
                self.pacer.settle(loop.time(), place.result(), None)
                self.in_flight -= 1
            self._admit()
            raise

    def _admit(self) -> None:
        """Lets those in who may go, the first first, and comes back when the next one may."""
        while self._waiting and self.in_flight < int(self.limit):
            first = self._waiting[0]
            if first.place.done():  # cancelled
                self._waiting.popleft()
                continue
            loop = asyncio.get_running_loop()
            wait, reason = self.pacer.wait(loop.time(), first.need)
            if wait > self._patience:
                self._waiting.popleft()
                first.place.set_exception(self._refuse(wait, reason))
            elif wait > 0:
                self._come_back(loop, wait, reason)
                return
            else:
                self._waiting.popleft()
                self.in_flight += 1
                first.place.set_result(self.pacer.take(loop.time(), first.need))

    def _come_back(self, loop: asyncio.AbstractEventLoop, wait: float, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(wait, self._admit)
        said, until = self._told
        if wait >= ANNOUNCED and (said != reason or loop.time() + wait > until + ANNOUNCED):
            self._told = reason, loop.time() + wait
            self._listener(CallHeld(self.name, wait, reason))

    def _refuse(self, wait: float, reason: str) -> UnavailableError:
        said = f"{self.name}: {reason} lets the next call through in {wait:.0f} s only"
        return UnavailableError(said, status=429, retry_after=wait)

    def _increase(self) -> None:
        if self.in_flight >= int(self.limit):
            self.limit = min(float(self.most), self.limit + 1.0 / self.limit)

    def _decrease(self, began: int) -> None:
        if began == self._decreases:
            self._decreases += 1
            self.limit = max(1.0, self.limit / 2)


def _characters(request: Request) -> int:
    return sum(len(part) for message in request.messages for part in message.parts)
