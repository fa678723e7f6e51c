"""Texts a second of the offline embedders, one and many at a time; and that neighbours are nothing.

    python benchmarks/embedding_speed.py [--texts 600] [--threads 1]
        [--models local/bge-small local/colbert-small]

Texts are runs of words of the docs: short ones as memories are (5 to 25 words), and longer ones.
Process time is that of all threads together, so it does not depend on what else the machine does
as wall time does. A line for each model compares embeddings that were computed among others with
the same computed alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import numpy as np

from textevolve.engine.local import gather_bounded
from textevolve.llm.embeddings import Encoder, embed, embed_tokens
from textevolve.llm.opening import open_client
from textevolve.settings import Local, read_settings

LENGTHS = {"5 to 25 words": (5, 25), "26 to 120 words": (26, 120), "250 words": (250, 250)}


def draw_texts(number: int, low: int, high: int, rng: Random) -> list[str]:
    docs = Path(__file__).parent.parent / "docs"
    words = [w for page in sorted(docs.glob("*.md")) for w in page.read_text("utf-8").split()]
    starts = [rng.randrange(len(words) - high) for _ in range(number)]
    return [" ".join(words[at : at + rng.randint(low, high)]) for at in starts]


async def measure(name: str, number: int, threads: int) -> None:
    settings = read_settings()
    settings = settings.model_copy(update={"local": Local(threads=threads)})
    async with AsyncExitStack() as stack:
        model, most, _ = await open_client(name, settings, stack)
        assert isinstance(model, Encoder)
        encode = embed_tokens if model.output == "tokens" else embed
        for label, (low, high) in LENGTHS.items():
            texts = draw_texts(number if high < 100 else number // 6, low, high, Random(1))
            for in_flight in (1, most):
                used, began = time.process_time(), time.perf_counter()
                await gather_bounded([lambda t=t: encode(model, t) for t in texts], in_flight)
                used, took = time.process_time() - used, time.perf_counter() - began
                speeds = (f"{len(texts) / used:.0f}", f"{len(texts) / took:.0f}")
                print("|", " | ".join((name, label, str(in_flight), *speeds)), "|", flush=True)
        texts = draw_texts(100, 5, 120, Random(2))
        together = await gather_bounded([lambda t=t: encode(model, t) for t in texts], most)
        alone = await gather_bounded([lambda t=t: encode(model, t) for t in texts], 1)
    same = all(np.array_equal(*pair) for pair in zip(together, alone, strict=True))
    print(f"\n{name}: {'the same' if same else 'NOT the same'} as computed alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["local/bge-small", "local/colbert-small"])
    options = parser.parse_args()
    print("| model | texts | in flight | texts a CPU second | texts a second |")
    print("|---|---|---|---|---|")
    for name in options.models:
        asyncio.run(measure(name, options.texts, options.threads))


if __name__ == "__main__":
    main()
