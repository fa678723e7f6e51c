"""Keys: who is let in, what they may do, and that they are gone at once when they are revoked."""

import asyncio
import json
import logging
import re
import sqlite3
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from urllib.parse import urlsplit

import pytest
from plain_http import fetch
from starlette.responses import StreamingResponse

from textevolve.agents.resources import NamespaceSpec
from textevolve.errors import InputError, SettingsError
from textevolve.server import identity
from textevolve.server.access import Caller
from textevolve.server.app import require_keys
from textevolve.server.errors import ApiError
from textevolve.server.limits import UsageLimits, open_limits
from textevolve.server.options import ServerOptions, find_client_key
from textevolve.server.pages import runs
from textevolve.store import ResourceStore, budgets, kinds
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeyLimits, KeyScope, KeySpec

ASKED = {
    "model": "jev-latest",
    "state": "Four.",
    "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
}


@pytest.fixture
def resources(home):
    with closing(ResourceStore(str(home / "store.db"))) as opened:
        yield opened


@pytest.fixture
def make_key(resources, monkeypatch):
    """Makes a key that the server asks for in each request anew."""
    monkeypatch.setattr(identity, "KEY_SECONDS", 0.0)

    def make(name="ann", expires=None, limits=None, **given):
        spec = KeySpec(**given, limits=limits or KeyLimits())
        return resources.write(stored_keys.add_key, name, spec, expires)[1]

    return make


def ask(url, key=None, **headers):
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    return fetch(f"{url}/v1/systemone", "POST", ASKED, **bearer, **headers)


def test_keys_are_long_random_and_not_kept(home, make_key):
    first, second = make_key("a"), make_key("b")
    assert re.fullmatch(r"te-[A-Za-z0-9_-]{43}", first)  # 43 times 6 bits hold 256
    assert first != second
    with closing(sqlite3.connect(home / "store.db")) as store:
        dump = "\n".join(store.iterdump())
    assert "api_keys" in dump
    assert first not in dump
    assert first.removeprefix("te-") not in dump


def test_a_key_is_asked_for_where_the_operator_says_so(serve, make_key, server):
    key = make_key()
    url = serve(judge="probe", keys=True)
    for reply in (
        ask(url),
        ask(url, ""),
        ask(url, key[:-1]),
        ask(url, f"{key}x"),
        ask(url, "none"),
    ):
        assert (reply.status, reply.code) == (401, "authentication_error")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert fetch(f"{url}/v1/systemone", "POST", ASKED, Authorization=f"Basic {key}").status == 401
    assert fetch(f"{url}/v1/models?key={key}&api_key={key}").status == 401
    assert server.calls == 0
    assert ask(url, key).status == 200
    assert fetch(f"{url}/v1/systemone", "POST", ASKED, Authorization=f"bearer {key}").status == 200


def test_on_this_machine_only_what_looks_like_our_key_is_looked_at(serve, make_key):
    key = make_key(scopes=["read"])
    url = serve(judge="probe")
    assert ask(url, "sk-of-somebody-else").status == 200
    assert ask(url, "te-but-not-ours").status == 401
    assert ask(url, key).status == 403


def test_a_revoked_key_is_refused_with_the_next_request(serve, make_key, resources):
    key, other = make_key(), make_key("bob")
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    resources.write(stored_keys.revoke_key, "ann")  # as another process would
    assert ask(url, key).status == 401
    assert ask(url, other).status == 200


def test_a_key_is_believed_for_a_second_at_most():
    assert identity.KEY_SECONDS <= 1


def test_a_key_ends_when_it_expires(serve, make_key, monkeypatch):
    key = make_key(expires=5e9)
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    monkeypatch.setattr("textevolve.store.keys.time.time", lambda: 5e9 + 1)
    assert ask(url, key).status == 401


@pytest.mark.parametrize("scope", ["read", "run", "label", "admin"])
def test_scopes_are_asked_for(serve, make_key, scope: KeyScope):
    key = make_key(scopes=[scope])
    url = serve(judge="probe", keys=True)
    runs = ask(url, key)
    reads = fetch(f"{url}/runs", Authorization=f"Bearer {key}")
    assert runs.status == (200 if scope in ("run", "admin") else 403)
    assert reads.status == (200 if scope in ("read", "admin") else 403)
    if runs.status == 403:
        assert runs.code == "permission_denied"


