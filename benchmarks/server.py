"""What `textevolve serve` adds to a model's own time, beside a relay of 40 lines.

    python benchmarks/server.py                      1,000 streams at once, 200 new ones a second
    python benchmarks/server.py --rate 20 --seconds 10
    python benchmarks/server.py --bodies             the longest wait while large bodies come in

The model is a loopback server in a process of its own: its first token comes after 200 ms, and the
stream lasts `--length` seconds, so that `--rate` times that many are open at once. It is asked
directly, through a relay of FastAPI and aiohttp, and through our server, one after the other, at
the same rate. Told are the times to the first and the last token that each adds to those of direct
calls (quantiles are subtracted), CPU a request and the most memory of its process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import uvicorn
from aiohttp import web
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

FIRST = 0.2
MODEL = "loopback"
PROMPT = "Tell me of the sea. " * 20


def serve_model(port: int, length: float, tokens: int) -> None:
    """A model: its first token after 200 ms, the last at the stream's length."""

    async def chat(request: web.Request) -> web.StreamResponse:
        began = time.monotonic()
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await asyncio.sleep(began + FIRST - time.monotonic())
        await response.prepare(request)
        for n in range(tokens):
            due = began + FIRST + (length - FIRST) * n / max(1, tokens - 1)
            await asyncio.sleep(due - time.monotonic())
            choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
            await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    web.run_app(app, host="127.0.0.1", port=port, print=None, backlog=4096)


def serve_relay(port: int, model: str) -> None:
    """The plainest relay that somebody would write."""
    app, sessions = FastAPI(), list[aiohttp.ClientSession]()

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> StreamingResponse:  # pyright: ignore[reportUnusedFunction]
        body = await request.json()
        if not sessions:
            connector = aiohttp.TCPConnector(limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector))
        answer = await sessions[0].post(
            f"{model}/chat/completions",
            json={**body, "model": MODEL},
            headers={"Authorization": "Bearer key"},
        )

        async def parts() -> AsyncGenerator[bytes]:
            async with answer:
                async for part in answer.content.iter_any():
                    yield part

        return StreamingResponse(parts(), answer.status, media_type="text/event-stream")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


@dataclass(frozen=True)
class Measured:
    """Seconds to the first and the last token of each stream; CPU seconds and bytes of the server's
    process (0 for none)."""

    first: Sequence[float]
    last: Sequence[float]
    cpu: float
    memory: int
    failed: int


