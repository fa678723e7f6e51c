"""The scripted server: HTTP/1.1 on loopback, on the current event loop or in a thread.

It answers `/v1/chat/completions`, streamed on request, `/v1/embeddings`, `/v1/models` and its own
`/stats`; and if they are enabled, `/v1/systemone`, `/v1/decisions`, `/tokenize` and the batch API.
Scripts answer `/v1/messages` and `/v1/responses`, too, with the bodies of these protocols.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from http.client import responses
from json import JSONDecodeError
from typing import Any, Self, cast

from pydantic import ValidationError

from textevolve.errors import InputError
from textevolve.llm.testing.answers import (
    OBLIGING,
    Answer,
    answer_tokenize,
    as_stream,
    completion,
    decision,
    drawn_embedding,
)
from textevolve.llm.testing.batches import ScriptedBatches
from textevolve.llm.testing.faults import CONTENT, TRANSIENT, Fault, faults, misbehave
from textevolve.protocol.chat import write_embeddings
from textevolve.protocol.chat_wires import CHAT_WIRES
from textevolve.protocol.contents import Wire

Script = Callable[[Mapping[str, Any], int], Answer | Fault | str | None]
"""A script: a function from a request's body and its number (from 1) to the answer; None: the
default answer."""

CHAT_PATHS = tuple(wire.path for wire in CHAT_WIRES.values())
ASKED = (*CHAT_PATHS, "/systemone", "/decisions")
DIMENSION = 32
FILLING = b" " * 65_536


@dataclass(eq=False, repr=False)
class ScriptedServer:
    """A scripted server, which serves within `async with` (on this event loop) or `with` (in a
    thread of its own).

    Attributes:
        latency: The seconds before each answer.
        port: The port; 0: any free one, which replaces the 0 once the server runs.
        capacity: The number of chat and decision requests in flight above which the answer is a
            429.
        key: The required bearer token; requests without it are answered with 401.
        keep: The number of latest requests that `requests` holds.
        wires: The decision protocols that it has: `systemone`, `decisions`; by default none, like
            most endpoints. Decisions count as calls.
        tokenizes: Whether texts can be forced token by token, as by llama.cpp's server (`/tokenize`
            and grammars of tokens); otherwise `/tokenize` is a 404, as with most endpoints.
        dimension: The dimension of embeddings.
        batches: The batch API, whose requests count as calls and are passed to scripts; None: its
            paths are a 404.
    """

    script: Script | None = None
    _: KW_ONLY
    latency: float = 0.0
    port: int = 0
    models: tuple[str, ...] = ("scripted",)
    key: str | None = None
    capacity: int | None = None
    keep: int = 1000
    wires: Sequence[Wire] = ()
    tokenizes: bool = False
    dimension: int = DIMENSION
    batches: ScriptedBatches | None = None
    _server: asyncio.Server = field(init=False)
    _thread: threading.Thread = field(init=False)
    _stop: Callable[[], object] = field(init=False)

    def __post_init__(self) -> None:
        self.requests: deque[dict[str, Any]] = deque(maxlen=self.keep)
        self.headers: deque[dict[str, str]] = deque(maxlen=self.keep)
        self.calls = self.in_flight = self.most_in_flight = 0
        self.connections: set[ScriptedConnection] = set()
        self.seen: Counter[int] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def stats(self) -> dict[str, int]:
        """Return the number of calls (`calls`), of calls with different bodies (`distinct`), and
        the most requests that were in flight at once (`most_in_flight`)."""
        return {
            "calls": self.calls,
            "distinct": len(self.seen),
            "most_in_flight": self.most_in_flight,
        }

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ScriptedConnection(self), "127.0.0.1", self.port, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._server.close()
        for _ in range(2):  # what was accepted just before has its connection two turns later
            await asyncio.sleep(0)
        for connection in self.connections:
            connection.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted connections are lost in the next turn of the loop

    def __enter__(self) -> Self:
        started = threading.Event()

        async def serve() -> None:
            stop = asyncio.Event()
            self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
            async with self:
                started.set()
                await stop.wait()

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        self._thread.start()
        if not started.wait(10):
            raise RuntimeError("the scripted server did not start within 10 seconds")

        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop()
        self._thread.join(10)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer one request; `body` of the answer is set, ready to be sent."""
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return misbehave(Fault.UNAUTHORISED)
        if self.batches is not None:

            def ask(line_body: dict[str, Any], line: bytes) -> Answer:
                return self._answer(line_body, headers, line)

            if (batch := self.batches.answer(method, path, headers, body, ask)) is not None:
                return batch

        path = path.split("?")[0].removeprefix("/v1")
        if method == "GET" and path in ("/models", "/stats"):
            models = [{"id": name, "object": "model"} for name in self.models]
            listed = {"object": "list", "data": models}
            return Answer(body=json.dumps(self.stats() if path == "/stats" else listed).encode())

        wire: Wire | None = next((wire for wire in self.wires if path == f"/{wire}"), None)
        tokenizes = self.tokenizes and path == "/tokenize"
        answers = wire or tokenizes or path in (*CHAT_PATHS, "/embeddings")
        if method != "POST" or not answers:
            return Answer(status=404, body=b'{"error":{"message":"no such path"}}')
        try:
            parsed = json.loads(body)
            decided = None if wire is None else decision(wire, parsed)
        except JSONDecodeError:
            return Answer(status=400, body=b'{"error":{"message":"the body is not JSON"}}')
        except (AttributeError, InputError, ValidationError):
            return Answer(status=422, body=b'{"detail":"the questions are none"}')

        if path == "/embeddings":
            return _embeddings(parsed, self.dimension)
        if tokenizes:
            return Answer(body=answer_tokenize(parsed))

        return self._answer(parsed, headers, body, decided)

    def _answer(
        self,
        parsed: dict[str, Any],
        headers: Mapping[str, str],
        body: bytes,
        decided: bytes | None = None,
    ) -> Answer:
        """Return the script's answer, or the default one if the script has none. If the script has
        not set the body, it is `decided`, the answer to a decision, or a chat completion. Above the
        `capacity` the script is not called, and the answer is a 429."""
        seed = int.from_bytes(blake2b(body, digest_size=8).digest(), "big")
        self.calls += 1
        self.seen[seed] += 1
        self.requests.append(parsed)
        self.headers.append(dict(headers))
        if self.capacity is not None and self.in_flight > self.capacity:
            return misbehave(Fault.RATE_LIMIT)
        scripted = self.script(parsed, self.calls) if self.script is not None else None
        if isinstance(scripted, str) and not isinstance(scripted, Fault):
            scripted = Answer(text=scripted)
        answer = misbehave(scripted) if isinstance(scripted, Fault) else scripted or OBLIGING
        if answer.body is not None:
            return answer
        complete = replace(answer, body=decided or completion(parsed, seed, answer))

        return as_stream(complete, parsed) if parsed.get("stream") and answer.streams else complete


