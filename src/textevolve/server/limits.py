"""Limits of what a key and a namespace may use: requests, tokens, open streams.

Code that answers with a model calls `check_tokens` before, and reports the used tokens by
`note_tokens` afterwards. The limits of keys are per minute and counted in memory; the budget of a
namespace is per day and counted in the database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from textevolve.errors import StoreError
from textevolve.evaluation import empty_default
from textevolve.server.errors import ApiError
from textevolve.server.identity import Caller
from textevolve.store import Store, keys
from textevolve.store.keys import TokenBudget

FLUSH_SECONDS = 1.0
"""The seconds between two writes of the counted usage to the database; the usage of that time is
lost if the server is killed."""
DAY_SECONDS = 86_400.0
USED_SECONDS = 60.0
"""The seconds between two writes of the time when a key was last used, so that time is only known
this exactly."""

log = logging.getLogger("textevolve.server")


@dataclass
class Bucket:
    """A token bucket: it fills evenly, up to one minute's quota. It may be overdrawn; then callers
    have to wait until it is above 0 again.

    Attributes:
        per_minute: The amount that flows in during a minute, which is also the most that it holds.
        level: The amount in the bucket at the time `at`; below 0 if it is overdrawn.
        at: The time of the last change, on the monotonic clock.
    """

    per_minute: int
    level: float
    at: float

    def take(self, amount: float) -> float:
        """Take an amount if the bucket holds it, or at least 1, and return 0; the bucket may then
        be overdrawn. Otherwise take nothing, and return the seconds until it holds enough."""
        now = time.monotonic()
        filled = self.level + (now - self.at) * self.per_minute / 60
        self.level, self.at = min(filled, float(self.per_minute)), now
        least = min(amount, 1.0)
        if self.level < least:
            return (least - self.level) * 60 / self.per_minute
        self.level -= amount
        return 0.0


@dataclass
class UsageLimits:
    """The remaining quota of each key and each namespace. Callers without a limit are never
    refused."""

    resources: Store
    _requests: dict[str, Bucket] = empty_default(dict)
    _tokens: dict[str, Bucket] = empty_default(dict)
    _streams: Counter[str] = empty_default(Counter)
    _spent: Counter[str] = empty_default(Counter)
    _used: dict[str, float] = empty_default(dict)
    _noted: dict[str, float] = empty_default(dict)
    _budgets: dict[str, tuple[float, TokenBudget]] = empty_default(dict)

    def take_request(self, caller: Caller) -> None:
        """Count a request towards the key's limit per minute; the guard calls this for every
        request.

        Raises:
            ApiError: 429, the requests of this minute are used up.
        """
        self._note_used(caller.key)
        allowed = caller.limits.requests_per_minute
        if allowed is not None and (wait := _bucket(self._requests, caller.key, allowed).take(1)):
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"the key may make {allowed:,} requests a minute",
                retry_after=wait,
            )

    async def check_tokens(self, caller: Caller, namespace: str = "") -> None:
        """Check the token limits before models are called. `namespace`: the namespace to charge; by
        default the only one that the caller may use, and none if it may use several.

        Raises:
            ApiError: 429, the tokens of the key's minute or of the namespace's day are used up.
        """
        allowed = caller.limits.tokens_per_minute
        if allowed is not None and (wait := _bucket(self._tokens, caller.key, allowed).take(0)):
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"models may read and write {allowed:,} tokens a minute for the key",
                retry_after=wait,
            )
        space = _charged(caller, namespace)
        budget = await self._budget(space) if space else TokenBudget()
        if budget.allowed is not None and budget.used + self._spent[space] >= budget.allowed:
            raise ApiError(
                429,
                "insufficient_quota",
                f"the namespace '{space}' has spent its {budget.allowed:,} tokens of today (UTC)",
                retry_after=DAY_SECONDS - time.time() % DAY_SECONDS,
            )

    def note_tokens(self, caller: Caller, tokens: int, namespace: str = "") -> None:
        """Charge the tokens that models read and wrote for a caller to its key, and to the
        namespace as in `check_tokens`."""
        allowed = caller.limits.tokens_per_minute
        if allowed is not None:
            _bucket(self._tokens, caller.key, allowed).level -= tokens
        if space := _charged(caller, namespace):
            self._spent[space] += tokens

    @contextmanager
    def stream_place(self, caller: Caller) -> Generator[None]:
        """Count an answer as an open stream while it is sent.

        Raises:
            ApiError: 429, the key has reached its limit of open streams.
        """
        allowed = caller.limits.streams
        if allowed is not None and self._streams[caller.key] >= allowed:
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"the key may hold {allowed:,} streams open at once",
                retry_after=1,
            )
        self._streams[caller.key] += 1
        try:
            yield
        finally:
            self._streams[caller.key] -= 1

    async def flush(self) -> None:
        """Write the usage since the last flush to the database. If that fails, the tokens are
        counted again in the next flush."""
        spent, used = self._spent, self._used
        if not spent and not used:
            return
        self._spent, self._used = Counter(), {}
        try:
            await asyncio.to_thread(self.resources.note_usage, spent, used)
        except StoreError as error:
            log.warning("usage could not be written down, and will be tried again: %s", error)
            self._spent += spent
        self._budgets.clear()

    async def _budget(self, namespace: str) -> TokenBudget:
        now = time.monotonic()
        read_at, budget = self._budgets.get(namespace, (0.0, TokenBudget()))
        if now - read_at > FLUSH_SECONDS:
            budget = await asyncio.to_thread(self.resources.read, keys.read_budget, namespace)
            self._budgets[namespace] = (now, budget)
        return budget

    def _note_used(self, key: str) -> None:
        now = time.time()
        if key and now - self._noted.get(key, 0.0) > USED_SECONDS:
            self._noted[key] = self._used[key] = now


@asynccontextmanager
async def open_limits(resources: Store) -> AsyncGenerator[UsageLimits]:
    """Open the usage limits; usage is written to the database at intervals and at the end."""
    limits = UsageLimits(resources)

    async def keep() -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await limits.flush()

    task = asyncio.create_task(keep())
    try:
        yield limits
    finally:
        task.cancel()
        await limits.flush()


def _bucket(buckets: dict[str, Bucket], key: str, allowed: int) -> Bucket:
    bucket = buckets.get(key)
    if bucket is None or bucket.per_minute != allowed:
        bucket = buckets[key] = Bucket(allowed, float(allowed), time.monotonic())
    return bucket


def _charged(caller: Caller, namespace: str) -> str:
    bound = caller.namespaces or ()
    return namespace or (next(iter(bound)) if len(bound) == 1 else "")