async def load(url: str, model: str, rate: float, seconds: float, pid: int) -> Measured:
    """New streams at an even rate for so many seconds; what is measured begins after a tenth."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    times, failed, number = list[tuple[float, float]](), 0, int(rate * seconds)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
    ) as session:

        async def ask(due: float) -> None:
            nonlocal failed
            await asyncio.sleep(due - time.monotonic())
            began, first_part = time.monotonic(), 0.0
            try:
                async with session.post(f"{url}/chat/completions", json=body) as answer:
                    answer.raise_for_status()
                    async for part in answer.content.iter_any():
                        first_part = first_part or time.monotonic()
                        is_done = b"[DONE]" in part
            except (aiohttp.ClientError, OSError, TimeoutError):
                failed += 1
                return
            if is_done:  # pyright: ignore[reportPossiblyUnboundVariable]
                times.append((first_part - began, time.monotonic() - began))
            else:
                failed += 1

        await ask(0.0)
        times.clear()
        start, cpu = time.monotonic() + 0.1, cpu_of(pid)
        await asyncio.gather(*(ask(start + n / rate) for n in range(number)))
        spent = cpu_of(pid) - cpu
    measured = times[len(times) // 10 :]
    firsts, last = zip(*measured, strict=True)
    return Measured(firsts, last, spent / number, memory_of(pid), failed)


STALL = 1.0
"""The seconds without an answer that count as a stall."""


def large_bodies() -> Iterator[tuple[str, str, bytes]]:
    """Yield the name, the path and the content of requests of the largest sizes. The server refuses
    each after it has read all of it, so that nothing but the reading is measured."""
    line = '{"text": "memory %07d of a large import, as long as a usual sentence"}\n'
    lines = "".join(line % n for n in range(600_000)) + '{"text": 1}\n'
    yield "import", "namespaces/large/collections/notes/memories/import", lines.encode()
    cases = [{"input": f"q{n}", "candidates": ["a", "b"]} for n in range(400_000)]
    study = {"kind": "evaluate", "judge": "nowhere", "run": {"cases": cases}}
    yield "study", "studies", json.dumps(study).encode()
    messages = [{"role": "user", "content": f"m{n}"} for n in range(300_000)]
    chat = {"model": "judge/probe", "messages": [*messages, {"role": "nobody"}]}
    yield "chat", "chat/completions", json.dumps(chat).encode()


async def watch(url: str) -> None:
    """Send three of each large body at once, and tell how long /health waited meanwhile."""
    timeout = aiohttp.ClientTimeout(total=600)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def send(path: str, body: bytes) -> int:
            async with session.post(f"{url}/v1/{path}", data=body, headers=headers) as answer:
                await answer.read()
                return answer.status

        embedder = {"name": "notes", "embedder": "local/bge-small"}
        await send("namespaces", json.dumps({"name": "large"}).encode())
        await send("namespaces/large/collections", json.dumps(embedder).encode())
        for name, path, body in large_bodies():
            waits: list[float] = []
            sending = asyncio.gather(*(send(path, body) for _ in range(3)))
            while not sending.done():
                began = time.monotonic()
                async with session.get(f"{url}/health") as answer:
                    await answer.read()
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.01)
            stalls = sum(wait > STALL for wait in waits)
            print(
                f"{name:7}  3 x {len(body) / 2**20:.0f} MiB  answered {sorted(await sending)}"
                f"  /health p50 {np.percentile(waits, 50) * 1000:.1f} ms, longest"
                f" {max(waits) * 1000:.0f} ms, {stalls} stalls above {STALL:g} s",
                flush=True,
            )


def cpu_of(pid: int) -> float:
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    if not pid:
        return 0
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def process(*command: str) -> Generator[tuple[int, int]]:
    """Starts a server with the port that it is to listen on; gives its id and the port."""
    with socket.create_server(("127.0.0.1", 0)) as port_holder:
        port = port_holder.getsockname()[1]
    words = [word.replace("PORT", str(port)) for word in command]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as started:
        try:
            _await(port)
            yield started.pid, port
        finally:
            started.terminate()


def _await(port: int) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description="The overhead of the server over its model.")
    parser.add_argument("--rate", type=float, default=200, help="new streams a second")
    parser.add_argument("--seconds", type=float, default=20, help="for so long")
    parser.add_argument("--length", type=float, default=5, help="seconds that a stream lasts")
    parser.add_argument("--tokens", type=int, default=20, help="of a stream")
    parser.add_argument("--bodies", action="store_true", help="large bodies instead of streams")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        if options.serve[0] == "model":
            serve_model(int(options.serve[1]), options.length, options.tokens)
        else:
            serve_relay(int(options.serve[1]), options.serve[2])
        return
    shape = ("--length", str(options.length), "--tokens", str(options.tokens))
    here = str(Path(__file__))
    with (
        tempfile.TemporaryDirectory() as folder,
        process(here, *shape, "--serve", "model", "PORT") as (_, behind),
    ):
        model = f"http://127.0.0.1:{behind}/v1"
        store = ("--store", str(Path(folder, "store.db")))
        ours = (
            "-m",
            "textevolve",
            "serve",
            "--model",
            f"{model}#{MODEL}",
            "--port",
            "PORT",
            *store,
        )
        if options.bodies:
            with process(*ours, "--judge", "probe") as (_, port):
                asyncio.run(watch(f"http://127.0.0.1:{port}"))
            return

        arguments = (options.rate, options.seconds)
        print(f"{options.rate:g} streams a second, {options.rate * options.length:g} at once")
        direct = asyncio.run(load(model, MODEL, *arguments, 0))
        tell("direct", direct, direct)
        for name, command in (("relay", (here, "--serve", "relay", "PORT", model)), ("ours", ours)):
            with process(*command, *(store if name == "ours" else ())) as (pid, port):
                url = f"http://127.0.0.1:{port}/v1"
                served = MODEL if name == "relay" else f"{model}#{MODEL}"
                tell(name, asyncio.run(load(url, served, *arguments, pid)), direct)


def tell(name: str, measured: Measured, direct: Measured) -> None:
    """One line: what was added in ms at p50 and p99, CPU in ms a request, memory in MB."""
    cells: list[str] = []
    for kind in ("first", "last"):
        for share in (50, 99):
            more = np.percentile(getattr(measured, kind), share)
            if measured is not direct:
                more -= np.percentile(getattr(direct, kind), share)
            cells.append(f"{kind} p{share} {more * 1000:7.1f} ms")
    cells.append(f"CPU {measured.cpu * 1000:5.2f} ms, {measured.memory / 1e6:4.0f} MB")
    print(f"{name:7}", *cells, f"{measured.failed} failed", sep="  ", flush=True)


if __name__ == "__main__":
    main()