@pytest.mark.parametrize(
    ("named", "status"),
    [("openai/gpt-5", 201), ("groq/x", 400), ("http://10.0.0.1/v1#x", 400), ("local/~x", 400)],
)
def test_agents_name_only_models_that_the_operator_allows(serve, make_key, named, status):
    """Else a client's agent would be answered at the cost of whoever owns the server's keys."""
    key = make_key(scopes=["admin"])
    url = serve(judge="probe", keys=True, allow_model=["openai/*"])
    agents, bearer = f"{url}/v1/namespaces/mine/agents", {"Authorization": f"Bearer {key}"}
    assert fetch(f"{url}/v1/namespaces", "POST", {"name": "mine"}, **bearer).status == 201
    spec = {"name": "guide", "persona": "You are Guide.", "model": named}
    assert fetch(agents, "POST", spec, **bearer).status == status


def test_the_operators_key_has_all_scopes_beside_the_others(serve, make_key):
    key = make_key()
    url = serve("the-operators-own-key", judge="probe")
    assert ask(url, "the-operators-own-key").status == 200
    assert ask(url, key).status == 200
    assert ask(url, "the-operators-own-kex").status == 401


def test_beyond_loopback_there_must_be_a_key(resources, monkeypatch):
    for given in ({"host": "0.0.0.0"}, {"host": "::"}, {"host": "10.1.2.3"}, {"keys": True}):
        options = ServerOptions(**given)
        with pytest.raises(SettingsError, match="textevolve keys add"):
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
    with pytest.raises(SettingsError, match="any address"):
        find_client_key(ServerOptions(host="0.0.0.0", any=True))


def test_a_server_that_needs_keys_and_has_none_does_not_start(serve):
    with pytest.raises(SettingsError, match="no key yet"):
        serve(judge="probe", keys=True)


