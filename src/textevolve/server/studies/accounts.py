"""What is left to the key and the namespace of a study that runs in the background."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from textevolve.errors import StoreError
from textevolve.events import CallFinished, Event
from textevolve.server.access import THIS_MACHINE
from textevolve.server.errors import ApiError
from textevolve.server.identity import Identities
from textevolve.server.limits import UsageLimits
from textevolve.store.served import ServedRun
from textevolve.studies.driver import Launch

LONGEST_WAIT = 5.0
"""Seconds after which a study that waits for its key's next minute asks again."""
GONE = "the key that began it is no longer valid; resume it with another one"


@dataclass(frozen=True)
class Accounts:
    """`limits` holds what is left, and counts what is spent."""

    limits: UsageLimits
    identities: Identities

    def limit(self, served: ServedRun, launch: Launch) -> Launch:
        """Limit a run to the quota of its key and its namespace."""
        caller = THIS_MACHINE

        def hear(event: Event) -> None:
            if isinstance(event, CallFinished) and not event.replayed:
                self.limits.note_tokens(caller, event.usage.tokens, served.namespace)

        async def halt() -> str:
            """Wait until the key's tokens of a minute allow a call; return why there can be none,
            as where those of a namespace's day are spent."""
            nonlocal caller
            while True:
                try:
                    holder = await self.identities.of_id(served.key_id)
                    if holder is None:
                        return GONE
                    caller = holder
                    await self.limits.check_tokens(caller, served.namespace)
                except StoreError:  # keys cannot be looked up meanwhile: the run goes on
                    return ""
                except ApiError as error:
                    if error.code != "rate_limit_exceeded":
                        return error.message
                    await asyncio.sleep(min(error.retry_after or 1.0, LONGEST_WAIT))
                else:
                    return ""

        return replace(launch, listener=hear, halt=halt)
