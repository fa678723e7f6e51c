"""Models around a model: tried again, journaled. `budget` holds the one that counts money,
`limiting` the one that waits for its turn.

The usual order, outermost first: `Journaled(Budgeted(Retrying(Limited(client))))`. What is replayed
costs nothing, a budget counts each call once, and a call that waits to be tried again holds no
place among those in flight.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from random import Random
from time import perf_counter, time

from textevolve.errors import AccessError, ModelError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.events import CallFinished, CallRetried, Listener, silence
from textevolve.llm.journal import Journal, JournalEntry
from textevolve.llm.model import Model, Request, Response, request_key
from textevolve.llm.usage_meter import note_call
from textevolve.settings import Retries

_deadline: ContextVar[asyncio.Timeout | None] = ContextVar("deadline", default=None)


def put_off_deadline(seconds: float) -> None:
    """The deadline around this call comes so much later: what passed is not held against it."""
    limit = _deadline.get()
    due = limit.when() if limit is not None and not limit.expired() else None
    if limit is not None and due is not None:
        limit.reschedule(due + seconds)


@contextmanager
def stopped_deadline() -> Generator[None]:
    """Within the block the deadline around this call stands still."""
    limit, loop = _deadline.get(), asyncio.get_running_loop()
    due, began = limit.when() if limit is not None else None, loop.time()
    if limit is None or due is None:
        yield
        return
    limit.reschedule(None)
    try:
        yield
    except asyncio.CancelledError:
        raise  # a limit that ran out meanwhile would make another error of it
    except BaseException:
        limit.reschedule(due + loop.time() - began)
        raise
    limit.reschedule(due + loop.time() - began)


def backoff(retries: Retries, attempt: int, asked: float | None, rng: Random) -> float:
    """Seconds to wait after the failed `attempt` (from 1): full jitter, on top of what was asked.

    In [asked, asked + min(longest, first x 2^(attempt - 1))], so that callers who were told the
    same time do not come back together.
    """
    most = min(retries.longest, retries.first * 2.0 ** min(attempt - 1, 60))
    return (asked or 0.0) + rng.uniform(0.0, most)


UNCONNECTED = 8
"""Calls that fail to connect, with no other before them, after which a server counts as absent."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """Tries again what raised `UnavailableError`, up to `deadline` seconds for all attempts.

    Time that a call waits for its place in a `Limited` inside does not count. The error that is
    raised in the end has the number of attempts in `attempts`. It is an `AccessError`, so that the
    run ends, where none of the first `UNCONNECTED` calls could connect. `calls` counts those that
    the server "answered", in whatever way, and those that ended "unconnected".
    """

    model: Model
    retries: Retries = field(default_factory=Retries)
    deadline: float = 900.0
    listener: Listener = silence
    rng: Random = field(default_factory=Random)
    calls: Counter[str] = field(default_factory=Counter[str])

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        attempt, made, last = 0, 0, "no attempt ended"
        limit = asyncio.timeout(self.deadline)
        outer = _deadline.set(limit)
        try:
            async with limit:
                while True:
                    attempt += 1
                    try:
                        response = await self.model(request)
                        self.calls["answered"] += 1
                    except UnavailableError as error:
                        failed = error
                        self.calls["answered"] += error.status is not None
                    except ModelError as error:
                        error.attempts += made
                        raise
                    else:
                        return (
                            response
                            if not made
                            else replace(response, attempts=made + response.attempts)
                        )
                    made, last = made + failed.attempts, str(failed)
                    await self._wait(failed, attempt, made, limit)
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            _deadline.reset(outer)
        why = f"the deadline of {self.deadline:g} s has passed"
        raise self._given_up(max(attempt, made), last, why)

    async def _wait(
        self, failed: UnavailableError, attempt: int, made: int, limit: asyncio.Timeout
    ) -> None:
        """Waits before the next attempt, or raises where there can be none. `made`: attempts with
        those that a pool made at several endpoints."""
        if attempt >= self.retries.attempts:
            raise self._given_up(made, str(failed), None, failed)
        wait = backoff(self.retries, attempt, failed.retry_after, self.rng)
        left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
        if wait >= left:
            why = f"the next is due in {wait:.1f} s, past the deadline of {self.deadline:g} s"
            raise self._given_up(made, str(failed), why, failed)
        self.listener(CallRetried(self.name, str(failed), attempt, wait))
        await asyncio.sleep(wait)

    def _given_up(
        self, attempt: int, last: str, why: str | None, failed: UnavailableError | None = None
    ) -> ModelError:
        tried = "1 attempt" if attempt == 1 else f"{attempt} attempts"
        reason = f" ({why})" if why else ""
        error: AccessError | UnavailableError = UnavailableError(
            f"no answer after {tried}{reason}; the last: {last}",
            status=failed.status if failed else None,
            retry_after=failed.retry_after if failed else None,
            address=failed.address if failed else "",
        )
        self.calls["unconnected"] += bool(error.address)
        if self.calls["unconnected"] >= UNCONNECTED and not self.calls["answered"]:
            error = AccessError(
                f"{self.name}: cannot connect to {error.address}: the first {UNCONNECTED} calls"
                " all failed; start the server or correct its address, then resume the run"
            )
        error.attempts = attempt
        return error


class Journaled:
    """Answers from the journal where it can; else asks, and keeps the outcome before it returns it.

    Requests that are the same and come at the same time are asked once. What was cancelled or never
    asked (a budget) is not kept.
    """

    def __init__(self, model: Model, journal: Journal, listener: Listener = silence) -> None:
        self.model = model
        self.name = model.name
        self.journal = journal
        self.listener = listener
        self._asked: dict[str, asyncio.Future[Response | None]] = {}

    async def __call__(self, request: Request, /) -> Response:
        key = request_key(self.name, request)
        while (asked := self._asked.get(key)) is not None:
            shared = await asyncio.shield(asked)
            if shared is not None:
                return note_call(key, self._replayed(replace(shared, replayed=True)))
        outcome = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            found = await self.journal.find(key)
            response = self._replayed(found) if found else await self._ask(key, request)
            outcome.set_result(response)
            return note_call(key, response)
        except Exception as error:
            outcome.set_exception(error)
            outcome.exception()  # nobody may be waiting for it
            raise
        finally:
            del self._asked[key]
            if not outcome.done():  # cancelled: the next in line asks
                outcome.set_result(None)

    def _replayed(self, response: Response) -> Response:
        if self.listener is not silence:
            self.listener(CallFinished(self.name, response.usage, 0.0, replayed=True))
        return response

    async def _ask(self, key: str, request: Request) -> Response:
        started, began = time(), perf_counter()
        response, failed = None, None
        try:
            response = await self.model(request)
        except ModelError as error:
            failed = error
        seconds = perf_counter() - began
        reason = None if failed is None else str(failed)
        attempts = response.attempts if response else failed.attempts if failed else 1
        await self.journal.append(
            JournalEntry(key, self.name, request, response, reason, started, seconds, attempts)
        )
        if self.listener is not silence:
            usage = response.usage if response else Usage()
            self.listener(
                CallFinished(self.name, usage, seconds, replayed=False, error=reason, cause=failed)
            )
        if response is None:
            assert failed is not None
            raise failed
        return response
