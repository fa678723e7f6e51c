"""The identity of a request's sender: known by a key in the request, by a browser's session, or
because the request comes from this machine.

Keys and sessions are looked up in the database; the result is reused for a second.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Request

from textevolve.errors import StoreError
from textevolve.evaluation import empty_default
from textevolve.server.errors import ApiError, log
from textevolve.store import keys as stored_keys
from textevolve.store.keys import (
    PREFIX,
    SCOPES,
    KeyLimits,
    KeyScope,
    StoredKey,
    TokenBudget,
    digest,
)
from textevolve.store.repository import Store

NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request, with its rights.

    Attributes:
        key: The id of its key; empty for this machine, which needs no key.
        name: The name of the key, for people.
        scopes: What the caller may do.
        namespaces: The namespaces that the caller sees; None: all of them, and runs without a
            namespace.
        limits: The requests, tokens and streams that the key may use.
    """

    key: str
    name: str
    scopes: frozenset[KeyScope]
    namespaces: frozenset[str] | None = None
    limits: KeyLimits = NO_LIMITS

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


THIS_MACHINE = Caller("", "this machine", frozenset(SCOPES))
NOBODY = Caller("", "nobody", frozenset(), frozenset())
"""The caller of a request without the required key, who may only reach paths that need none."""


def caller_by_key(key: StoredKey) -> Caller:
    """Return the caller with the rights of a stored key."""
    spec = key.spec
    namespaces = frozenset(spec.namespaces) if spec.namespaces else None
    return Caller(key.id, key.name, frozenset(spec.scopes), namespaces, spec.limits)


def caller_of(request: Request) -> Caller:
    """Return the authenticated caller of a request, as set by `guard`."""
    return request.scope["textevolve.caller"]


def needs(scope: KeyScope) -> Callable[[Request], Awaitable[Caller]]:
    """Return a FastAPI dependency that returns the caller, or raises a 403 error if the caller
    lacks this scope."""

    async def check(request: Request) -> Caller:  # else it is run in a thread
        return require_scope(caller_of(request), scope)

    return check


def require_scope(caller: Caller, scope: KeyScope) -> Caller:
    """Return the caller, or raise a 403 error if it lacks this scope."""
    if not caller.may(scope):
        raise ApiError(403, "permission_denied", f"the key has no scope '{scope}'")
    return caller


MayRead: TypeAlias = Annotated[Caller, Depends(needs("read"))]
MayRun: TypeAlias = Annotated[Caller, Depends(needs("run"))]
MayLabel: TypeAlias = Annotated[Caller, Depends(needs("label"))]
MayAdminister: TypeAlias = Annotated[Caller, Depends(needs("admin"))]


def check_namespace(caller: Caller, namespace: str) -> None:
    """Check that a caller may see a namespace.

    Raises:
        ApiError: 404, the caller may not see it; the answer is the same as if it did not exist.
    """
    if not caller.sees(namespace):
        raise ApiError(404, "not_found", f"no namespace '{namespace}'")


KEY_SECONDS = 1.0
"""The seconds for which the result of looking up a key is reused."""
SESSION_SECONDS = 24 * 3600.0
"""The most seconds that a browser's session lasts."""
MOST_KNOWN = 4096
"""The most keys whose looked-up result is remembered."""

OPERATOR = Caller("env", "the key of --key-env", frozenset(SCOPES))


