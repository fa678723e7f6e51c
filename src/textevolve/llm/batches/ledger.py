"""Batch jobs as a run keeps them, the model that asks in them, and what they cost.

A job is noted before anything is sent, once more with the file that was uploaded for it, and with
its id: a job noted without an id is found at the endpoint by its file or its mark. It is open until
every answer in it is in the journal. Loaded with the workbench; everything that speaks to endpoints
is in `gathering` and `service`, loaded with the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from textevolve.errors import SettingsError
from textevolve.events import Listener, silence
from textevolve.llm.journal import Journal
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.prices import find_price
from textevolve.llm.providers import Endpoint, resolve
from textevolve.settings import Price, Settings

JobState: TypeAlias = Literal["prepared", "submitted", "cancelled", "collected", "void"]
"""`prepared`: it may or may not be at the endpoint. `cancelled`: by the user; what it answered is
still to be had. `collected`: all its answers are kept. `void`: nothing was asked in it."""

OPEN_STATES: tuple[JobState, ...] = ("prepared", "submitted", "cancelled")


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A stored batch job. `mark`: a random name that is sent to the endpoint and identifies the job
    there. `keys`: the journal's keys of the job's requests. `file` and `id`: the endpoint's names
    of the uploaded file and of the job. `created`: Unix time."""

    mark: str
    model: str
    created: float
    keys: tuple[str, ...]
    state: JobState = "prepared"
    file: str = ""
    id: str = ""


class NotBatchedError(Exception):
    """The call cannot be sent in a batch job; send it directly."""


class BatchLedger(Protocol):
    """The stored batch jobs of one run. All methods raise StoreError if the store fails."""

    async def keep(self, batch: KeptBatch) -> None:
        """Store a new job, or the changes of a stored one; return once the data is durable."""
        ...

    async def find_open(self, model: str) -> list[KeptBatch]:
        """Return a model's jobs with answers that are not in the journal yet, oldest first."""
        ...


def takes_batches(endpoint: Endpoint) -> bool:
    """Return whether an endpoint takes batch jobs, as far as the settings say."""
    return endpoint.batches != "none" and endpoint.chats and not endpoint.is_local


def check_takes_batches(models: Sequence[str], settings: Settings) -> None:
    """Check that at least one of the models takes batch jobs.

    Raises:
        SettingsError: none does.
    """
    ends = [resolve(name, settings, asks=False) for name in models]
    if ends and not any(map(takes_batches, ends)):
        names = ", ".join(end.spec for end in ends)
        raise SettingsError(f"no model takes batch jobs ({names}); run it without --batch")


def batch_price(endpoint: Endpoint) -> Price | None:
    """Return the price of calls in batch jobs; None if it is not known."""
    price, discount = find_price(endpoint), endpoint.batch_discount
    if price is None or not (price.input or price.output or price.cached_input):
        return price
    if discount is None:
        return None
    parts = {name: (1.0 - discount) * part for name, part in price if part is not None}
    return Price(**{name: parts[name] for name in parts if name != "cache_write"})


@dataclass(frozen=True, slots=True)
class BatchedModel:
    """A model that sends requests as batch jobs through `batched`. `plain` answers requests that
    cannot be batched: embeddings, typed questions, forced answers, and calls that `batched`
    rejects."""

    plain: Model
    batched: Model

    @property
    def name(self) -> str:
        return self.plain.name

    async def __call__(self, request: Request, /) -> Response:
        if not (request.embeds or request.questions is not None or request.forced is not None):
            try:
                return await self.batched(request)
            except NotBatchedError:
                pass
        return await self.plain(request)


@dataclass(frozen=True)
class BatchMeans:
    """The resources for opening gatherers. `stack` closes the gatherers. `deadline`: the time, as
    of `time.monotonic`, after which calls stop waiting."""

    settings: Settings
    ledger: BatchLedger
    journal: Journal
    stack: AsyncExitStack
    listener: Listener = silence
    deadline: float | None = None