def _embeddings(request: Mapping[str, Any], dimension: int) -> Answer:
    """Return the answer to a request for embeddings: a random unit vector for each text, which
    depends only on the text."""
    inputs: Any = request.get("input", [])
    texts: list[str] = [inputs] if isinstance(inputs, str) else list(inputs)
    vectors = [drawn_embedding(text, dimension) for text in texts]
    tokens = sum(len(text) // 4 + 1 for text in texts)
    response = write_embeddings(request.get("model", ""), vectors, tokens)

    return Answer(body=json.dumps(response).encode())


class ScriptedConnection(asyncio.Protocol):
    """The connection of one client: it answers the HTTP/1.1 requests one after the other.

    An answer that is sent whole and without a delay is written directly: an asyncio task for each
    answer would make every test and benchmark slower.
    """

    transport: asyncio.Transport

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._counted = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._leave()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._answer_next()

    def _answer_next(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        request_line, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        parts = [line.partition(":") for line in lines]
        headers = {name.lower(): value.strip() for name, _, value in parts}
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self._buffer) < size:
            return
        body = bytes(self._buffer[end + 4 : size])
        del self._buffer[:size]
        method, path, _version = request_line.split(" ", 2)
        server = self._server
        self._counted = path.endswith(ASKED)
        server.in_flight += self._counted
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        answer = server.answer(method, path, headers, body)
        wait = server.latency + answer.delay

        if wait or answer.transport != "whole" or answer.events:
            self._task = asyncio.create_task(self._answer_slowly(answer, wait))
        else:
            self._leave()
            self.transport.write(b"".join(_packets(answer)))
            self._answer_next()

    def _leave(self) -> None:
        self._server.in_flight -= self._counted
        self._counted = False

    async def _answer_slowly(self, answer: Answer, wait: float) -> None:
        await asyncio.sleep(wait)
        if answer.transport == "hang":  # counted until the other side closes
            await asyncio.Event().wait()
        self._leave()
        head, *packets = _packets(answer)
        self.transport.write(head)
        for packet in packets:
            self.transport.write(packet)
            await asyncio.sleep(answer.pace)
        while answer.transport == "endless":
            if self.transport.get_write_buffer_size() < len(FILLING):
                self.transport.write(packets[-1])
            await asyncio.sleep(0.001)

        if answer.transport == "reset":
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif answer.transport == "cut":
            self.transport.close()
        elif answer.transport == "whole":
            self._task = None
            self._answer_next()


def _packets(answer: Answer) -> list[bytes]:
    """Return the bytes that are sent for an answer, the head first; an answer whose connection
    fails has only its first half."""
    body = answer.body or b""
    kind = "application/json"

    if answer.events:
        kind = "text/event-stream"
        length = "Transfer-Encoding: chunked"
        packets = [b"%x\r\n%s\r\n" % (len(packet), packet) for packet in answer.sent()]
        packets += [b"0\r\n\r\n"] if answer.transport == "whole" else []
    elif answer.transport == "endless":
        length = "Connection: close"
        packets = [body, FILLING]
    else:
        length = f"Content-Length: {len(body)}"
        packets = [body if answer.transport == "whole" else body[: len(body) // 2]]

    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    status = f"{answer.status} {responses.get(answer.status, '')}"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}\r\n{more}\r\n"

    return [head.encode(), *packets]


@contextmanager
def serve_in_process(*options: str) -> Generator[str]:
    """Start `python -m textevolve.llm.testing OPTIONS`, yield its URL, and stop it at the end of
    the block."""
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
    parser.add_argument(
        "--batches", type=float, metavar="SECONDS", help="take batch jobs, which last so long"
    )
    options = parser.parse_args(arguments)
    server = ScriptedServer(
        faults(options.faults, TRANSIENT + CONTENT) if options.faults else None,
        latency=options.latency,
        port=options.port,
        capacity=options.capacity,
        keep=0,
        batches=None if options.batches is None else ScriptedBatches(options.batches),
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
