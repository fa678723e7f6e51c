"""What pools and rate limits are worth, at scripted servers on loopback.

    python benchmarks/paid_endpoints.py [limits] [pool]

`limits`: 429s and throughput at a server that lets so many requests through in a window.
`pool`: how calls are shared, and what a call through a pool costs more than one to its only member.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from contextlib import AsyncExitStack

from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited, Member, Pool
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.testing import ScriptedServer, WindowLimit
from textevolve.llm.wrappers import Retrying
from textevolve.settings import Retries


async def measure_limit(tells: bool, window: float, limit: int, calls: int) -> None:
    script = WindowLimit(limit, window, tells=tells)
    async with (
        ScriptedServer(script, latency=0.05) as server,
        OpenAIClient(server.url, "m") as client,
    ):
        limited = Limited(client, 32, most=512)
        model = Retrying(limited, Retries(attempts=99), deadline=600)
        began = time.perf_counter()
        await asyncio.gather(*(model(ask(str(n))) for n in range(calls)))
        seconds = time.perf_counter() - began
    # A full window can be used at once, before the rate counts.
    share = (calls - limit) / seconds / (limit / window)
    print(
        f"{limit} requests in {window:g} s, {'headers' if tells else 'no headers':10}"
        f" 429s {script.refused:5,} of {server.calls:5,} requests"
        f"  {calls / seconds:6.1f} answers/s, {share:4.0%} of the limit",
        flush=True,
    )


def ask(text: str) -> Request:
    return Request(messages=(Message("user", (text,)),))


async def cost_a_call(model: Model, calls: int) -> float:
    began = time.process_time()
    gate = asyncio.Semaphore(64)

    async def one(n: int) -> None:
        async with gate:
            await model(ask(str(n)))

    await asyncio.gather(*(one(n) for n in range(calls)))
    return (time.process_time() - began) / calls * 1000


async def measure_pool(calls: int) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(keep=0)) for _ in range(3)]
        clients = [
            await stack.enter_async_context(OpenAIClient(server.url, "m")) for server in servers
        ]
        alone = Retrying(Limited(clients[0], 64))
        pool = Pool(
            "p", [Member(Limited(c, 64), w) for c, w in zip(clients, (3, 2, 1), strict=True)]
        )
        single = Pool("s", [Member(Limited(clients[0], 64))])
        for name, model in (("alone", alone), ("pool of 1", single), ("pool of 3", pool)) * 3:
            before = [server.calls for server in servers]
            each = await cost_a_call(Retrying(model) if model is not alone else alone, calls)
            number = [server.calls - n for server, n in zip(servers, before, strict=True)]
            print(
                f"{name:10} {each:.3f} ms of CPU a call, with the servers'  calls {number}",
                flush=True,
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", default=["limits", "pool"])
    options = parser.parse_args()
    parts = options.parts
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {sys.version.split()[0]}")
    if "limits" in parts:
        for tells in (False, True):
            await measure_limit(tells, 2.0, 40, 400)
    if "pool" in parts:
        await measure_pool(2000)


if __name__ == "__main__":
    asyncio.run(main())