@dataclass
class Identities:
    """Finds callers by key or session. `env_key`: the key from the environment variable of
    --key-env, which has all scopes; None without that option."""

    resources: Store
    env_key: str | None = None
    _known: dict[bytes, tuple[float, Caller]] = empty_default(dict)

    async def find_by_key(self, text: str) -> Caller | None:
        """Return the caller with a key; None if it is invalid or revoked."""
        if self.env_key is not None and hmac.compare_digest(digest(text), digest(self.env_key)):
            return OPERATOR
        return await self._look_up(stored_keys.find_key, text) if text.startswith(PREFIX) else None

    async def find_by_id(self, id: str) -> Caller | None:
        """Return the caller with the key of this id; None if the key is no longer valid. For the
        key of --key-env, and for this machine, which needs no key, it is `THIS_MACHINE`."""
        if id in (THIS_MACHINE.key, OPERATOR.key):
            return THIS_MACHINE
        return await self._look_up(stored_keys.find_key_by_id, id)

    async def find_by_session(self, token: str) -> Caller | None:
        """Return the caller of a browser's session; None if the session or its key is no longer
        valid."""
        store = self.resources
        stored = self._stored_token(token)
        id = await asyncio.to_thread(store.read, stored_keys.find_session, stored)
        if id == OPERATOR.key:
            return OPERATOR if self.env_key is not None else None
        return await self.find_by_id(id) if id else None

    async def begin_session(self, text: str) -> str | None:
        """Begin a session with a key and return the session's token; None if the key is invalid.
        The session ends when its key does, and after `SESSION_SECONDS` at the latest."""
        caller = await self.find_by_key(text)
        if caller is None:
            return None
        token = f"{'e' if caller is OPERATOR else 'k'}.{secrets.token_urlsafe(32)}"
        expires = time.time() + SESSION_SECONDS
        stored = self._stored_token(token)
        write = self.resources.write
        await asyncio.to_thread(write, stored_keys.add_session, stored, caller.key, expires)

        return token

    async def end_session(self, token: str) -> None:
        stored = self._stored_token(token)
        await asyncio.to_thread(self.resources.write, stored_keys.end_session, stored)

    def _stored_token(self, token: str) -> str:
        """Return the text under which a session's token is stored. For a session of the operator's
        key it contains that key, so the session ends when the key is changed."""
        return f"{token} {self.env_key}" if token.startswith("e.") else token

    async def _look_up(self, query: Callable[..., Any], text: str) -> Caller | None:
        name = digest(f"{query.__name__} {text}")
        now = time.monotonic()
        at, caller = self._known.get(name, (-KEY_SECONDS, None))
        if caller is not None and now - at < KEY_SECONDS:
            return caller
        self._known.pop(name, None)
        key = await asyncio.to_thread(self.resources.read, query, text)
        if key is None:
            return None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[name] = (now, caller_by_key(key))

        return self._known[name][1]


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, and how that is known.

    Attributes:
        caller: The authenticated caller with its rights.
        again: Looks the caller up again, to notice a revoked key; None if the rights cannot end.
        token: The token of the browser's session; empty if there is none.
        keyed: Whether the request has a key, which a page of another site cannot make a browser
            send.
    """

    caller: Caller
    again: Callable[[], Awaitable[Caller | None]] | None = None
    token: str = ""
    keyed: bool = False


async def find_sender(
    identities: Identities, key: str, token: str, *, needed: bool
) -> Sender | None:
    """Find the sender by the key of the request, or by the session's token; None if there is
    neither, or the session has ended. If no key is `needed`, values without the prefix of our keys
    are ignored, since clients of OpenAI's API always send a key.

    Raises:
        ApiError: 401, the key is invalid or revoked.
    """
    if key and (needed or key.startswith(PREFIX)):
        caller = await identities.find_by_key(key)
        if caller is None:
            raise ApiError(401, "authentication_error", "this key is not valid, or no longer valid")
        return Sender(caller, lambda: identities.find_by_key(key), keyed=True)

    if token and (caller := await identities.find_by_session(token)):
        return Sender(caller, lambda: identities.find_by_session(token), token)

    return None


# Limits of what a key and a namespace may use: requests, tokens, open streams.
#
# Code that answers with a model calls `check_tokens` before, and reports the used tokens by
# `note_tokens` afterwards. The limits of keys are per minute and counted in memory; the budget of
# a namespace is per day and counted in the database.

FLUSH_SECONDS = 1.0
"""The seconds between two writes of the counted usage to the database; the usage of that time is
lost if the server is killed."""
DAY_SECONDS = 86_400.0
USED_SECONDS = 60.0
"""The seconds between two writes of the time when a key was last used, so that time is only known
this exactly."""


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
        self.level = min(filled, float(self.per_minute))
        self.at = now
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

    async def check_tokens(
        self, caller: Caller, namespace: str = "", namespace_id: str = ""
    ) -> None:
        """Check the token limits before models are called. `namespace`: the namespace to charge; by
        default all that the caller is limited to, since a call that names none may be for each.
        `namespace_id`: the id that it must still have; empty: any.

        Raises:
            ApiError: 429, the tokens of the key's minute or of the namespace's day are used up;
                404, the namespace was deleted.
        """
        allowed = caller.limits.tokens_per_minute

        if allowed is not None and (wait := _bucket(self._tokens, caller.key, allowed).take(0)):
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"models may read and write {allowed:,} tokens a minute for the key",
                retry_after=wait,
            )

        for space in _charged(caller, namespace):
            await self._check_budget(caller, space, namespace_id)

    async def _check_budget(self, caller: Caller, space: str, namespace_id: str) -> None:
        budget = await self._budget(space)

        # A namespace that is gone has no limit any more, so nothing may be charged to it.
        is_gone = budget.namespace_id != namespace_id if namespace_id else not budget.namespace_id
        if is_gone and (namespace_id or caller.namespaces is not None):
            raise ApiError(404, "not_found", f"the namespace '{space}' was deleted")

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
        for space in _charged(caller, namespace):
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
        spent = self._spent
        used = self._used
        if not spent and not used:
            return
        self._spent = Counter()
        self._used = {}

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
            budget = await asyncio.to_thread(
                self.resources.read, stored_keys.read_budget, namespace
            )
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


def _charged(caller: Caller, namespace: str) -> tuple[str, ...]:
    return (namespace,) if namespace else tuple(sorted(caller.namespaces or ()))
