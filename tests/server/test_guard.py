"""Who is answered, and what is refused before anything is asked."""

import asyncio
import json
import logging
import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_http import fetch
from starlette.responses import StreamingResponse

from textevolve.server import bodies, guard, listening
from textevolve.server.bodies import LARGEST_BODY, Bodies, json_depth
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
        found = reply.headers
        policy = found["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found["x-frame-options"] == "DENY"
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "same-origin"
        assert found["cross-origin-opener-policy"] == "same-origin"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["cache-control"] == ("no-cache" if "static" in path else "no-store")
        assert "access-control-allow-origin" not in found
        assert "server" not in found


def test_a_body_that_does_not_come_is_waited_for_a_while_only(serve, server, monkeypatch):
    monkeypatch.setattr(bodies, "PART_SECONDS", 0.05)
    url = serve(judge="probe")
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.putrequest("POST", "/v1/systemone")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b'{"model": ')
        answer = connection.getresponse()
        assert answer.status == 408
        assert b"request_timeout" in answer.read()
    assert server.calls == 0


async def test_a_body_that_comes_byte_by_byte_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)

    async def receive():
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b" ", "more_body": True}

    with pytest.raises(ApiError) as refused:
        await bodies.read_body(receive, LARGEST_BODY)
    assert refused.value.status == 408


async def test_more_than_is_taken_is_not_kept(monkeypatch):
    given = []

    async def receive():
        given.append(1000)
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    with pytest.raises(ApiError) as refused:
        await bodies.read_body(receive, 5000)
    assert refused.value.status == 413
    assert sum(given) <= 9 * 5000


def test_all_bodies_together_have_bounds(monkeypatch):
    held = Bodies()
    with held.hold(bodies.BODIES_AT_ONCE - 10):
        with held.hold(10):
            pass
        with pytest.raises(ApiError) as refused, held.hold(11):
            pass
        assert refused.value.status == 503
    assert held.size == 0


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nX-Slow: "])
def test_who_does_not_say_what_they_ask_is_let_go(serve, monkeypatch, start):
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.1)
    url = serve(judge="probe")
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(start)
        assert client.recv(100) == b""


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


_JSON = st.recursive(
    st.none() | st.text('[]{}"\\ a'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\'), inner, max_size=3)
    ),
)


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 if isinstance(value, list | dict) else 0) + max(map(depth_of, inner), default=0)


@given(_JSON)
def test_brackets_in_texts_make_nothing_deeper(value):
    assert json_depth(json.dumps(value).encode()) == depth_of(value)


def test_the_depth_of_a_large_body_is_soon_told():
    """In time that grows with its length; else this would not end."""
    for part in (b'"', b'\\"', b'"\\', b"[", b'["', b'{"\\"'):
        assert json_depth(part * (2**20 // len(part))) >= 0
