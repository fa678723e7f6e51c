"""A memory system behind HTTP, to start your own from: the contract that `textevolve memory-eval`
asks for (docs/memory-eval.md). Only the standard library.

    python examples/memory_server.py [PORT]

It keeps what users say, a sentence a memory, and finds by shared words. The address is printed; any
free port is taken unless one is given. Set TEXTEVOLVE_MEMORY_KEY to ask for a key.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Memory:
    """Sentences by user. Your system goes here."""

    def __init__(self) -> None:
        self._kept: dict[str, list[str]] = {}
        self._done: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def once(self, key: str | None, work: Any, body: dict[str, Any]) -> dict[str, Any]:
        """A request that comes again, after its answer was lost, is not carried out again."""
        with self._lock:
            if key is None or key not in self._done:
                answer = work(body)
                if key is None:
                    return answer
                self._done[key] = answer
            return self._done[key]

    def add(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [turn["content"] for turn in body["dialogue"] if turn["role"] == "user"]
        memories = [part for text in texts for part in re.split(r"(?<=[.!?])\s+", text) if part]
        self._kept.setdefault(body["user"], []).extend(memories)
        return {"memories": memories}

    def search(self, body: dict[str, Any]) -> dict[str, Any]:
        query_words = words(body["query"])
        memories = self._kept.get(body["user"], [])
        best = sorted(memories, key=lambda text: -len(query_words & words(text)))
        return {"memories": [text for text in best if query_words & words(text)][: body["limit"]]}

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Optional. Say `http:URL#answers` to have it asked."""
        return {"answer": body["memories"][0] if body["memories"] else "unknown"}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    memory: Memory
    key: str | None = None

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        paths = {
            "/add": self.memory.add,
            "/search": self.memory.search,
            "/answer": self.memory.answer,
        }
        if self.key and self.headers.get("Authorization") != f"Bearer {self.key}":
            self.reply(401, {"error": "the key is missing or wrong"})
        elif self.path not in paths:
            self.reply(404, {"error": f"there are {', '.join(paths)}"})
        else:
            try:
                key = self.headers.get("Idempotency-Key")
                self.reply(200, self.memory.once(key, paths[self.path], json.loads(raw)))
            except (ValueError, KeyError, TypeError) as error:
                self.reply(400, {"error": f"not a request of this contract: {error!r}"})

    def reply(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def make_server(port: int = 0, key: str | None = None) -> ThreadingHTTPServer:
    """On 127.0.0.1 alone. `server_address` says the port."""
    handler = type("OwnHandler", (Handler,), {"memory": Memory(), "key": key})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


def main(port: str = "0") -> None:
    with make_server(int(port), os.environ.get("TEXTEVOLVE_MEMORY_KEY")) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
