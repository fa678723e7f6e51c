"""A model that asks in batch jobs what can be asked so, and the rest at once; what jobs cost.

Loaded with the workbench: what speaks to endpoints is in `opening`, and loaded with the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from textevolve.errors import SettingsError
from textevolve.events import Listener, silence
from textevolve.llm.batches.dialects import DIALECTS
from textevolve.llm.batches.ledger import BatchLedger, NotBatchedError
from textevolve.llm.journal import Journal, JournalEntry
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.prices import ListedPrice, find_price
from textevolve.llm.providers import Endpoint, resolve
from textevolve.settings import Price, Settings


def takes_batches(endpoint: Endpoint) -> bool:
    """Whether texts can be asked for in batch jobs, as far as is known."""
    return endpoint.batches in DIALECTS and endpoint.chats and not endpoint.is_local


def refuse_unbatched(asked: Sequence[str], settings: Settings) -> None:
    """
    Raises:
        SettingsError: models are asked, and none of them takes batch jobs.
    """
    ends = [resolve(name, settings, asks=False) for name in asked]
    if ends and not any(map(takes_batches, ends)):
        names = ", ".join(end.spec for end in ends)
        raise SettingsError(f"no model takes batch jobs ({names}); run it without --batch")


def is_free(endpoint: Endpoint) -> bool:
    """Whether calls are known to cost nothing, in batch jobs or not."""
    price = find_price(endpoint)
    return price is not None and not (price.input or price.output or price.cached_input)


def batch_price(endpoint: Endpoint) -> Price | None:
    """What calls in batch jobs cost; None where that is not known."""
    price, discount = find_price(endpoint), endpoint.batch_discount
    if price is None or is_free(endpoint):
        return price
    return None if discount is None else _cut(price, 1.0 - discount)


def _cut(price: Price, share: float) -> Price:
    cached = price.cached_input
    parts: dict[str, Any] = {
        "input": share * price.input,
        "output": share * price.output,
        "cached_input": None if cached is None else share * cached,
    }
    if isinstance(price, ListedPrice):
        longer = tuple((above, _cut(one, share)) for above, one in price.longer)
        return ListedPrice(**parts, longer=longer)
    return Price(**parts)


@dataclass(frozen=True, slots=True)
class BatchedModel:
    """Asks `batched`; `plain` gets what cannot stand in a batch job: embeddings, typed questions,
    answers that are forced token by token, and what `batched` does not take."""

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


EndpointPrice: TypeAlias = Callable[[Endpoint], Price | None]
Bound: TypeAlias = Callable[[Model, EndpointPrice], Model]
"""Puts a model within the limits of a run, by what its calls cost."""


def unbound(model: Model, _price_of: EndpointPrice) -> Model:
    return model


class Confirmed(Protocol):
    """An open gatherer, which is told of what is durable."""

    def confirm(self, key: str, /) -> None: ...


@dataclass(frozen=True)
class BatchMeans:
    """What gatherers are made with. `stack`: closes them. `deadline`: when calls wait no longer, as
    `time.monotonic` counts."""

    settings: Settings
    ledger: BatchLedger
    journal: Journal
    stack: AsyncExitStack
    listener: Listener = silence
    deadline: float | None = None
    opened: dict[str, Confirmed] = field(default_factory=dict[str, "Confirmed"])

    def put_before(self, plain: Model, gatherer: Model, bound: Bound) -> Model:
        """The model that asks by the `gatherer` what need not be asked at once; `plain` where its
        endpoint takes no batch jobs."""
        if not takes_batches(resolve(plain.name, self.settings, asks=False)):
            return plain
        return BatchedModel(plain, bound(gatherer, batch_price))

    def confirm(self, entry: JournalEntry) -> None:
        """An outcome is durable."""
        if (gatherer := self.opened.get(entry.model)) is not None:
            gatherer.confirm(entry.key)
