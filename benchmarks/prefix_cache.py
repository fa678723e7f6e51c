"""How much of the prompts a local model finds in its KV cache.

    python benchmarks/prefix_cache.py [--model local/qwen2.5-coder-1.5b] [--cases 3]

Debates of three agents in two rounds, sequential; the persona comes last in a prompt, so that all
turns share their beginning. Each line starts a server of its own, so it begins with a cold cache.
`cached` is the share of prompt tokens that llama.cpp took from its cache (`timings.cache_n`).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack

from sitting import describe_machine
from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.engine.local import stream
from textevolve.evaluation import Case, Usage
from textevolve.llm.opening import open_client
from textevolve.settings import read_settings

QUESTIONS = (
    "Why does bread dough rise, and why does it stop rising in the oven?",
    "How does a lock on a canal lift a boat without any pump?",
    "Why is the sky blue at noon and red in the evening?",
    "How can a sailing boat make way against the wind?",
    "Why do two identical parcels sometimes cost different postage?",
    "What makes a guitar string sound higher when it is pressed down?",
)
GOOD = (
    "It helps to take the question apart. First there is what drives the whole thing, then what"
    " holds it back, and last what one can see of it from outside. The driving part does its work"
    " in small steps that add up; the part that holds it back grows with each step, until the two"
    " are equal and nothing moves any more. What one sees is the balance of both. That is why the"
    " effect is quick at first, slows down, and then stays as it is, and why a little more of the"
    " first part changes much early on and almost nothing later. A simple trial at home shows all"
    " three stages within an hour, and needs nothing but patience and a ruler."
)
POOR = (
    "Nobody really knows, but it is commonly said that it has to do with the weather and with the"
    " time of the year. Some people swear by the moon. In my own experience it is best not to think"
    " about it too much, as it works anyway, and if it does not, one can always try again tomorrow"
    " or ask somebody who has done it before. There are also good videos on this subject, and I can"
    " warmly recommend to watch several of them, since they do not agree with each other at all."
)


async def measure(model: str, cases: list[Case], readout: str, order: str) -> None:
    settings = read_settings()
    profile = override(
        load_profile("general"),
        {"readout": readout, "order": order, "convergence": None, "max_answer_tokens": 400},
    )
    async with AsyncExitStack() as stack:
        client, in_flight, _ = await open_client(model, settings, stack)
        debate = Debate(profile, lambda _agent: client, concurrency=1)
        began, usage, coverage = time.perf_counter(), Usage(), 0.0
        async for result in stream(cases, debate, in_flight):
            usage += result.usage
            coverage += result.coverage / len(cases)
        seconds = time.perf_counter() - began
    print(
        f"{readout:7} {order:9} cached {usage.cached_tokens / usage.prompt_tokens:6.1%}"
        f"  processed {usage.prompt_tokens - usage.cached_tokens:7,} of {usage.prompt_tokens:9,}"
        f"  written {usage.completion_tokens:6,}  {60 * len(cases) / seconds:5.2f} debates/min"
        f"  coverage {coverage:.0%}",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--cases", type=int, default=3)
    parser.add_argument("--readouts", nargs="+", default=["stated", "probe"])
    parser.add_argument("--orders", nargs="+", default=["fixed", "balanced"])
    options = parser.parse_args()
    print(describe_machine())
    print(f"{options.model}, {options.cases} debates, 3 agents, 2 rounds, 2 candidates")
    cases = [Case(q, (GOOD, POOR), q[:20]) for q in QUESTIONS[: options.cases]]
    for readout in options.readouts:
        for order in options.orders:
            await measure(options.model, cases, readout, order)


if __name__ == "__main__":
    asyncio.run(main())
