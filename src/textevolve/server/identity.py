"""The identity of a request's sender: known by a key in the request, by a browser's session, or
because the request comes from this machine.

Keys and sessions are looked up in the database; the result is reused for a second.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Request

from textevolve.evaluation import empty_default
from textevolve.server.errors import ApiError
from textevolve.store import Store
from textevolve.store import keys as stored_keys
from textevolve.store.keys import PREFIX, SCOPES, KeyLimits, KeyScope, StoredKey, digest

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
        caller = caller_of(request)
        if not caller.may(scope):
            raise ApiError(403, "permission_denied", f"the key has no scope '{scope}'")
        return caller

    return check


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
        store, stored = self.resources, self._stored_token(token)
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
        expires, stored = time.time() + SESSION_SECONDS, self._stored_token(token)
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
        name, now = digest(f"{query.__name__} {text}"), time.monotonic()
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