def test_nothing_that_is_logged_or_answered_holds_a_key(serve, make_key, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    key = make_key(scopes=["run"])
    url = serve(judge="probe", keys=True)
    said = [
        ask(url, key),
        ask(url, f"{key}x"),
        fetch(f"{url}/runs", Authorization=f"Bearer {key}"),
        fetch(f"{url}/v1/systemone", "POST", b"[" * 999, Authorization=f"Bearer {key}"),
        fetch(f"{url}/nowhere?key={key}", Authorization=f"Bearer {key}"),
        fetch(f"{url}/v1/models?key={key}"),
    ]

    def fail(*_given):
        raise RuntimeError("on purpose")

    monkeypatch.setattr("textevolve.server.decisions.serving.Serving.answer", fail)
    said.append(ask(url, key))
    assert said[-1].status == 500
    assert "on purpose" not in said[-1].text
    assert "on purpose" in caplog.text
    for text in (caplog.text, *(one.text + str(one.headers) for one in said)):
        assert key not in text
        assert key.removeprefix("te-") not in text


def test_a_stream_ends_with_its_key(serve, make_key, resources, monkeypatch):
    """Whoever holds a stream open when the key is revoked gets no more of it."""
    key = make_key(scopes=["read"])
    ended = []

    async def stream():
        try:
            for number in range(10_000):
                yield f"{number}\n".encode()
                await asyncio.sleep(0.01)
        finally:
            ended.append(number)

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
    assert ended[0] < 9_999


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


def test_requests_beyond_the_limit_are_told_when_to_come_again(serve, make_key, server):
    key = make_key(limits=KeyLimits(requests_per_minute=1))
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    before = server.calls
    refused = ask(url, key)
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert server.calls == before


def test_tokens_a_minute_are_counted_where_models_are_asked(serve, make_key):
    key = make_key(limits=KeyLimits(tokens_per_minute=5))
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200  # takes more than five, which nobody knew
    refused = ask(url, key)
    assert refused.status == 429
    assert "5 tokens a minute" in refused.text


async def test_a_namespace_has_its_tokens_of_a_day(resources):
    resources.write(
        kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme", tokens_per_day=100)
    )
    bound = Caller("key_1", "ann", frozenset({"run"}), frozenset({"acme"}))
    free = Caller("key_2", "bob", frozenset({"run"}))
    async with open_limits(resources) as limits:
        await limits.check_tokens(bound)
        limits.note_tokens(bound, 60)
        await limits.check_tokens(free, "acme")
        limits.note_tokens(free, 60, "acme")
        for caller, space in ((bound, ""), (free, "acme")):
            with pytest.raises(ApiError) as refused:
                await limits.check_tokens(caller, space)
            assert (refused.value.status, refused.value.code) == (429, "insufficient_quota")
            assert refused.value.retry_after <= 24 * 3600
        await limits.check_tokens(free)
    assert resources.read(budgets.read_budget, "acme").used == 120
    async with open_limits(resources) as limits:  # after a restart, too
        with pytest.raises(ApiError):
            await limits.check_tokens(bound)
        resources.write(kinds.update, kinds.NAMESPACES, "", "acme", {"tokens_per_day": None})
        await limits.flush()
    async with open_limits(resources) as limits:
        await limits.check_tokens(bound)


def test_streams_at_once(resources):
    limits = UsageLimits(resources)
    caller = Caller("key_1", "ann", frozenset({"run"}), limits=KeyLimits(streams=1))
    with limits.stream_place(caller):
        with pytest.raises(ApiError) as refused, limits.stream_place(caller):
            pass
        assert refused.value.status == 429
    with limits.stream_place(caller):
        pass


def test_it_is_known_when_a_key_was_last_used(serve, make_key, resources):
    key = make_key()
    make_key("bob")
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    serve.end()
    ann, bob = resources.read(stored_keys.list_keys)
    assert ann.used is not None
    assert bob.used is None


def test_names_and_namespaces_of_keys_are_checked(resources, make_key):
    make_key("ann")
    with pytest.raises(InputError, match="there already"):
        make_key("ann")
    with pytest.raises(InputError, match="no namespace 'acme'"):
        make_key("bob", namespaces=["acme"])
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    make_key("bob", namespaces=["acme"])
    resources.write(stored_keys.revoke_key, "ann")
    make_key("ann")
    with pytest.raises(InputError, match="did you mean 'ann'"):
        resources.write(stored_keys.revoke_key, "anne")


def test_the_command_shows_a_key_once(cli):
    made = cli("keys", "add", "ann", "--scope", "read", "--scope", "label", "--expires", "30d")
    assert (made.code, made.err.count("cannot be shown again")) == (0, 1)
    key = made.out.strip()
    assert key.startswith("te-")
    listed = cli("keys", "list")
    assert "ann" in listed.out
    assert "read label; all namespaces" in listed.out
    assert "valid until" in listed.out
    (row,) = cli("keys", "list", "--json").rows
    assert row["spec"]["scopes"] == ["read", "label"]
    assert 29 * 86_400 < row["expires"] - row["created"] < 31 * 86_400
    assert key not in listed.out + json.dumps(row)
    assert "hash" not in row
    assert "is revoked" in cli("keys", "revoke", "ann").out
    assert "revoked" in cli("keys", "list").out
    assert cli("keys", "revoke", "ann").code == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--scope", "everything"), "scope"),
        (("--expires", "soon"), "such as 30d"),
        (("--expires", "0d"), "such as 30d"),
        (("--namespace", "nowhere"), "no namespace 'nowhere'"),
        (("--streams", "0"), "streams must be"),
    ],
)
def test_what_is_wrong_with_a_key_is_told(cli, given, told):
    ended = cli("keys", "add", "ann", *given)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert cli("keys", "list", "--json").rows == []


def test_a_key_may_be_given_limits_and_namespaces(cli):
    assert cli("namespaces", "create", "acme", "--tokens-per-day", "1000").code == 0
    limits = ("--requests-per-minute", 5, "--tokens-per-minute", 1000, "--streams", 2)
    (row,) = cli("keys", "add", "bot", "--namespace", "acme", *limits, "--json").rows
    assert row["key"].startswith("te-")
    assert row["spec"]["namespaces"] == ["acme"]
    assert row["spec"]["limits"] == {
        "requests_per_minute": 5,
        "tokens_per_minute": 1000,
        "streams": 2,
    }
    (space,) = cli("namespaces", "show", "acme", "--json").rows
    assert space["tokens_per_day"] == 1000
