"""Models that say again what a journal has, and a journal whose answers are found by a salt.

What is asked of a replayed model that the journal does not know is not asked of anybody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from textevolve.errors import BudgetError, ModelError
from textevolve.llm.journal import Journal, JournalEntry
from textevolve.llm.model import Model, Request, Response, request_key
from textevolve.llm.usage_meter import note_call


class Salted:
    """A journal whose answers are found by those only who ask with the same text, which may be
    empty: then it is the journal as it is."""

    def __init__(self, journal: Journal, salt: str) -> None:
        self._journal, self._salt = journal, salt

    def key(self, key: str) -> str:
        return hashlib.sha256(f"{key} {self._salt}".encode()).hexdigest() if self._salt else key

    async def find(self, key: str) -> Response | None:
        return await self._journal.find(self.key(key))

    async def append(self, entry: JournalEntry) -> None:
        own = replace(entry, key=self.key(entry.key)) if self._salt else entry
        await self._journal.append(own)


def replay_models(
    journal: Journal, errors: Callable[[], Mapping[str, str]]
) -> Callable[[str], Model]:
    """Models that answer, or fail, as the journal says; `errors`: why calls failed, by key."""
    known = cache(errors)
    return lambda spec: _Replayed(spec, journal, known)


class _Replayed:
    """Stands where a model was: says again what it said."""

    def __init__(
        self, name: str, journal: Journal, errors: Callable[[], Mapping[str, str]]
    ) -> None:
        self.name = name
        self._journal = journal
        self._errors = errors

    async def __call__(self, request: Request, /) -> Response:
        key = request_key(self.name, request)
        if found := await self._journal.find(key):
            return note_call(key, found)
        kept = self._journal
        if reason := self._errors().get(kept.key(key) if isinstance(kept, Salted) else key):
            raise ModelError(reason)
        raise BudgetError("not in the journal; resume the run to ask it")
