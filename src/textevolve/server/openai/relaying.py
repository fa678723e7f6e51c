"""Forward requests to the endpoints of models that the operator named.

Usage counts towards the limits of the server and is stored in its run; requests and answers are not
stored.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Response
from pydantic_core import from_json

from textevolve.errors import ModelError, StoreError, UnavailableError
from textevolve.evaluation import Usage, empty_default
from textevolve.json_texts import as_object
from textevolve.llm.connections import BegunAnswer, Refused, Relay
from textevolve.llm.meter import UsageReader, has_usage_alone, hides_usage, is_unsent
from textevolve.llm.model import JournalEntry, Message, Request
from textevolve.llm.model import Response as ModelResponse
from textevolve.llm.opening import open_relay
from textevolve.llm.refusals import (
    RETRIED,
    error_object,
    is_too_long,
    one_line,
    refused_field,
    status_of,
)
from textevolve.llm.wire import LINE_END
from textevolve.llm.wrappers import Allowance, ClaimedCall
from textevolve.protocol.chat import CHATS, JsonObject
from textevolve.server.decisions.serving import Serving
from textevolve.server.errors import INVALID, TOO_LONG, ApiError, log
from textevolve.server.openai.requests import NoteTokens
from textevolve.server.streams import EventResponse
from textevolve.wiring import allow_calls

_ANSWER_END = re.compile(rb'data:(?:\s*\[DONE\]|.*"finish_reason"\s*:\s*")')
"""The line of a stream that ends an answer. In a text of the answer its quotation marks would be
escaped."""
_NO_DATA = (b"data", b"data:")
PASSED_ON = (400, 404, 409, 413, 422)
"""The HTTP statuses of refusals that the request itself caused, so the client receives them."""


@dataclass
class Relays:
    """The endpoints to which requests are forwarded, each opened with its first request.

    Attributes:
        serving: The models of the server, with their limits and their run.
        stack: The exit stack that closes the endpoints.
    """

    serving: Serving
    stack: AsyncExitStack
    _relays: dict[str, tuple[Relay, Allowance]] = empty_default(dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _writes: set[asyncio.Task[None]] = empty_default(set)

    async def find(self, spec: str) -> tuple[Relay, Allowance]:
        """Return the endpoint of a model's spec, and its part in the budget of the server; the
        first request opens the endpoint.

        Raises:
            SettingsError, ModelError: the endpoint cannot be opened.
        """
        if spec not in self._relays:
            async with self._lock:
                if spec not in self._relays:
                    bench = self.serving.bench
                    allowance = allow_calls(spec, bench.settings, bench.budget)
                    relay = await open_relay(spec, bench.settings, self.stack)
                    self._relays[spec] = relay, allowance

        return self._relays[spec]

    @asynccontextmanager
    async def begun(
        self, spec: str, body: Mapping[str, Any], note: NoteTokens
    ) -> AsyncGenerator[tuple[BegunAnswer, UsageReader]]:
        """Send a request within the limits of the server, and yield its answer once it begins.
        After the block the usage is stored, and `note` is called with its tokens.

        Raises:
            ApiError: the endpoint refuses the request.
            ModelError: no answer began to arrive.
            BudgetError: a limit is reached.
        """
        relay, allowance = await self.find(spec)
        started = time.time()
        began = time.perf_counter()
        reader = UsageReader(body, relay.price, relay.reports_cost)
        claim = nullcontext(ClaimedCall())
        if self.serving.bench.budget.limits:
            most: object = body.get("max_completion_tokens") or body.get("max_tokens")
            characters = len(str(body.get("messages") or ""))
            claim = allowance.claimed(characters, most if isinstance(most, int) else None)

        async with claim as spent:
            answer = None
            failed = None
            is_free = False
            try:
                answer = await _post(relay, body, reader)
                yield answer, reader
            except (ModelError, ApiError) as error:
                failed = str(error)
                is_free = isinstance(error, ApiError) or is_unsent(error)
                raise
            finally:
                if answer is not None:
                    answer.close()
                # A client that has gone is charged, too: the endpoint works on what was sent.
                # So is a refusal that names its tokens.
                is_free = is_free and bool(reader.usage.estimated)
                spent.usage = Usage(calls=1) if is_free else reader.usage
                note(spent.usage.tokens)
                seconds = time.perf_counter() - began
                write = asyncio.create_task(
                    self._write(spec, spent.usage, failed, started, seconds)
                )
                self._writes.add(write)  # the client does not wait for it
                write.add_done_callback(self._writes.discard)

    async def _write(
        self, spec: str, usage: Usage, failed: str | None, started: float, seconds: float
    ) -> None:
        """Write a call to the journal, under a random key, so it is never replayed."""
        response = None if failed else ModelResponse("", "passed on", usage, seconds=seconds)
        request = Request(messages=(Message("user", (f"passed on: {CHATS}",)),))
        key = secrets.token_hex(32)
        entry = JournalEntry(key, spec, request, response, failed, started, seconds, 1, usage)
        try:
            await self.serving.bench.journal.append(entry)
        except StoreError as error:
            log.error("the usage of a call could not be stored: %s", error)

    async def aclose(self) -> None:
        await asyncio.gather(*self._writes)


async def _post(relay: Relay, body: Mapping[str, Any], reader: UsageReader) -> BegunAnswer:
    """Forward a request; raise the endpoint's refusal, which `reader` reads, as an `ApiError`."""
    answer = await relay.post(CHATS, body)
    if answer.status == 200:
        return answer
    refused = await relay.refusal_of(answer, reader)
    wants_usage = relay.reports_streams and hides_usage(body)
    if wants_usage and refused_field(refused.status, refused.refusal, ["stream_options"]):
        # Our own wish is refused, not the client's: it is left out from now on.
        relay.reports_streams = False
        return await _post(relay, body, reader)

    raise as_refusal(refused)


