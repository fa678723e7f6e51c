"""What has to be durable of batch jobs, so that none that is paid for is lost or asked twice.

A job is noted before anything is sent, once more with the file that was uploaded for it, and with
its id: whoever finds it noted without an id finds it at the endpoint by its file or its mark. It is
open until every answer in it stands in the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from textevolve.llm.journal import Journal, JournalEntry
from textevolve.llm.model import Response

JobState: TypeAlias = Literal["prepared", "submitted", "cancelled", "collected", "void"]
"""`prepared`: it may or may not be at the endpoint. `cancelled`: by the user; what it answered is
still to be had. `collected`: all its answers are kept. `void`: nothing was asked in it."""

OPEN_STATES: tuple[JobState, ...] = ("prepared", "submitted", "cancelled")


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch job as it is kept. `mark`: a name of our own, which the endpoint is told. `keys`:
    the journal's keys of its requests. `file`: the uploaded file, `id`: the job, both as the
    endpoint names them. `created` is Unix time. `detail`: what there is to say of its state."""

    mark: str
    model: str
    created: float
    keys: tuple[str, ...]
    state: JobState = "prepared"
    file: str = ""
    id: str = ""
    detail: str = ""


class NotBatchedError(Exception):
    """This call is to be asked at once."""


class BatchLedger(Protocol):
    """The jobs of one run. Raises StoreError where they cannot be read or kept."""

    async def keep(self, batch: KeptBatch) -> None:
        """Note a job, or what is new of it; returns once that is durable."""
        ...

    async def find_open(self, model: str) -> list[KeptBatch]:
        """The jobs of a model whose answers are not all kept, oldest first."""
        ...


class ConfirmingJournal:
    """A journal that tells of each outcome once it is durable."""

    def __init__(self, journal: Journal, kept: Callable[[JournalEntry], None]) -> None:
        self._journal, self._kept = journal, kept

    async def find(self, key: str) -> Response | None:
        return await self._journal.find(key)

    async def append(self, entry: JournalEntry) -> None:
        await self._journal.append(entry)
        self._kept(entry)
