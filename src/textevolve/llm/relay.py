"""Requests of others passed on to an endpoint as they came, and its answers as they come.

Only the model's name is replaced and our key is put in, so that whatever the endpoint takes (tools,
schemas, images) passes through. Nothing is tried again, and no answer comes from the journal: who
asks for a chat with a temperature wants a fresh one. What a refusal or an answer means is not asked
here, beyond the tokens that it says it took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json
from yarl import URL

from textevolve.evaluation import Usage
from textevolve.llm.connections import BegunAnswer, Http
from textevolve.llm.prices import find_price
from textevolve.llm.providers import Endpoint, is_loopback
from textevolve.llm.refusals import Refusal, one_line, read_refusal, retry_after
from textevolve.llm.reported_usage import ReportedUsage, usage_of
from textevolve.llm.token_count import count_tokens
from textevolve.llm.wire import encode
from textevolve.settings import Price, Timeouts

CONNECTIONS = 4096
"""Requests that are passed on to one endpoint at once; more of them wait."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What an endpoint said in place of an answer. `retry_after`: in seconds."""

    status: int
    refusal: Refusal
    retry_after: float | None


class Relay:
    """Passes requests on to one endpoint. `name`: the spec of its model. `unbounded`: an answer may
    take as long as it takes."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts,
        largest_answer: int,
        *,
        unbounded: bool = False,
    ) -> None:
        self.name, self.model = endpoint.spec, endpoint.model
        self._base, self._unbounded = endpoint.base_url, unbounded
        self._http = Http(
            *(endpoint.spec, endpoint.base_url, endpoint.key, timeouts, CONNECTIONS),
            largest_answer,
            endpoint.headers,
        )
        self.price = find_price(endpoint)
        if self.price is None and endpoint.key is None and is_loopback(endpoint.base_url):
            self.price = Price(input=0, output=0)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: Mapping[str, Any]) -> BegunAnswer:
        """Passes a request on. Whoever gets the answer reads it to its end, or closes it.

        Raises:
            UnavailableError, AccessError: nothing came.
        """
        sent = encode({**body, "model": self.model})
        return await self._http.begin(URL(self._base + path), sent, self._unbounded)

    async def refusal_of(self, answer: BegunAnswer) -> Refused:
        """What an answer says whose status is not 200."""
        found = read_refusal(await answer.whole())
        said = one_line(found.message, self._http.secrets) or "no reason given"
        told = Refusal(said, found.code, found.param, found.limit)
        return Refused(answer.status, told, retry_after(answer.headers))


class UsageReader:
    """Finds out what a call took by reading along. `price`: as in `usage_of`."""

    def __init__(self, body: Mapping[str, Any], price: Price | None) -> None:
        self._body, self._price = body, price
        self._before = self._said = b""
        self._events = 0

    def read(self, part: bytes) -> None:
        """The next part of a stream, or the whole of an answer."""
        self._events += part.count(b"data:")
        if b'"usage"' in part or b'"usage"' in self._before:
            self._said = self._before + part
        self._before = part

    @property
    def usage(self) -> Usage:
        """What the endpoint said. Streams often say nothing: then a token is counted for each
        event, and the prompt by its length."""
        for line in (self._said, *reversed(self._said.splitlines())) if self._said else ():
            if (said := _usage_in(line)) is not None:
                return usage_of(said, self._price)
        prompt = count_tokens(json.dumps(self._body.get("messages") or self._body.get("input")))
        counted = ReportedUsage(prompt_tokens=prompt, completion_tokens=self._events)
        return usage_of(counted, self._price)


def _usage_in(line: bytes) -> ReportedUsage | None:
    try:
        found: Any = from_json(line.removeprefix(b"data:"))
        return ReportedUsage.model_validate(found["usage"])
    except (ValueError, KeyError, TypeError):
        return None
