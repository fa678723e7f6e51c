"""Which questions this process is asking, so that others with the same store wait for the answers.

A claim is an advisory lock of a PostgreSQL connection: it ends with the process, however that ends.
Who finds a question claimed looks again and again for its answer, for a bounded time, and then asks
all the same. In a file there are no claims: equal questions of several processes at the same time
are asked by each.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from textevolve.store.postgres import error_state

MOST_CLAIMS = 512
"""Of one process: the server's table of locks has room for some thousands. What is asked beyond
them is not claimed."""
LONGEST_CLAIM = 900.0
"""Seconds after which a claim is given back whose answer did not come."""
FULL = "53200"
"""The SQLSTATE of a server without room for more locks."""

_GIVE = "SELECT pg_advisory_unlock(one) FROM unnest(%s::int8[]) AS one"
_TAKE = """
SELECT pg_try_advisory_lock(one) FROM unnest(%s::int8[]) WITH ORDINALITY AS given(one, place)
ORDER BY place
"""


class Claims:
    """Those of one connection, of which one thread at a time makes use."""

    def __init__(self) -> None:
        self._raw: Any = None
        self._held: dict[str, tuple[str, float]] = {}

    def take(self, raw: Any, run_id: str, keys: Sequence[str], done: Iterable[str]) -> set[str]:
        """Claim questions for a run; returns those that others are asking. `done`: claims that are
        given back."""
        if raw is not self._raw:  # they went with the connection before
            self._raw, self._held = raw, {}
        now = time.monotonic()
        late = [key for key, (_, since) in self._held.items() if now - since > LONGEST_CLAIM]
        self.give_back(raw, [*done, *late])
        held = {key for key in keys if key in self._held}
        others = {key for key in held if self._held[key][0] != run_id}
        wanted = [key for key in dict.fromkeys(keys) if key not in held]
        wanted = wanted[: max(0, MOST_CLAIMS - len(self._held))]
        if wanted:
            for key, taken in zip(wanted, self._try(raw, wanted), strict=True):
                if taken:
                    self._held[key] = run_id, now
                else:
                    others.add(key)
        return others

    def give_back(self, raw: Any, keys: Iterable[str]) -> None:
        ours = [key for key in dict.fromkeys(keys) if self._held.pop(key, None) is not None]
        if ours:
            raw.execute(_GIVE, ([_number(key) for key in ours],))

    def _try(self, raw: Any, keys: Sequence[str]) -> list[bool]:
        try:
            return [row[0] for row in raw.execute(_TAKE, ([_number(key) for key in keys],))]
        except Exception as error:
            if error_state(error) != FULL:
                raise
            return [True] * len(keys)


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], signed=True)
