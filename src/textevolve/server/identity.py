"""Who asks: by a key in the request, by a session of a browser, or because it is this machine.

Keys and sessions are looked up in the database; what was found there is believed for a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from textevolve.server.access import Caller, caller_by_key
from textevolve.server.errors import ApiError
from textevolve.store import Store
from textevolve.store import keys as stored_keys
from textevolve.store.keys import PREFIX, SCOPES, StoredKey

KEY_SECONDS = 1.0
"""How long a key or a session that was found is believed without being looked up again."""
SESSION_SECONDS = 24 * 3600.0
"""How long a browser's session lasts at most."""
MOST_KNOWN = 4096
"""Keys and sessions that are remembered for that second."""

OPERATOR = Caller("env", "the key of --key-env", frozenset(SCOPES))


@dataclass
class Identities:
    """`env_key`: that of --key-env, which has all scopes."""

    env_key: str | None = None
    _known: dict[bytes, tuple[float, Caller]] = field(
        default_factory=dict[bytes, tuple[float, Caller]]
    )

    async def of_key(self, resources: Store, text: str) -> Caller | None:
        """Whom a key stands for; None where it is none, or no longer."""
        if self.env_key is not None and _same(text, self.env_key):
            return OPERATOR
        if not text.startswith(PREFIX):
            return None
        return await self._look_up(text, lambda: resources.read(stored_keys.find_key, text))

    async def of_session(self, resources: Store, token: str) -> Caller | None:
        """Whom a browser's session stands for; None where it is over."""
        kept = self._kept_token(token)

        def find() -> StoredKey | str | None:
            id = resources.read(stored_keys.find_session, kept)
            return (
                id
                if id is None or id == OPERATOR.key
                else resources.read(stored_keys.find_key_by_id, id)
            )

        return await self._look_up(f"session {kept}", find)

    async def begin_session(self, resources: Store, text: str) -> str | None:
        """The token of a new session, which ends with its key; None where the key is none."""
        caller = await self.of_key(resources, text)
        if caller is None:
            return None
        token = f"{'e' if caller is OPERATOR else 'k'}.{secrets.token_urlsafe(32)}"
        expires = time.time() + SESSION_SECONDS
        kept = self._kept_token(token)
        await asyncio.to_thread(resources.write, stored_keys.add_session, kept, caller.key, expires)
        return token

    async def end_session(self, resources: Store, token: str) -> None:
        kept = self._kept_token(token)
        await asyncio.to_thread(resources.write, stored_keys.end_session, kept)
        self._known.pop(_digest(f"session {kept}"), None)

    def _kept_token(self, token: str) -> str:
        """What is kept of a session that was begun with the operator's key holds that key, so that
        the session ends when another one is set."""
        return f"{token} {self.env_key}" if token.startswith("e.") else token

    async def _look_up(
        self, text: str, find: Callable[[], StoredKey | str | None]
    ) -> Caller | None:
        name, now = _digest(text), time.monotonic()
        at, caller = self._known.get(name, (-KEY_SECONDS, None))
        if caller is not None and now - at < KEY_SECONDS:
            return caller
        self._known.pop(name, None)
        found = await asyncio.to_thread(find)
        if found is None or (isinstance(found, str) and self.env_key is None):
            return None
        caller = OPERATOR if isinstance(found, str) else caller_by_key(found)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[name] = (now, caller)
        return caller


@dataclass(frozen=True, slots=True)
class Sender:
    """`again`: finds out once more who it is; None: by nothing that may end. `token`: of the
    session. `keyed`: a key came with the request, which no page can make a browser send."""

    caller: Caller
    again: Callable[[], Awaitable[Caller | None]] | None = None
    token: str = ""
    keyed: bool = False


async def find_sender(
    identities: Identities, resources: Store, key: str, token: str, *, needed: bool
) -> Sender | None:
    """By the key of the request, else by the session's token; None where there is neither. Where
    no key is `needed`, what does not begin as our keys do is passed over: clients of OpenAI's API
    always send something.

    Raises:
        ApiError: 401, the key is none of ours, or no longer.
    """
    if key and (needed or key.startswith(PREFIX)):
        caller = await identities.of_key(resources, key)
        if caller is None:
            raise ApiError(401, "authentication_error", "this key is not valid (any more)")
        return Sender(caller, lambda: identities.of_key(resources, key), keyed=True)
    if token and (caller := await identities.of_session(resources, token)):
        return Sender(caller, lambda: identities.of_session(resources, token), token)
    return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _same(text: str, other: str) -> bool:
    return hmac.compare_digest(_digest(text), _digest(other))
