"""What pools, rate limits and prompt-cache hints are worth, at scripted servers on loopback.

    python benchmarks/paid_endpoints.py [cache] [limits] [pool]

`cache`: which share of the prompt tokens of debates (three agents, two rounds) a prompt cache
finds, with the hints and without. Caches that find beginnings by themselves are simulated by 8
hosts with a cache each: without a key a request goes to the next host in turn. Caches that want
marks keep what stands before one, and find it up to 20 parts later.
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
from typing import Any

from prefix_cache import GOOD, POOR, QUESTIONS
from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.engine.local import stream
from textevolve.evaluation import Case
from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited, Member, Pool
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.testing import PrefixCache, ScriptedServer, WindowLimit
from textevolve.llm.wrappers import Retrying
from textevolve.settings import Price, Retries

CLAUDE = Price(input=3.0, output=15.0, cached_input=0.3, cache_write=3.75)
OPENAI = Price(input=0.25, output=2.0, cached_input=0.025)
"""Dollars for a million tokens, as genai-prices has them of claude-sonnet-4-5 and gpt-5-mini."""


async def measure_cache(readout: str, order: str, how: Any, least: int) -> None:
    marks = how in ("breakpoints", "no marks")
    cache = PrefixCache(marks=marks, hosts=1 if marks else 8, least=least)
    hint = how if how in ("breakpoints", "key") else "none"
    price = CLAUDE if marks else OPENAI
    profile = override(
        load_profile("general"), {"readout": readout, "order": order, "convergence": None}
    )
    async with (
        ScriptedServer(cache) as server,
        OpenAIClient(server.url, "m", prompt_cache=hint, price=price) as client,
    ):
        debate = Debate(profile, lambda _agent: client, concurrency=4)
        cases = [Case(q, (GOOD, POOR), q[:20]) for q in QUESTIONS]
        cost, saved, coverage = 0.0, 0.0, 0.0
        async for result in stream(cases, debate, 4):
            cost += result.usage.cost or 0.0
            saved += result.usage.saved or 0.0
            coverage += result.coverage / len(cases)
    whole = cost + saved
    print(
        f"{readout:10} {order:9} {how:12} calls {server.calls:5,}  {cache.prompts:7,} prompt",
        f"  cached {cache.reads / cache.prompts:6.1%}  coverage {coverage:.0%}",
        f"  saved ${saved:.4f} of ${whole:.4f} ({saved / whole:5.1%})",
        flush=True,
    )


async def measure_limit(fills: Any, tells: bool, window: float, limit: int, calls: int) -> None:
    script = WindowLimit(limit, window, fills=fills, tells=tells)
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
        f"{limit} requests in {window:g} s, {fills:9} {'headers' if tells else 'no headers':10}"
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
            made = [server.calls - n for server, n in zip(servers, before, strict=True)]
            print(
                f"{name:10} {each:.3f} ms of CPU a call, with the servers'  calls {made}",
                flush=True,
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", default=["cache", "limits", "pool"])
    parser.add_argument("--least", type=int, default=0, help="tokens that a cache keeps at least")
    asked = parser.parse_args()
    parts = asked.parts
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {sys.version.split()[0]}")
    if "cache" in parts:
        for readout in ("verbalized", "probe"):
            for order in ("fixed", "balanced"):
                for how in ("none", "key", "no marks", "breakpoints"):
                    await measure_cache(readout, order, how, asked.least)
    if "limits" in parts:
        for fills in ("at once", "steadily"):
            for tells in (False, True):
                await measure_limit(fills, tells, 2.0, 40, 400)
    if "pool" in parts:
        await measure_pool(2000)


if __name__ == "__main__":
    asyncio.run(main())
