"""The scripted server in a process of its own, for benchmarks and for tests that kill."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import get_args

from textevolve.llm.decisions import Wire
from textevolve.llm.testing.batches import ScriptedBatches
from textevolve.llm.testing.faults import CONTENT, TRANSIENT, faults, refuse_images
from textevolve.llm.testing.server import DIMENSION, ScriptedServer


@contextmanager
def serve_in_process(*options: str) -> Generator[str]:
    """Starts `python -m textevolve.llm.testing OPTIONS` and gives its URL; stops it afterwards."""
    command = [sys.executable, "-m", "textevolve.llm.testing", *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            if not url:
                raise RuntimeError("the scripted server ended before it was ready")
            yield url
        finally:
            process.terminate()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m textevolve.llm.testing",
        description="Serve the OpenAI protocol on loopback until standard input closes.",
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--capacity", type=int, help="429 above this many requests in flight")
    parser.add_argument("--faults", type=float, default=0.0, help="share that misbehaves, 0 to 1")
    parser.add_argument("--kinds", choices=("transient", "content", "all"), default="transient")
    parser.add_argument("--seed", type=int, default=0, help="seed of the misbehaviour")
    parser.add_argument(
        "--wires",
        nargs="*",
        default=(),
        choices=get_args(Wire),
        help="decide on these; none: only chat",
    )
    parser.add_argument("--no-images", action="store_true", help="refuse requests with images")
    parser.add_argument(
        "--tokenizes", action="store_true", help="force texts by token, as llama.cpp's server does"
    )
    parser.add_argument(
        "--dimension", type=int, default=DIMENSION, help="numbers that an embedding has"
    )
    parser.add_argument(
        "--batches", type=float, metavar="SECONDS", help="take batch jobs, which last so long"
    )
    given = parser.parse_args(arguments)
    kinds = {"transient": TRANSIENT, "content": CONTENT, "all": TRANSIENT + CONTENT}[given.kinds]
    script = faults(given.faults, kinds, given.seed) if given.faults else None
    script = refuse_images if given.no_images else script
    server = ScriptedServer(
        script,
        latency=given.latency,
        port=given.port,
        capacity=given.capacity,
        keep=0,
        wires=given.wires,
        tokenizes=given.tokenizes,
        dimension=given.dimension,
        batches=None if given.batches is None else ScriptedBatches(given.batches),
    )
    try:
        asyncio.run(_serve(server))
    except KeyboardInterrupt:
        return


async def _serve(server: ScriptedServer) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(stop.set)

    async with server:
        print(server.url, flush=True)
        threading.Thread(target=wait_for_end, daemon=True).start()
        await stop.wait()
