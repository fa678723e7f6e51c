"""Open the model of a spec: a client of an endpoint, a client of a local server that is started for
it, or the embedder inside this process.

The module is loaded with the first call that the journal cannot answer. It downloads missing
weights, starts servers and connects; `wiring` adds journal, budget and retries around the model.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from textevolve.errors import CapabilityError
from textevolve.events import Listener, silence
from textevolve.ledger import log
from textevolve.llm.batches.gathering import open_gatherer as open_gatherer
from textevolve.llm.catalogue import Weights, embedder_of, require_packages
from textevolve.llm.client import OpenAIClient, connect
from textevolve.llm.connections import Relay
from textevolve.llm.embeddings import IN_FLIGHT, Encoder
from textevolve.llm.limiting import Limited, Member, Pool, RateBucket, make_buckets
from textevolve.llm.local import serve
from textevolve.llm.providers import Endpoint, Key, resolve
from textevolve.llm.refusals import embeds_only
from textevolve.settings import PoolMember, Settings
from textevolve.system import make_room_for_files

if TYPE_CHECKING:
    from textevolve.llm.weights import TransferProgress

START = 32
MOST = 512
"""The number of an endpoint's calls that may be in flight at first, and at most, unless the setting
`concurrency` is higher."""


async def open_client(
    spec: str, settings: Settings, stack: AsyncExitStack
) -> tuple[OpenAIClient | Encoder, int, int]:
    """Return a client for the endpoint of a spec, with the number of concurrent calls at the start
    and at most.

    For a local model, missing weights are downloaded and the server is started; an embedder is
    loaded into this process.

    Raises:
        CapabilityError: the spec names a pool, which has several endpoints and is opened by
            `open_model`.
    """

    return await _open_endpoint(resolve(spec, settings), settings, stack)


async def open_model(
    spec: str,
    settings: Settings,
    stack: AsyncExitStack,
    listener: Listener = silence,
    limits: dict[str, tuple[RateBucket, ...]] | None = None,
) -> Limited | Pool:
    """Open the model of a spec within its limits, or all members of a pool, each within its own.
    `limits`: the buckets of the limits per minute by provider, to which missing ones are added, so
    that all models of a provider share them; a member of a pool with limits of its own does not."""
    shared = {} if limits is None else limits

    async def open_limited(endpoint: Endpoint, member: PoolMember) -> Limited:
        client, start, most = await _open_endpoint(endpoint, settings, stack)
        if member.concurrency is not None:
            start = min(start, member.concurrency)
            most = member.concurrency
        buckets = make_buckets(member.requests_per_minute, member.tokens_per_minute)
        if not buckets:
            default_buckets = make_buckets(endpoint.requests_per_minute, endpoint.tokens_per_minute)
            buckets = shared.setdefault(endpoint.provider, default_buckets)

        return Limited(
            client,
            start,
            most=max(start, most),
            buckets=buckets,
            whose=endpoint.provider,
            listener=listener,
            patience=settings.timeouts.deadline,
        )

    endpoint = resolve(spec, settings)
    if not endpoint.members:
        return await open_limited(endpoint, PoolMember(model=spec))
    pool = settings.pools[endpoint.model].members
    pairs = zip(endpoint.members, pool, strict=True)
    members = [Member(await open_limited(end, member), member.weight) for end, member in pairs]

    return Pool(endpoint.spec, members, listener)


async def _open_endpoint(
    endpoint: Endpoint, settings: Settings, stack: AsyncExitStack
) -> tuple[OpenAIClient | Encoder, int, int]:
    if endpoint.members:
        names = ", ".join(member.spec for member in endpoint.members)
        raise CapabilityError(f"{endpoint.spec} is a pool; name one of its members: {names}")
    embedder = embedder_of(endpoint.spec)
    if embedder is not None:
        return await _open_embedder(endpoint, embedder, settings, stack)
    if endpoint.is_local:
        running = await _start_server(endpoint, settings, stack)
        client = connect(running, settings.timeouts, settings.largest_answer, watched=True)
        start = most = settings.local.slots
    else:
        client = connect(endpoint, settings.timeouts, settings.largest_answer)
        start = max(START, settings.concurrency or 0)
        most = make_room_for_files(max(MOST, start))
        start = min(start, most)

    return await stack.enter_async_context(client), start, most


async def open_relay(spec: str, settings: Settings, stack: AsyncExitStack) -> Relay:
    """Open the relay to the endpoint of a spec: for a local model to its server, for a pool to its
    first member.

    Raises:
        CapabilityError: the model has no endpoint, but embeds inside this process.
    """
    endpoint = resolve(spec, settings)
    endpoint = endpoint.members[0] if endpoint.members else endpoint
    if embedder_of(endpoint.spec) is not None:
        raise embeds_only(endpoint.spec)
    local = endpoint.is_local
    if local:
        endpoint = await _start_server(endpoint, settings, stack)
    relay = Relay(endpoint, settings.timeouts, settings.largest_answer, unbounded=local)
    stack.push_async_callback(relay.aclose)

    return relay


async def _start_server(endpoint: Endpoint, settings: Settings, stack: AsyncExitStack) -> Endpoint:
    """Start the server of a local model; return its endpoint."""
    path = await _fetch_weights(endpoint, settings)
    server = await asyncio.to_thread(
        serve, path, settings.local, name=endpoint.model, most=endpoint.context
    )
    stack.callback(server.stop)
    key = Key(SecretStr(server.api_key), "the server's own")
    return replace(endpoint, base_url=server.base_url, key=key)


async def _open_embedder(
    endpoint: Endpoint, weights: Weights, settings: Settings, stack: AsyncExitStack
) -> tuple[Encoder, int, int]:
    weights_file = await _fetch_weights(endpoint, settings)
    assert weights.tokenizer is not None  # the catalogue is read with a check of that
    assert weights.context is not None
    tokenizer_file = weights_file.with_name(weights.tokenizer.file)
    threads = settings.local.threads
    model = await asyncio.to_thread(
        partial(
            Encoder,
            endpoint.spec,
            weights_file,
            tokenizer_file,
            weights.context,
            threads,
            output=weights.output,
            together=weights.together,
        )
    )

    return await stack.enter_async_context(model), IN_FLIGHT, IN_FLIGHT


async def _fetch_weights(endpoint: Endpoint, settings: Settings) -> Path:
    """Return the path of a local model's weights; download them if they are missing, and log the
    progress."""
    require_packages(endpoint.spec)
    # Threads cannot be had at the end of a program, and this module has to be loaded there, too.
    from textevolve.llm.weights import fetch

    stop = threading.Event()

    def report(now: TransferProgress) -> None:
        if now.note:
            log.info("%s: %s", now.name, now.note)

    try:
        return await asyncio.to_thread(fetch, endpoint.model, settings, report, stop)
    finally:
        stop.set()
