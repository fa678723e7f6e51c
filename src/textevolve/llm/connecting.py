"""The client of an endpoint that is known, with all that is known of it. Nothing is sent yet."""

from __future__ import annotations

from collections.abc import Callable

from textevolve.events import Listener
from textevolve.llm.client import OpenAIClient
from textevolve.llm.prices import find_price
from textevolve.llm.providers import Endpoint
from textevolve.llm.wires import effort_fields, text_wire
from textevolve.settings import LARGEST_ANSWER, Price, Timeouts


def connect(
    endpoint: Endpoint,
    timeouts: Timeouts,
    largest_answer: int = LARGEST_ANSWER,
    watched: Listener | None = None,
    price_of: Callable[[Endpoint], Price | None] = find_price,
) -> OpenAIClient:
    """The client of a resolved endpoint; nothing is sent yet. `watched`: see `OpenAIClient`."""
    return OpenAIClient(
        endpoint.base_url,
        endpoint.model,
        name=endpoint.spec,
        key=endpoint.key,
        timeouts=timeouts,
        price=price_of(endpoint),
        max_tokens_field=endpoint.max_tokens_field,
        largest_answer=largest_answer,
        watched=watched,
        decisions=endpoint.decisions,
        chats=endpoint.chats,
        decision_price=find_price(endpoint, decides=True),
        wire=text_wire(endpoint),
        extra=effort_fields(endpoint),
        prompt_cache=endpoint.prompt_cache,
        headers=endpoint.headers,
        reports_cost=endpoint.reports_cost,
    )
