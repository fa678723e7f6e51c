"""Keys: who is let in, what they may do, and that they are gone at once when they are revoked."""

import asyncio
import logging
import re
import sqlite3
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from urllib.parse import urlsplit

import pytest
from plain_http import ask_question as ask
from plain_http import fetch
from starlette.responses import StreamingResponse

from textevolve.errors import SettingsError
from textevolve.server import identity
from textevolve.server.app import require_keys
from textevolve.server.errors import ApiError
from textevolve.server.identity import Caller, UsageLimits
from textevolve.server.options import ServerOptions, find_client_key
from textevolve.server.pages import runs
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeyLimits, KeySpec


@pytest.fixture
def make_key(resources, monkeypatch):
    """Makes a key that the server asks for in each request anew."""
    monkeypatch.setattr(identity, "KEY_SECONDS", 0.0)

    def make(name="ann", expires=None, limits=None, **given):
        spec = KeySpec(**given, limits=limits or KeyLimits())
        return resources.write(stored_keys.add_key, name, spec, expires)[1]

    return make


def test_keys_are_long_random_and_not_kept(home, make_key):
    first_key, second_key = make_key("a"), make_key("b")
    assert re.fullmatch(r"te-[A-Za-z0-9_-]{43}", first_key)  # 43 times 6 bits hold 256
    assert first_key != second_key
    with closing(sqlite3.connect(home / "store.db")) as store:
        dump = "\n".join(store.iterdump())
    assert "api_keys" in dump
    assert first_key not in dump
    assert first_key.removeprefix("te-") not in dump


def test_a_key_ends_when_it_expires(serve, make_key, monkeypatch):
    key = make_key(expires=5e9)
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    monkeypatch.setattr("textevolve.store.keys.time.time", lambda: 5e9 + 1)
    assert ask(url, key).status == 401


def test_beyond_loopback_there_must_be_a_key(resources, monkeypatch):
    for given in ({"host": "0.0.0.0"}, {"host": "::"}, {"host": "10.1.2.3"}, {"keys": True}):
        options = ServerOptions(**given)
        with pytest.raises(SettingsError, match="textevolve config keys add"):
            require_keys(options, resources, None)
        require_keys(options, resources, "the-key-of-key-env")
    resources.write(stored_keys.add_key, "dead", KeySpec(), 1.0)
    resources.write(stored_keys.add_key, "ended", KeySpec(), None)
    resources.write(stored_keys.revoke_key, "ended")
    with pytest.raises(SettingsError, match="no key yet"):
        require_keys(ServerOptions(host="0.0.0.0"), resources, None)
    resources.write(stored_keys.add_key, "live", KeySpec(), None)
    require_keys(ServerOptions(host="0.0.0.0"), resources, None)
    monkeypatch.setenv("OUR_KEY", "short")
    with pytest.raises(SettingsError, match="could be guessed"):
        find_client_key(ServerOptions(host="0.0.0.0", key_env="OUR_KEY"))


def test_nothing_that_is_logged_or_answered_holds_a_key(serve, make_key, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    key = make_key(scopes=["run"])
    url = serve(judge="probe", keys=True)
    replies = [
        ask(url, key),
        ask(url, f"{key}x"),
        fetch(f"{url}/runs", Authorization=f"Bearer {key}"),
        fetch(f"{url}/v1/systemone", "POST", b"[" * 999, Authorization=f"Bearer {key}"),
        fetch(f"{url}/nowhere?key={key}", Authorization=f"Bearer {key}"),
        fetch(f"{url}/v1/models?key={key}"),
    ]

    def fail(*_given):
        raise RuntimeError("on purpose")

    monkeypatch.setattr("textevolve.server.decisions.serving.Serving.place", fail)
    replies.append(ask(url, key))
    assert replies[-1].status == 500
    assert "on purpose" not in replies[-1].text
    assert "on purpose" in caplog.text
    for text in (caplog.text, *(response.text + str(response.headers) for response in replies)):
        assert key not in text
        assert key.removeprefix("te-") not in text


def test_a_stream_ends_with_its_key(serve, make_key, resources, monkeypatch):
    """Whoever holds a stream open when the key is revoked gets no more of it."""
    key = make_key(scopes=["read"])
    outcome = []

    async def stream():
        try:
            for number in range(10_000):
                yield f"{number}\n".encode()
                await asyncio.sleep(0.01)
        finally:
            outcome.append(number)

    monkeypatch.setattr(runs, "draw", lambda *_, **__: StreamingResponse(stream()))
    url = serve(judge="probe", keys=True)
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("GET", "/runs", headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        assert answer.readline() == b"0\n"
        resources.write(stored_keys.revoke_key, "ann")
        with pytest.raises(IncompleteRead):
            answer.read()
    serve.end()
    assert outcome[0] < 9_999


async def test_requests_a_minute(resources):
    limits = UsageLimits(resources)
    caller = Caller("key_1", "ann", frozenset({"run"}), limits=KeyLimits(requests_per_minute=2))
    other = Caller("key_2", "bob", frozenset({"run"}), limits=KeyLimits(requests_per_minute=2))
    for _ in range(2):
        limits.take_request(caller)
    with pytest.raises(ApiError) as refused:
        limits.take_request(caller)
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert 0 < refused.value.retry_after <= 30
    limits.take_request(other)
    free = Caller("key_3", "eve", frozenset({"run"}))
    for _ in range(100):
        limits.take_request(free)


def test_streams_at_once(resources):
    limits = UsageLimits(resources)
    caller = Caller("key_1", "ann", frozenset({"run"}), limits=KeyLimits(streams=1))
    with limits.stream_place(caller):
        with pytest.raises(ApiError) as refused, limits.stream_place(caller):
            pass
        assert refused.value.status == 429
    with limits.stream_place(caller):
        pass
