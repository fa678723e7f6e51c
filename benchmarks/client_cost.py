"""What one call through the client costs this process, in CPU microseconds.

    python benchmarks/client_cost.py [--calls 2000] [--in-flight 64] [--times 7]

Two figures: a whole call over HTTP to the scripted server in a process of its own, with that many
calls in flight, and what is done for a call besides HTTP (the body written and encoded, the answer
read). Each is the least of `--times` runs: what others do on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import sys
import time

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import serve_in_process
from textevolve.llm.testing.answers import completion

FILLER = "The tide follows the moon, and the moon is patient with the sea. "


def request(number: int) -> Request:
    return Request(
        messages=(
            Message("system", ("You weigh two answers.",)),
            Message("user", (FILLER * 20, f"Which one is better, and why? ({number})")),
        ),
        temperature=0.7,
        max_tokens=400,
    )


async def over_http(url: str, calls: int, in_flight: int) -> float:
    """CPU microseconds of a call."""
    async with OpenAIClient(url, "scripted") as client:
        gate = asyncio.Semaphore(in_flight)

        async def one(number: int) -> None:
            async with gate:
                await client(request(number))

        await asyncio.gather(*(one(number) for number in range(in_flight)))
        gc.collect()
        began = time.process_time()
        await asyncio.gather(*(one(number) for number in range(calls)))
        return (time.process_time() - began) / calls * 1e6


async def besides_http(calls: int) -> float:
    """CPU microseconds of a call whose exchange is a stand-in that answers at once."""
    async with OpenAIClient("http://127.0.0.1:9/v1", "scripted") as client:
        sent = request(0)
        raw = completion({"messages": [{"content": FILLER * 20}]}, 7)

        async def exchange(*_: object, **__: object) -> tuple[int, dict[str, str], bytes]:
            return 200, {}, raw

        client._http.exchange = exchange  # type: ignore[method-assign]
        gc.collect()
        began = time.process_time()
        for _ in range(calls):
            await client(sent)
        return (time.process_time() - began) / calls * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--times", type=int, default=7)
    options = parser.parse_args()
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, {sys.platform}")
    with serve_in_process() as url:
        costs = [
            await over_http(url, options.calls, options.in_flight) for _ in range(options.times)
        ]
    inside = [await besides_http(options.calls * 5) for _ in range(options.times)]
    print(f"a call over HTTP        {min(costs):7.1f} us of CPU")
    print(f"of it besides the HTTP  {min(inside):7.1f} us of CPU")


if __name__ == "__main__":
    asyncio.run(main())