def as_refusal(refused: Refused) -> ApiError:
    """Convert a refusal of the endpoint into the client's error. Errors that the request caused are
    passed on; errors of the operator's key or address become errors of the server."""
    status = refused.status
    refusal = refused.refusal
    wait = refused.retry_after
    if is_too_long(status, refusal):
        return ApiError(400, TOO_LONG, refusal.message)
    if status == 429 and "insufficient_quota" in refusal.code:
        return ApiError(429, "insufficient_quota", refusal.message)
    if status == 429:
        return ApiError(429, "rate_limit_exceeded", refusal.message, retry_after=wait)
    if status in PASSED_ON:
        return ApiError(status, INVALID, refusal.message, param=refusal.param or None)
    if status in RETRIED or status >= 500:
        return ApiError(503, "upstream_unavailable", refusal.message, retry_after=wait)

    return ApiError(502, "upstream_error", f"the model's endpoint refuses: {refusal.message}")


@dataclass(frozen=True, slots=True)
class RelayedAnswer:
    """The answer to a request that is forwarded to a model's endpoint.

    Attributes:
        spec: The spec of the model.
        body: The body of the client's request.
        note: Is called with the tokens that the answer used.
    """

    relays: Relays
    spec: str
    body: Mapping[str, Any]
    note: NoteTokens

    async def respond(self) -> Response:
        """Return the endpoint's answer unchanged, as a stream if the client asked for one."""
        if self.body.get("stream"):
            parts = self._parts()
            kind = (await anext(parts)).decode("latin-1")  # the endpoint has taken the request
            return EventResponse(parts, self.relays.serving.in_time(), kind)

        return Response(await self._raw(), media_type="application/json")

    async def _raw(self) -> bytes:
        async with (
            self.relays.serving.in_time(),
            self.relays.begun(self.spec, self.body, self.note) as (answer, reader),
        ):
            raw = await answer.read_all()
            check_is_answer(raw)
            reader.read(raw)

        return raw

    async def _parts(self) -> AsyncGenerator[bytes]:
        """Yield the content type of the answer, then its bytes."""
        async with self.relays.begun(self.spec, self.body, self.note) as (answer, reader):
            kind = answer.headers.get("Content-Type", "")
            if "json" in kind:  # it does not stream
                raw = await answer.read_all()
                check_is_answer(raw)
                reader.read(raw)
                yield kind.encode()
                yield raw
                return
            yield kind.encode()
            async with aclosing(self._lines(answer, reader)) as parts:
                async for part in parts:
                    yield part

    async def _lines(self, answer: BegunAnswer, reader: UsageReader) -> AsyncGenerator[bytes]:
        """Yield the lines of a stream as they come, without usage that the client did not ask for,
        and without what clients cannot read: a byte order mark, lines of no data, and a last event
        without its empty line.

        Raises:
            UnavailableError: the stream broke off. If it did so between two events, the body ends
                in order, and only the missing end of the answer shows it.
        """
        hides = hides_usage(self.body)
        has_ended = False
        rest = b""
        last = b""
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                *lines, rest = (rest + part).removeprefix(codecs.BOM_UTF8).split(b"\n")
                # Whole lines, since usage may be split between any number of parts.
                reader.read(b"\n".join(lines))
                has_ended |= any(map(_ANSWER_END.match, lines))
                shown = [
                    line + b"\n"
                    for line in lines
                    if line.strip() not in _NO_DATA and not (hides and has_usage_alone(line))
                ]
                yield b"".join(shown)
                last = (last + part)[-4:]

        reader.read(rest)
        yield rest
        if not last.endswith((b"\n\n", b"\r\r", b"\n\r\n")):
            yield b"\n\n"
        if not (has_ended or _ANSWER_END.match(rest)):
            raise UnavailableError(f"{self.spec}: the stream broke off before the answer's end")

    async def complete(self) -> JsonObject:
        return _read_object(await self._raw())

    async def chunks(self) -> AsyncGenerator[JsonObject]:
        async with aclosing(self._parts()) as parts:
            if b"json" in await anext(parts):  # it does not stream
                yield _read_object(b"".join([part async for part in parts]))
                return
            async for event in read_events(parts):
                yield event


