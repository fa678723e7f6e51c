"""Promises of docs/security.md about limits, each at the smallest place that keeps it."""

import asyncio

import pytest
from fastapi import FastAPI
from plain_http import QUESTION, ask_question, fetch

from textevolve.agents.resources import NamespaceSpec
from textevolve.server import guard, identity
from textevolve.server.app import make_server
from textevolve.server.bodies import LARGE, parse_aside
from textevolve.server.identity import Caller, open_limits
from textevolve.store import keys, kinds


@pytest.fixture
def acme(resources):
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    return resources


def test_limited_admins_set_no_quota(serve, ask, monkeypatch):
    url = serve()
    assert ask(f"{url}/v1/namespaces", {"name": "acme", "tokens_per_day": 9})[0] == 201
    limited = Caller("k1", "ann", frozenset({"admin"}), frozenset({"acme"}))
    monkeypatch.setattr(guard, "THIS_MACHINE", limited)
    for quota in (None, 10**9):
        assert ask(f"{url}/v1/namespaces/acme", {"tokens_per_day": quota}, "PATCH")[0] == 403
    assert ask(f"{url}/v1/namespaces/acme")[1]["tokens_per_day"] == 9
    assert ask(f"{url}/v1/namespaces/acme", {"description": "Shop."}, "PATCH")[0] == 200


def test_server_stops_at_its_limit(serve):
    url = serve(judge="probe", max_calls=1)
    assert ask_question(url).status == 200
    refused = fetch(f"{url}/v1/systemone", "POST", {**QUESTION, "state": "Five."})
    assert (refused.status, "insufficient_quota" in refused.text) == (429, True)


async def test_usage_is_stored_meanwhile(acme, monkeypatch):
    assert identity.FLUSH_SECONDS <= 1
    monkeypatch.setattr(identity, "FLUSH_SECONDS", 0.01)
    caller = Caller("k1", "ann", frozenset({"run"}), frozenset({"acme"}))
    async with open_limits(acme) as limits:
        limits.note_tokens(caller, 7)
        async with asyncio.timeout(10):
            while acme.read(keys.read_budget, "acme").used != 7:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_connections_have_a_limit():
    assert make_server(FastAPI()).config.limit_concurrency == 4096


def test_named_proxies_are_trusted(monkeypatch):
    assert "127.0.0.1" in make_server(FastAPI()).config.forwarded_allow_ips
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.7")
    assert make_server(FastAPI()).config.forwarded_allow_ips == "10.0.0.7"


async def test_large_bodies_leave_room():
    """At most two bodies are parsed at once, and the server answers others meanwhile."""
    working = 0
    most = 0

    def parse():
        nonlocal working, most
        working += 1
        most = max(most, working)
        asyncio.run(asyncio.sleep(0.02))
        working -= 1

    beats = 0
    tasks = asyncio.gather(*(parse_aside(parse, LARGE) for _ in range(6)))
    while not tasks.done():
        beats += 1
        await asyncio.sleep(0.001)
    assert (most, beats > 6) == (2, True)
    assert await parse_aside(lambda: "here", 10) == "here"
