"""HTTP servers on loopback that stand for the applications of users."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POLL_SECONDS = 0.01
"""How often a server looks whether it should end; the default of half a second would be waited for
at the end of each test."""


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Run a server with this handler on a free port until the end of the block. Its `url` is the
    address without a path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        serving.url = f"http://127.0.0.1:{serving.server_port}"
        threading.Thread(target=serving.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
        yield serving
        serving.shutdown()
