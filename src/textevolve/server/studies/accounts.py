"""What is left to the key and the namespace of a study that runs in the background."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial

from textevolve.errors import StoreError
from textevolve.events import CallFinished, Event
from textevolve.server.access import THIS_MACHINE, Caller, caller_by_key
from textevolve.server.errors import ApiError
from textevolve.server.identity import OPERATOR
from textevolve.server.limits import UsageLimits
from textevolve.store import Store
from textevolve.store import keys as stored_keys
from textevolve.store.served import ServedRun
from textevolve.studies.driver import Launch

KEY_SECONDS = 5.0
"""How long after its end a key's studies may still ask."""
LONGEST_WAIT = 5.0
"""Seconds after which a study that waits for its key's next minute asks again."""
GONE = "the key that began it is no longer valid; resume it with another one"


@dataclass
class Accounts:
    """`limits` holds what is left, and is told what was spent."""

    limits: UsageLimits
    resources: Store
    _callers: dict[str, tuple[float, Caller]] = field(
        default_factory=dict[str, tuple[float, Caller]]
    )

    async def ask(self, served: ServedRun) -> str:
        """Waits until the key's tokens of a minute allow a call; why there can be none, as where
        those of a namespace's day are spent; empty: go on."""
        caller = await self._caller(served.key_id)
        if caller is None:
            return GONE
        try:
            await self.limits.check_tokens(caller, served.namespace)
        except ApiError as error:
            if error.code != "rate_limit_exceeded":
                return error.message
            await asyncio.sleep(min(error.retry_after or 1.0, LONGEST_WAIT))
            return await self.ask(served)
        return ""

    def limit(self, served: ServedRun, launch: Launch) -> Launch:
        """Limit a run to the quota of its key and its namespace."""

        def hear(event: Event) -> None:
            if isinstance(event, CallFinished) and not event.replayed:
                _, caller = self._callers.get(served.key_id, (0.0, THIS_MACHINE))
                self.limits.note_tokens(caller, event.usage.tokens, served.namespace)

        return replace(launch, listener=hear, halt=partial(self.ask, served))

    async def _caller(self, key_id: str) -> Caller | None:
        if key_id in (THIS_MACHINE.key, OPERATOR.key):
            return THIS_MACHINE
        at, known = self._callers.get(key_id, (0.0, THIS_MACHINE))
        now = time.monotonic()
        if key_id in self._callers and now - at < KEY_SECONDS:
            return known
        try:
            found = await asyncio.to_thread(self.resources.read, stored_keys.find_key_by_id, key_id)
        except StoreError:  # the store is away: a key that was valid stays so meanwhile
            return known if key_id in self._callers else None
        if found is None:
            self._callers.pop(key_id, None)
            return None
        self._callers[key_id] = now, caller_by_key(found)
        return self._callers[key_id][1]
