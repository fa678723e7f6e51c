"""What `textevolve serve` adds to a model's own time, beside a relay of 40 lines.

    python benchmarks/server.py                      1,000 streams at once, 200 new ones a second
    python benchmarks/server.py --rate 20 --seconds 10
    python benchmarks/server.py --bodies             /health alone, and while large bodies come in

The model is a loopback server in a process of its own: its first token comes after 200 ms, and the
stream lasts `--length` seconds, so that `--rate` times that many are open at once. It is asked
directly, through a relay of FastAPI and aiohttp, and through our server, one after the other, at
the same rate. Told are the times to the first and the last token that each adds to those of direct
calls (quantiles are subtracted), CPU a request and the most memory of its process.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import uvicorn
from aiohttp import web
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from processes import read_process, start_server

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

    async def embed(request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        rows = [
            {"index": index, "embedding": list(hashlib.sha256(text.encode()).digest())}
            for index, text in enumerate(texts)
        ]
        return web.json_response({"data": rows})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/embeddings", embed)
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
        start = time.monotonic() + 0.1
        before = read_process(pid)
        await asyncio.gather(*(ask(start + n / rate) for n in range(number)))
        after = read_process(pid)
    measured = times[len(times) // 10 :]
    firsts, last = zip(*measured, strict=True)
    if before is None or after is None:  # the model is asked directly
        return Measured(firsts, last, 0.0, 0, failed)

    return Measured(firsts, last, (after.cpu - before.cpu) / number, after.peak, failed)


STALL = 1.0
"""The seconds without an answer that count as a stall."""
ALONE = 1000
"""The requests of /health without other load."""
AT_ONCE = 3
"""The equal requests that are sent at once; a {} in their path is the number of each."""


def large_bodies() -> Iterator[tuple[str, str, bytes]]:
    """Yield the name, the path and the content of requests. The first three are of the largest
    sizes, and the server refuses each after it has read all of it, so that nothing but the reading
    is measured. It accepts the last two, and does what they ask for."""
    memories = "namespaces/large/collections/notes{}/memories/import"
    line = '{"text": "memory %07d of a large import, as long as a usual sentence"}\n'
    lines = "".join(line % n for n in range(600_000)) + '{"text": 1}\n'
    yield "import, refused", memories, lines.encode()
    cases = [{"input": f"q{n}", "candidates": ["a", "b"]} for n in range(400_000)]
    study = {"kind": "evaluate", "judge": "nowhere", "run": {"cases": cases}}
    yield "study, refused", "studies", json.dumps(study).encode()
    messages = [{"role": "user", "content": f"m{n}"} for n in range(300_000)]
    chat = {"model": "judge/probe", "messages": [*messages, {"role": "nobody"}]}
    yield "chat, refused", "chat/completions", json.dumps(chat).encode()
    yield "import of 5,000", memories, "".join(line % n for n in range(5000)).encode()
    study = {"kind": "evaluate", "judge": "look:length", "run": {"cases": cases[:20_000]}}
    yield "study of 20,000 rows", "studies", json.dumps(study).encode()


async def watch(url: str, embedder: str) -> None:
    """Send three of each large body at once, and tell how long /health waited meanwhile; before
    that, how long it takes without load. All of /health is asked on one kept connection."""
    timeout = aiohttp.ClientTimeout(total=600)
    headers = {"Content-Type": "application/json"}
    kept = aiohttp.TCPConnector(limit=1)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        aiohttp.ClientSession(timeout=timeout, connector=kept) as asking,
    ):

        async def send(path: str, body: bytes) -> int:
            async with session.post(f"{url}/v1/{path}", data=body, headers=headers) as answer:
                await answer.read()
                return answer.status

        async def ask_health() -> float:
            began = time.monotonic()
            async with asking.get(f"{url}/health") as answer:
                await answer.read()
            return time.monotonic() - began

        await send("namespaces", json.dumps({"name": "large"}).encode())
        for n in range(AT_ONCE):
            collection = {"name": f"notes{n}", "embedder": embedder}
            await send("namespaces/large/collections", json.dumps(collection).encode())
        tell_waits("no load", [await ask_health() for _ in range(ALONE)])

        for name, path, body in large_bodies():
            waits: list[float] = []
            sending = asyncio.gather(*(send(path.format(n), body) for n in range(AT_ONCE)))
            while not sending.done():
                waits.append(await ask_health())
                await asyncio.sleep(0.01)
            size = f"{AT_ONCE} x {len(body) / 2**20:.1f} MiB"
            tell_waits(f"{name}, {size}, answered {sorted(await sending)}", waits)


def tell_waits(load: str, waits: Sequence[float]) -> None:
    stalls = sum(wait > STALL for wait in waits)
    print(
        f"{load}: /health p50 {np.percentile(waits, 50) * 1000:.2f} ms, longest"
        f" {max(waits) * 1000:.0f} ms, {stalls} of {len(waits)} above {STALL:g} s",
        flush=True,
    )


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
        start_server(here, *shape, "--serve", "model", "PORT") as (_, behind),
    ):
        model = f"http://127.0.0.1:{behind}/v1"
        store = str(Path(folder, "store.db"))
        words = ["-m", "textevolve", "serve", "--model", f"{model}#{MODEL}", "--store", store]
        ours = [*words, "--port", "PORT"]
        if options.bodies:
            with start_server(*ours, "--judge", "probe") as (_, port):
                asyncio.run(watch(f"http://127.0.0.1:{port}", f"{model}#{MODEL}"))
            return

        arguments = (options.rate, options.seconds)
        print(f"{options.rate:g} streams a second, {options.rate * options.length:g} at once")
        direct = asyncio.run(load(model, MODEL, *arguments, 0))
        tell("direct", direct, direct)
        for name, command in (("relay", (here, "--serve", "relay", "PORT", model)), ("ours", ours)):
            with start_server(*command) as (pid, port):
                url = f"http://127.0.0.1:{port}/v1"
                served = MODEL if name == "relay" else f"{model}#{MODEL}"
                tell(name, asyncio.run(load(url, served, *arguments, pid)), direct)


def tell(name: str, measured: Measured, direct: Measured) -> None:
    """Print what was added in ms at p50 and p99, CPU in ms a request, and memory in MB."""
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