def check_is_answer(raw: bytes) -> None:
    """Check that a body with status 200 is no error.

    Raises:
        ApiError: it is one, with the status that it names.
    """
    with suppress(ValueError):
        body = as_object(from_json(raw))
        if (error := body.get("error")) and not body.get("choices"):
            loaded_refusal = error_object(error)
            refusal = replace(loaded_refusal, message=one_line(loaded_refusal.message))
            raise as_refusal(Refused(status_of(refusal, 502), refusal, None))


async def read_events(parts: AsyncGenerator[bytes]) -> AsyncGenerator[JsonObject]:
    """Yield the JSON objects of a stream of server-sent events.

    Raises:
        ApiError: an event is an error, or no JSON object.
    """
    buffer = b""
    pending = b""

    async for part in parts:
        *lines, buffer = LINE_END.split(buffer + part)
        for line in lines:
            name, _, data = line.partition(b":")
            if name == b"data":
                pending += data.strip() + b"\n"
            if pending.strip() in (b"", b"[DONE]"):
                pending = b""
                continue
            try:
                event = _read_object(pending)
            except ApiError:
                if line.strip():  # an event may have several lines of data
                    continue
                raise
            pending = b""
            if error := event.get("error"):
                raise ApiError(502, "upstream_error", error_object(error).message)
            yield event


def _read_object(raw: bytes) -> JsonObject:
    with suppress(ValueError):
        value = from_json(raw)
        if isinstance(value, dict):
            return value  # pyright: ignore[reportUnknownVariableType]

    raise ApiError(502, "upstream_error", "the model's endpoint sent an invalid answer")
