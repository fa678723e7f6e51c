"""Batch jobs in their stored form, the model that sends calls as batch jobs, and the price of such
calls.

A job is stored before anything is sent, again with the name of the file that was uploaded for it,
and again with its id. A job that was stored without an id is found at the endpoint by its file or
its mark. A job is open until all of its answers are in the journal. This module is loaded with the
models of a run; the code that calls endpoints is in `gathering`, which is loaded with the first
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from textevolve.errors import SettingsError
from textevolve.events import Listener, silence
from textevolve.llm.model import Journal, Model, Request, Response
from textevolve.llm.prices import find_price
from textevolve.llm.providers import Endpoint, resolve
from textevolve.settings import Price, Settings

JobState: TypeAlias = Literal["prepared", "submitted", "cancelled", "collected", "void"]
"""The state of a stored job.

`prepared`: the endpoint may have it or not. `submitted`: the endpoint has it. `cancelled`: the user
cancelled it; answers that it gave before can still be read. `collected`: all of its answers are in
the journal. `void`: the endpoint never accepted it, or rejected it as a whole.
"""

OPEN_STATES: tuple[JobState, ...] = ("prepared", "submitted", "cancelled")


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A stored batch job.

    Attributes:
        mark: A random name that is sent to the endpoint and identifies the job there.
        model: The spec of the model.
        created: Unix time.
        keys: The journal's keys of the job's requests.
        file: The endpoint's name of the uploaded file; empty before the upload.
        id: The endpoint's id of the job; empty before the job is submitted.
    """

    mark: str
    model: str
    created: float
    keys: tuple[str, ...]
    state: JobState = "prepared"
    file: str = ""
    id: str = ""


class NotBatchedError(Exception):
    """The error that a call cannot be sent in a batch job and must be sent directly."""


class BatchLedger(Protocol):
    """The stored batch jobs of one run. All methods raise StoreError if the store fails."""

    async def keep(self, batch: KeptBatch) -> None:
        """Store a new job, or the changes of a stored one; return once the data is durable."""
        ...

    async def find_open(self, model: str) -> list[KeptBatch]:
        """Return a model's jobs with answers that are not in the journal yet, oldest first."""
        ...


def takes_batches(endpoint: Endpoint) -> bool:
    """Return whether an endpoint takes batch jobs: it chats, is no local model, and the settings of
    its provider allow them."""
    return endpoint.batches != "none" and endpoint.chats and not endpoint.is_local


def check_takes_batches(models: Sequence[str], settings: Settings) -> None:
    """Check that at least one of the models takes batch jobs.

    Raises:
        SettingsError: none of the models does.
    """
    ends = [resolve(name, settings, asks=False) for name in models]
    if ends and not any(map(takes_batches, ends)):
        names = ", ".join(end.spec for end in ends)
        raise SettingsError(f"no model of this run takes batch jobs ({names}); leave out --batch")


def batch_price(endpoint: Endpoint) -> Price | None:
    """Return the price of calls in batch jobs; None if the plain price or the discount is not
    known. Free calls stay free."""
    price = find_price(endpoint)
    discount = endpoint.batch_discount
    if price is None or not (price.input or price.output or price.cached_input):
        return price
    if discount is None:
        return None
    parts = {name: (1.0 - discount) * part for name, part in price if isinstance(part, float)}

    return price.model_copy(update={**parts, "cache_write": None})


@dataclass(frozen=True, slots=True)
class BatchedModel:
    """A model that sends its requests as batch jobs where possible.

    Attributes:
        plain: The model for requests that cannot be batched: embeddings, typed questions, forced
            answers, and calls that `batched` rejects.
        batched: The model that collects requests into batch jobs.
    """

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
    """The objects that are needed to open a `Gatherer`.

    Attributes:
        ledger: The storage of batch jobs.
        stack: The exit stack that closes the gatherers.
        listener: Receives the events of the jobs.
        deadline: The time, as of `time.monotonic`, at which calls stop waiting; None: no limit.
    """

    settings: Settings
    ledger: BatchLedger
    journal: Journal
    stack: AsyncExitStack
    listener: Listener = silence
    deadline: float | None = None
