"""Who is answered, and what is refused before anything is asked."""

import logging
import socket
import time
from urllib.parse import urlsplit

import pytest
from plain_http import fetch
from starlette.responses import StreamingResponse

from textevolve.server import guard
from textevolve.server.errors import ApiError
from textevolve.server.pages import runs


def test_every_answer_tells_browsers_what_not_to_do(serve, monkeypatch):
    url = serve(judge="probe")

    def fail(*_given, **_named):
        raise RuntimeError("on purpose")

    replies = {
        path: fetch(f"{url}{path}")
        for path in ("/health", "/v1/models", "/runs", "/", "/nowhere", "/static/page.js")
    }
    replies["refused"] = fetch(f"{url}/runs", Host="evil.example")
    replies["invalid"] = fetch(f"{url}/v1/systemone", "POST", {"model": 1})
    monkeypatch.setattr("textevolve.server.pages.runs.draw", fail)
    replies["failed"] = fetch(f"{url}/runs")
    assert replies["failed"].status == 500
    for path, reply in replies.items():
        headers = reply.headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_more_than_is_taken_is_not_kept():
    arguments = []

    async def receive():
        arguments.append(1000)
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    with pytest.raises(ApiError) as refused:
        await guard.read_body(receive, 5000)
    assert refused.value.status == 413
    assert sum(arguments) <= 9 * 5000


def test_a_client_that_takes_nothing_is_let_go(serve, monkeypatch, caplog):
    """It asks for a stream, never reads, and the stream is ended all the same."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(guard, "SEND_SECONDS", 0.1)

    async def stream():
        while True:
            yield b"x" * 2**16

    monkeypatch.setattr(runs, "draw", lambda *_, **__: StreamingResponse(stream()))
    url = serve(judge="probe")
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until = time.monotonic() + 60
        while "stopped reading" not in caplog.text:
            assert time.monotonic() < until, "the stream goes on"
            time.sleep(0.01)
    serve.end()
